"""Kill one run at random moments, resume it each time, and report lost, duplicated and repeated jobs.

    python bench/kills.py --kills 200

A server on loopback with faults of every kind answers; some stops are Ctrl-C instead of a kill. The exit code
is 1 when a job is missing or there twice, when a case is, or when more was paid again than was in flight.
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

from harness import environment

WORKERS = 8
SPOILT = ("half_closed", "truncated")
FAULTS = dict.fromkeys(("429", "500", "503", "reset", *SPOILT), 0.004)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interrupts", type=float, default=0.2, help="fraction of the stops that are Ctrl-C")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = trial(Path(folder), options.kills, options.interrupts, random.Random(options.seed))
    print(json.dumps(found))
    return 0 if found["as_it_must_be"] else 1


def trial(folder: Path, kills: int, interrupts: float, chance: random.Random) -> dict[str, Any]:
    """Run once, stop it as often as requested, and return what its folder contains at the end."""
    from agentv_testing import FaultyServer

    jobs = 20 * kills
    rows = (
        json.dumps({"id": f"case-{number}", "input": f"question {number}", "expected_outcome": "Paris"})
        for number in range(jobs)
    )
    (folder / "d.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "d.yaml").write_text("evaluators: [{type: contains, value: Paris}]\n")
    with FaultyServer("Paris", latency_s=0.01, keep=0, faults=FAULTS) as server:
        target = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "workers": WORKERS}
        (folder / ".agentv").mkdir()
        (folder / ".agentv" / "targets.yaml").write_text(json.dumps({"targets": [target]}))
        stops: Counter[str] = Counter()
        while sum(stops[name] for name in ("killed", "interrupted")) < kills and stops["ended by itself"] < 3:
            stops[stopped(folder, chance, interrupts)] += 1
        ended = subprocess.run([*command(), "--quiet"], cwd=folder, env=environment(), capture_output=True, text=True)
        if ended.returncode:
            print(ended.stderr, file=sys.stderr)
        counts = server.counts
        # A truncated body has status 200 too, but is not a usable response.
        answered = counts.by_status[200] - sum(counts.by_fault[kind] for kind in SPOILT)
    return {"jobs": jobs, "stops": stops, "exit": ended.returncode, **account(folder, jobs, answered, stops)}


def command() -> list[str]:
    return [sys.executable, "-m", "agentv", "eval", "d.jsonl", "--resume", "--out", "out", "--max-retries", "6"]


def stopped(folder: Path, chance: random.Random, interrupts: float) -> str:
    """Start or resume the run, and stop it during start-up or after some more records."""
    results = folder / "out" / "results.jsonl"
    process = subprocess.Popen([*command(), "--quiet"], cwd=folder, env=environment(), stderr=subprocess.DEVNULL)
    before = size_of(results)
    starting = chance.random() < 0.25
    until = time.monotonic() + (chance.random() * 0.6 if starting else 60)
    grown = chance.randrange(1, 12_000)
    while process.poll() is None and time.monotonic() < until and (starting or size_of(results) < before + grown):
        time.sleep(0.0005)
    interrupt = chance.random() < interrupts
    process.send_signal(signal.SIGINT if interrupt else signal.SIGKILL)
    code = process.wait(60)
    # Ctrl-C may arrive before Python handles it; then it ends the process like any signal.
    return {-signal.SIGKILL: "killed", 130: "interrupted", -signal.SIGINT: "interrupted"}.get(code, "ended by itself")


def size_of(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def account(folder: Path, jobs: int, answered: int, stops: Counter[str]) -> dict[str, Any]:
    """Compare the content of the folder with what it must be."""
    records = [json.loads(line) for line in (folder / "out" / "results.jsonl").open()]
    cases = Counter(json.loads(line)["id"] for line in (folder / "out" / "cases.jsonl").open())
    found = Counter(record["eval_id"] for record in records)
    statuses = Counter(record["status"] for record in records)
    counts: dict[str, Any] = {
        "answers": answered,
        "paid_again": answered - statuses["ok"],
        "in_flight_at_stops": WORKERS * sum(stops.values()),
        "missing": jobs - len(found),
        "twice": sum(count > 1 for count in found.values()),
        "cases_twice": sum(count > 1 for count in cases.values()),
        "zero_scores": sum(record.get("score") == 0 for record in records),
        "statuses": statuses,
    }
    wrong = [counts[name] for name in ("missing", "twice", "cases_twice", "zero_scores")]
    fine = not any(wrong) and len(cases) == jobs and counts["paid_again"] <= counts["in_flight_at_stops"]
    return {**counts, "as_it_must_be": fine}


if __name__ == "__main__":
    sys.exit(main())
