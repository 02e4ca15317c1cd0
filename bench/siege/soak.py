"""Run for a long time against a server with faults of every kind, and watch memory, descriptors and threads.

    python bench/siege/soak.py --minutes 10

Prints a Markdown table of samples. The exit code is 1 if a job is lost or scored wrongly, or if descriptors or threads
grow by more than half, or memory by more than 30 MB, between the first quarter and the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shapes import FAULTS, Shape, project

from harness import environment

_CALLS_PER_S = 400
"""An upper estimate, so that the run lasts longer than the time given; it is then interrupted and resumed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--samples", type=int, default=8)
    options = parser.parse_args()
    seconds = options.minutes * 60
    shape = Shape(cases=int(seconds * _CALLS_PER_S), target="model", options=("--max-retries", "6"))
    with tempfile.TemporaryDirectory() as folder, project(Path(folder), shape, "local") as made:
        process = subprocess.Popen(made.command, cwd=folder, env=environment())
        rows = samples(process, Path(folder), seconds / options.samples, options.samples)
        process.terminate()
        process.wait(60)
        records = [json.loads(line) for line in (Path(folder) / "out" / "results.jsonl").open()]
    print(f"{len(records):,} jobs in {options.minutes:g} minutes; faults: {', '.join(FAULTS)}\n")
    print("| seconds | jobs | MB | descriptors | threads |\n|---|---|---|---|---|")
    print("\n".join("| " + " | ".join(f"{value:,.0f}" for value in row) + " |" for row in rows))
    twice = len(records) - len({record["eval_id"] for record in records})
    wrong = sum(record["status"] == "ok" and record["score"] != 1.0 for record in records)
    print(f"\nsoak: {len(records):,} jobs, recorded twice: {twice}, wrong scores: {wrong}")
    early, late = rows[len(rows) // 4], rows[-1]
    grew = late[2] > early[2] + 30 or late[3] > 1.5 * early[3] + 4 or late[4] > 1.5 * early[4] + 4
    return 1 if twice or wrong or grew else 0


def samples(process: subprocess.Popen[bytes], folder: Path, every_s: float, count: int) -> list[tuple[float, ...]]:
    """Return seconds, jobs, megabytes, descriptors and threads of a process, at regular intervals."""
    rows, started = [], time.monotonic()
    for _ in range(count):
        time.sleep(every_s)
        if process.poll() is not None:
            break
        proc = Path(f"/proc/{process.pid}")
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
        results = folder / "out" / "results.jsonl"
        jobs = results.read_bytes().count(b"\n") if results.exists() else 0
        used = int(status["VmRSS"].split()[0]) / 1024
        opened, threads = len(os.listdir(proc / "fd")), int(status["Threads"])
        rows.append((time.monotonic() - started, jobs, used, opened, threads))
    return rows


if __name__ == "__main__":
    sys.exit(main())
