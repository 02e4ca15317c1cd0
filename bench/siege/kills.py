"""Kill runs of every shape at random moments, resume them, and account for jobs and paid calls.

    python bench/siege/kills.py --kills 200
    python bench/siege/kills.py --kills 10000 --report kills.jsonl

Some stops are Ctrl-C instead of a kill. With --report, each run is appended to the file, and the same command continues
where it was stopped. The exit code is 1 if a job or a case is missing or there twice, if a score is wrong, if `agentv
runs check` finds damage, or if more calls were paid again than were in flight.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from shapes import SHAPES, WORKERS, Project, project

from harness import environment

STOPS_PER_RUN = 6
EXECUTORS = ("local", "process")
WRONG = ("missing", "twice", "cases_wrong", "wrong_scores", "damage", "overpaid", "failed")


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
    pairs = [(shape, executor) for executor in options.executors.split(",") for shape in options.shapes.split(",")]
    while sum(run["stops"] for run in runs) < options.kills:
        shape, executor = pairs[len(runs) % len(pairs)]
        chance = random.Random(f"{options.seed} {len(runs)}")
        runs.append(trial(shape, executor, options.interrupts, chance))
        if options.report is not None:
            with options.report.open("a") as file:
                file.write(json.dumps(runs[-1]) + "\n")
    print(table(runs))
    return 1 if any(run[name] for run in runs for name in WRONG) else 0


def read_report(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def trial(shape: str, executor: str, interrupts: float, chance: random.Random) -> dict[str, Any]:
    """Run once, stop it a few times, and return what its folder contains at the end."""
    with tempfile.TemporaryDirectory() as folder, project(Path(folder), SHAPES[shape], executor) as made:
        stops: Counter[str] = Counter()
        while stops.total() < STOPS_PER_RUN and not stops["ended by itself"]:
            stops[stopped(made, chance, interrupts)] += 1
        ended = subprocess.run(made.command, cwd=folder, env=environment(), capture_output=True, text=True)
        found = account(made, stops["killed"] + stops["interrupted"])
        failed = int(ended.returncode != 0)
        if failed:
            print(ended.stderr, file=sys.stderr)
        return {"shape": shape, "executor": executor, "failed": failed, **found}


def stopped(made: Project, chance: random.Random, interrupts: float) -> str:
    """Start or resume the run, and stop it during start-up or after some more records."""
    results = made.folder / "out" / "results.jsonl"
    process = subprocess.Popen(made.command, cwd=made.folder, env=environment(), stderr=subprocess.DEVNULL)
    before, starting = size_of(results), chance.random() < 0.25
    until = time.monotonic() + (chance.random() * 0.8 if starting else 60)
    grown = chance.randrange(1, 6_000)
    while process.poll() is None and time.monotonic() < until and (starting or size_of(results) < before + grown):
        time.sleep(0.0005)
    process.send_signal(signal.SIGINT if chance.random() < interrupts else signal.SIGKILL)
    code = process.wait(60)
    # Ctrl-C may arrive before Python handles it; then it ends the process like any signal.
    return {-signal.SIGKILL: "killed", 130: "interrupted", -signal.SIGINT: "interrupted"}.get(code, "ended by itself")


def size_of(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def account(made: Project, stops: int) -> dict[str, Any]:
    """Compare the content of the folder with what it must be."""
    out, shape = made.folder / "out", made.shape
    records = [json.loads(line) for line in (out / "results.jsonl").open()]
    cases = Counter(json.loads(line)["id"] for line in (out / "cases.jsonl").open())
    jobs = Counter((each["eval_id"], each.get("prompt"), each["trial"]) for each in records)
    answered = sum(each["status"] == "ok" for each in records)
    check = [sys.executable, "-m", "agentv", "runs", "check", "out", "--json"]
    checked = subprocess.run(check, cwd=made.folder, env=environment(), capture_output=True, text=True)
    again = made.paid() - answered * shape.calls_per_job
    return {
        "jobs": shape.jobs,
        "stops": stops,
        "paid_again": again,
        "in_flight": stops * WORKERS * shape.calls_per_job,
        "overpaid": max(0, again - stops * WORKERS * shape.calls_per_job),
        "missing": shape.jobs - len(jobs),
        "twice": sum(count > 1 for count in jobs.values()),
        "cases_wrong": abs(shape.cases - len(cases)) + sum(count > 1 for count in cases.values()),
        "wrong_scores": sum(each["status"] == "ok" and each["score"] != 1.0 for each in records),
        "damage": len(json.loads(checked.stdout)["problems"]) if checked.stdout else 1,
    }


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
