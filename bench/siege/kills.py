"""Kill runs of every shape at random moments, resume them, and account for jobs and paid calls.

    python bench/siege/kills.py --kills 200
    python bench/siege/kills.py --kills 10000 --report kills.jsonl

Commands run in forks of one process, which has imported agentv. A stop comes at a random time, or at a random write,
sync or rename: before it, after it, or in the middle of a write. Some stops are Ctrl-C. With --report, each run is
appended to the file, and the same command continues where it was stopped. The exit code is 1 if a job or a case is
missing or there twice, if a score is wrong, if `agentv runs check` finds damage, or if more calls were paid again than
were in flight.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fork_server import MOMENTS, ForkServer
from shapes import SHAPES, Project, project

STOPS_PER_COMMAND = 12
EXECUTORS = ("local", "process", "ray")
WRONG = ("missing", "twice", "cases_wrong", "wrong_scores", "damage", "overpaid", "unpaid", "failed")
DURATIONS: defaultdict[tuple[str, str], float] = defaultdict(lambda: 0.5)
"""About how long a command of a shape and executor takes, in seconds."""


REFUSED = (("record", "ray"), ("batch", "ray"))
"""agentv refuses these: only this machine can write a recording, or wait for a batch."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="number of stops")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interrupts", type=float, default=0.2, help="fraction of the stops that are Ctrl-C")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="comma-separated")
    parser.add_argument("--executors", default=",".join(EXECUTORS), help="comma-separated: local, process, ray")
    parser.add_argument("--report", type=Path, help="file of finished runs, to continue later")
    options = parser.parse_args()
    runs = read_report(options.report)
    shapes, executors = options.shapes.split(","), options.executors.split(",")
    pairs = [(shape, executor) for shape in shapes for executor in executors if (shape, executor) not in REFUSED]
    pairs = [(shape, executor) for shape, executor in pairs if executor == "local" or not SHAPES[shape].rescored]
    with ForkServer() as server:
        preload(server, dict(pairs))
        while sum(run["stops"] for run in runs) < options.kills:
            chance = random.Random(f"{options.seed} {len(runs)}")
            runs.append(trial(pairs[len(runs) % len(pairs)], options.interrupts, chance, server))
            if options.report is not None:
                with options.report.open("a") as file:
                    file.write(json.dumps(runs[-1]) + "\n")
    print(table(runs))
    stops, wrong = sum(run["stops"] for run in runs), sum(any(run[name] for name in WRONG) for run in runs)
    print(f"kills: {stops:,} stops in {len(runs):,} runs, {wrong} runs wrong")
    return 1 if wrong else 0


def preload(server: ForkServer, executors: dict[str, str]) -> None:
    """Let the server import what each shape needs."""
    for shape in executors:
        with tempfile.TemporaryDirectory() as folder, project(Path(folder), SHAPES[shape], "local") as made:
            for command in (*made.first, *made.commands):
                server.preload(made.folder, command)


def read_report(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def trial(pair: tuple[str, str], interrupts: float, chance: random.Random, server: ForkServer) -> dict[str, Any]:
    """Run once, stop it a few times, and return what its folder contains at the end."""
    shape, executor = pair
    with tempfile.TemporaryDirectory() as folder, project(Path(folder), SHAPES[shape], executor) as made:
        failed = sum(server.run(made.folder, command) != 0 for command in made.first)
        paid_before, stops = made.paid(), 0
        for command in made.commands:
            for _ in range(STOPS_PER_COMMAND):
                if not stopped(made, command, server, Stop.drawn(chance, interrupts, DURATIONS[pair])):
                    break
                stops += 1
            began = time.monotonic()
            failed += server.run(made.folder, command) != 0
            DURATIONS[pair] = max(0.1, DURATIONS[pair] * 0.9, time.monotonic() - began)
        found = account(made, paid_before, stops, server)
        run = {"shape": shape, "executor": executor, "failed": failed, **found}
        if any(run[name] for name in WRONG):
            keep_evidence(made.folder, run)
        return run


@dataclass(frozen=True)
class Stop:
    """How to stop a command: at a call that changes files, or after some time, by a kill or Ctrl-C."""

    call: tuple[int, str] | None
    after_s: float
    signal: int

    @classmethod
    def drawn(cls, chance: random.Random, interrupts: float, duration_s: float) -> Stop:
        after_s, kind = chance.random() * duration_s, chance.random()
        if kind < interrupts:
            return cls(None, after_s, signal.SIGINT)
        at_call = (1 + int(chance.random() ** 2 * 45), chance.choice(MOMENTS)) if kind < 0.6 else None
        return cls(at_call, 60.0 if at_call else after_s, signal.SIGKILL)


def stopped(made: Project, command: list[str], server: ForkServer, stop: Stop) -> bool:
    """Start or resume a run, stop it, and return whether it was stopped before it ended by itself."""
    pid = server.start(made.folder, command, stop.call)
    if stop.call is None:
        time.sleep(stop.after_s)
        with suppress(ProcessLookupError):
            os.kill(pid, stop.signal)
    # Ctrl-C may arrive before Python handles it; then it ends the process like any signal.
    return server.wait() in (-signal.SIGKILL, 130, -signal.SIGINT)


def keep_evidence(folder: Path, run: dict[str, Any]) -> None:
    """Copy the folder of a trial that went wrong, for the person who looks into it."""
    aside = Path(tempfile.mkdtemp(prefix="agentv-kills-"))
    shutil.copytree(folder, aside / "project")
    print(f"Wrong: {run}. Its files are in {aside}", file=sys.stderr, flush=True)


def account(made: Project, paid_before: int, stops: int, server: ForkServer) -> dict[str, Any]:
    """Compare the content of the folder with what it must be."""
    out, shape = made.folder / "out", made.shape
    records, stored = lines_of(out / "results.jsonl"), lines_of(out / "cases.jsonl")
    cases = Counter(case["id"] for case in stored)
    jobs = Counter((each["eval_id"], each.get("prompt"), each["trial"]) for each in records)
    answered = sum(each["status"] == "ok" for each in records)
    again = made.paid() - paid_before - answered * shape.calls_per_job
    return {
        "jobs": shape.jobs,
        "stops": stops,
        "paid_again": again,
        "in_flight": stops * shape.most_in_flight(made.executor),
        "overpaid": max(0, again - stops * shape.most_in_flight(made.executor)),
        "unpaid": max(0, -again),
        "missing": shape.jobs - len(jobs),
        "twice": sum(count > 1 for count in jobs.values()),
        "cases_wrong": abs(shape.cases - len(cases)) + sum(count > 1 for count in cases.values()),
        "wrong_scores": sum(each["status"] == "ok" and each["score"] != 1.0 for each in records),
        "damage": int(server.run(made.folder, ["runs", "check", "out"]) != 0),
    }


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open()] if path.exists() else []


def table(runs: list[dict[str, Any]]) -> str:
    """Return the sums by shape and executor as a Markdown table."""
    names = ("jobs", "stops", "paid_again", "in_flight", *WRONG)
    rows = ["| shape | executor | runs | " + " | ".join(names) + " |", "|---" * (len(names) + 3) + "|"]
    groups = dict.fromkeys((run["shape"], run["executor"]) for run in runs)
    for shape, executor in (*groups, ("all", "all")):
        mine = [run for run in runs if shape == "all" or (run["shape"], run["executor"]) == (shape, executor)]
        sums = (f"{sum(run[name] for run in mine):,}" for name in names)
        rows.append(f"| {shape} | {executor} | {len(mine)} | {' | '.join(sums)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
