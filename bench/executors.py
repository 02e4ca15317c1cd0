"""Speed-up of worker processes for CPU-bound Python code and, with --ray, the cost of losing a node.

    python bench/executors.py
    python bench/executors.py --ray

With --ray, 20,000 jobs run on two nodes with one CPU each, and again with one node killed midway. The script fails
unless every job has exactly one record each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
from harness import Goal, Measurement, Options, Pair, Work
from ray_nodes import RayNodes

SIZES, QUICK_SIZES = (1_500,), (60,)
RAY_SIZES, RAY_QUICK_SIZES = (20_000,), (2_000,)
SPEED = Goal("ratio", "≥", 1.7)
LOSS = Goal("ratio", "≤", 1.5)

COMPUTES = """
def answer(prompt):
    total = 0
    for number in range(400_000):
        total += number & 7
    return f"yes {total}"
"""
WAITS = """
import asyncio
async def answer(prompt):
    await asyncio.sleep(0.1)
    return "yes"
"""


def run(folder: str, cases: str, executor: str) -> Callable[[], Any]:
    """A complete run of a function that computes for about 20 ms."""
    import agentv
    import agentv.api

    os.chdir(folder)

    def work() -> int:
        target = {"provider": "python", "function": "computes.py:answer"}
        rows = ({"id": f"c{each}", "input": "q", "expected_outcome": "x"} for each in range(int(cases)))
        checks = [{"type": "contains", "value": "yes"}]
        ended = agentv.evaluate(rows, target, checks, executor=executor, out=tempfile.mkdtemp(dir=folder))
        return ended.summary.targets["target"].scored

    return work


def measurements(options: Options) -> Iterator[Measurement]:
    """The process executor compared with the local one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "computes.py").write_text(COMPUTES)
        for cases in options.sizes(SIZES, QUICK_SIZES):
            works = {name: Work(run, (folder, str(cases), name)) for name in ("process", "local")}
            rounds = options.rounds or (1 if options.quick else 3)
            samples = harness.interleaved(works, rounds, cases)
            name = f"{cases:,} jobs that compute, {os.cpu_count()} cores"
            yield Pair("executors", name, samples["process"], samples["local"], "the local executor").speed(SPEED)


def ray_measurements(options: Options) -> Iterator[Measurement]:
    """A run on two nodes that loses one, compared with an undisturbed run."""
    for jobs in options.sizes(RAY_SIZES, RAY_QUICK_SIZES):
        whole, killed = (timed_run(jobs, kill=kill) for kill in (False, True))
        name = f"{jobs:,} jobs on Ray, one of two nodes killed midway"
        yield Measurement("executors", name, "s", killed, whole, "the same run undisturbed", LOSS, {"jobs": jobs})


def timed_run(jobs: int, *, kill: bool) -> float:
    """Return the seconds a run takes. Raises SystemExit unless every job has one record."""
    with tempfile.TemporaryDirectory() as name, RayNodes() as nodes:
        folder = Path(name)
        (folder / "waits.py").write_text(WAITS)
        target = {"name": "default", "provider": "python", "function": "waits.py:answer", "workers": 200}
        (folder / "targets.yaml").write_text(json.dumps({"targets": [target]}))
        rows = (json.dumps({"id": f"c{each}", "input": "q", "expected_outcome": "x"}) for each in range(jobs))
        (folder / "d.jsonl").write_text("\n".join(rows))
        (folder / "d.yaml").write_text("evaluators: [{type: contains, value: 'yes'}]\n")
        command = [sys.executable, "-m", "agentv", "eval", "d.jsonl", "--out", "out", "--quiet", *nodes.options]
        started = time.perf_counter()
        with subprocess.Popen(command, cwd=folder, env={**harness.environment(), **nodes.environment}) as driver:
            results = folder / "out" / "results.jsonl"
            while kill and (not results.exists() or results.read_bytes().count(b"\n") < jobs // 2):
                time.sleep(0.05)
            if kill:
                nodes.kill_node()
        seconds = time.perf_counter() - started
        records = [json.loads(line) for line in results.open()]
    counts = Counter(record["eval_id"] for record in records if record["status"] == "ok")
    if driver.returncode or len(records) != jobs or len(counts) != jobs:
        raise SystemExit(f"{len(records)} records of {len(counts)} good jobs instead of {jobs}")
    return seconds


if __name__ == "__main__":
    on_ray = "--ray" in sys.argv
    sys.argv = [each for each in sys.argv if each != "--ray"]
    harness.main(__doc__ or "", ray_measurements if on_ray else measurements)
