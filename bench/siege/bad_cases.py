"""Run agentv against servers that always fail some requests, and compare the time with that of the simulated rules.

    python bench/siege/bad_cases.py               # 20 cells of the table in docs/explanation/load-control.md
    python bench/siege/bad_cases.py --only 429 --repeat 5

Every reply of the server takes the time that the simulation assumes. What a call costs on this machine in addition is
measured by runs of the same size whose jobs are all healthy, just before each run, and the cell is simulated
with that cost. Retries are delayed at random, so both times are medians: of a few runs, and of 51 simulations. Prints a
Markdown table. The exit code is 1 if a healthy job was lost, a bad job made too many calls, or the times differ by more
than a fifth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.extend((str(ROOT / "bench"), str(ROOT / "tests"), str(ROOT / "packages" / "agentv-testing" / "src")))

from aiohttp.web import BaseRequest, StreamResponse  # noqa: E402
from fork_server import ForkServer  # noqa: E402

from agentv_testing import Fault, FaultyServer  # noqa: E402  # from the source tree
from agentv_testing.wire import ReceivedRequest, WireFormat  # noqa: E402
from load_simulation import (  # noqa: E402
    FAILURES,
    LATENCY_S,
    PLACES,
    RETRIES,
    TIMEOUT_S,
    WORKERS,
    Server,
    Simulation,
    ideal_s,
    jobs_of,
    places,
)

CELLS = [
    *(("500", "1 in 3", workers) for workers in ("1", "4", "50")),
    *(("429", "1 in 8", workers) for workers in ("1", "4", "50")),
    *(("timeout", "1 in 8", workers) for workers in ("4", "50", "adaptive")),
    *(("reset", "1 in 3", workers) for workers in ("4", "50", "adaptive")),
    *(("503", "1 in 20", workers) for workers in ("4", "50")),
    *(("500", place, "4") for place in PLACES),
    *(("429", place, "4") for place in PLACES),
]


@dataclass(eq=False)
class BadServer(FaultyServer):
    """Always fails the requests of bad jobs in one way. Every reply takes the time of the simulation."""

    kind: str = "500"
    bad: frozenset[int] = frozenset()
    calls: Counter[int] = field(default_factory=Counter)
    first_at: float = 0.0
    last_at: float = 0.0

    async def _answer(
        self, request: BaseRequest, wire: WireFormat, received: ReceivedRequest, fault: Fault | None
    ) -> StreamResponse:
        number = int(received.prompt.removeprefix("question "))
        self.calls[number] += 1
        is_bad = number in self.bad
        seconds = FAILURES[self.kind].seconds if is_bad else LATENCY_S * random.uniform(0.8, 1.2)
        self.first_at = self.first_at or time.monotonic()
        if is_bad and self.kind == "timeout":
            self.last_at = time.monotonic() + TIMEOUT_S
            return await super()._answer(request, wire, received, Fault("hang"))
        await asyncio.sleep(seconds)
        self.last_at = time.monotonic()
        if is_bad and self.kind == "reset":
            return await super()._answer(request, wire, received, Fault("reset"))
        if is_bad:
            return self._error(wire, int(self.kind), "Simulated failure")
        return await super()._answer(request, wire, received, fault)


class Measured(NamedTuple):
    """The seconds between the first call and the last reply, the healthy jobs lost, and the most calls of a bad job."""

    seconds: float
    lost: int
    most_calls: int


def run(program: ForkServer, cell: tuple[str, str, str], *, is_healthy: bool = False) -> Measured:
    """Run the jobs of a cell, or the same number of jobs that are all healthy."""
    kind, where, workers = cell
    jobs = jobs_of(where, workers)
    bad = frozenset() if is_healthy else places(where, jobs)
    with tempfile.TemporaryDirectory() as folder, BadServer("yes", kind=kind, bad=bad) as server:
        most = {} if workers == "adaptive" else {"workers": WORKERS[workers][1]}
        target = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "api_key": "none"}
        target |= {"timeout_seconds": TIMEOUT_S, "max_retries": RETRIES, **most}
        check = [{"type": "contains", "value": "yes"}]
        cases = [
            {"id": f"c{number}", "input": f"question {number}", "expected_outcome": "yes", "evaluators": check}
            for number in range(jobs)
        ]
        Path(folder, ".agentv").mkdir()
        Path(folder, ".agentv", "targets.yaml").write_text(json.dumps({"targets": [target]}), encoding="utf-8")
        Path(folder, "cases.yaml").write_text(json.dumps({"evalcases": cases}), encoding="utf-8")
        program.preload(Path(folder), ["eval", "cases.yaml", "--out", "run", "--quiet"])
        lines = Path(folder, "run", "results.jsonl").read_text(encoding="utf-8").splitlines()
    scored = {record["eval_id"] for record in map(json.loads, lines) if record["status"] == "ok"}
    lost = {f"c{number}" for number in range(jobs) if number not in bad} - scored
    most_calls = max((server.calls[number] for number in bad), default=1)
    return Measured(server.last_at - server.first_at, len(lost), most_calls)


def simulate(cell: tuple[str, str, str], overhead_s: float, seeds: int = 51, *, is_healthy: bool = False) -> float:
    """Return the median seconds of simulated runs whose replies take longer by what a call costs on this machine."""
    kind, where, workers = cell
    usual, jobs = FAILURES[kind], jobs_of(where, workers)
    FAILURES[kind] = replace(usual, seconds=usual.seconds + overhead_s)
    bad = frozenset() if is_healthy else places(where, jobs)
    times = []
    for seed in range(seeds):
        draws = random.Random(seed)
        server = Server(kind, bad, latency=lambda _: LATENCY_S + overhead_s, draws=draws)
        simulation = Simulation(server, jobs, WORKERS[workers])
        simulation.draws = draws
        times.append(simulation.run().seconds)
    FAILURES[kind] = usual
    return median(times)


def overhead_of(cell: tuple[str, str, str], healthy_s: float) -> float:
    """Return what a call costs in addition to its latency, if a run of healthy jobs takes this long."""
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if simulate(cell, middle, 3, is_healthy=True) < healthy_s else (low, middle)
    return low


def main() -> int:
    """Run the cells; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the cells whose kind or place contains this")
    parser.add_argument("--repeat", type=int, default=3, help="number of runs of each cell")
    options = parser.parse_args()
    wrong = 0
    print("| fails | kind | workers | ideal | simulated | with the cost of calls here | real | lost | most calls |")
    print("|---" * 9 + "|")
    for cell in [cell for cell in CELLS if options.only in " ".join(cell)]:
        kind, where, workers = cell
        healthy_s, runs = [], []
        with ForkServer() as program:
            run(program, cell, is_healthy=True)  # imports agentv
            for _ in range(options.repeat):
                healthy_s.append(run(program, cell, is_healthy=True).seconds)
                runs.append(run(program, cell))
        expected_s = simulate(cell, overhead_of(cell, median(healthy_s)))
        seconds, lost, calls = median(r.seconds for r in runs), max(r.lost for r in runs), max(r[2] for r in runs)
        ideal = ideal_s(jobs_of(where, workers), len(places(where, jobs_of(where, workers))), kind, WORKERS[workers][1])
        wrong += lost > 0 or calls > RETRIES + 1 or abs(seconds - expected_s) > 0.2 * expected_s
        times = f"{ideal:.1f} s | {simulate(cell, 0.0):.1f} s | {expected_s:.1f} s | {seconds:.1f} s"
        print(f"| {where} | {kind} | {workers} | {times} | {lost} | {calls} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
