"""Run under bad conditions, and check that no result is lost or wrong and that messages are clear.

    python bench/siege/conditions.py
    python bench/siege/conditions.py --only full_disk,two_processes

Prints a Markdown table. The exit code is 1 if a condition was not handled; conditions that this system cannot create
are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapes import SHAPES, Project, Shape, project

from harness import environment

HUGE = "def answer(prompt):\n    return 'yes ' + 'x' * 20_000_000\n"


class Skipped(Exception):
    """The system cannot create this condition."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CONDITIONS), help="comma-separated")
    rows, failed = ["| condition | what happened | result |", "|---|---|---|"], False
    for name in parser.parse_args().only.split(","):
        try:
            with tempfile.TemporaryDirectory() as folder:
                what, result = CONDITIONS[name](Path(folder)), "as it must be"
        except Skipped as reason:
            what, result = str(reason), "skipped"
        except AssertionError as error:
            what, result, failed = f"{error}".replace("\n", " ")[:300], "**wrong**", True
        rows.append(f"| {name.replace('_', ' ')} | {what} | {result} |")
    print("\n".join(rows))
    print(f"conditions: {len(rows) - 2} tried, {'at least one wrong' if failed else 'none wrong'}")
    return 1 if failed else 0


def run(made: Project, *prefix: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*prefix, *made.command]
    return subprocess.run(command, cwd=made.folder, env=environment(), capture_output=True, text=True, **options)


def complete(made: Project) -> int:
    """Check that each job has one good record and that the folder is undamaged; return the number of records."""
    records = [json.loads(line) for line in (made.folder / "out" / "results.jsonl").open()]
    assert len({(each["eval_id"], each["trial"]) for each in records}) == len(records) == made.shape.jobs
    assert all(each["status"] == "ok" and each["score"] == 1.0 for each in records), "wrong scores"
    check = [sys.executable, "-m", "agentv", "runs", "check", "out"]
    checked = subprocess.run(check, cwd=made.folder, env=environment(), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return len(records)


def refused(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    assert ended.returncode == 2, (ended.returncode, ended.stderr)
    assert "Traceback" not in ended.stderr, ended.stderr
    assert all(word in ended.stderr for word in words), ended.stderr


def full_disk(folder: Path) -> str:
    """Run on a small tmpfs until it is full; then resume with room."""
    with project(folder, Shape(cases=300), "local") as made:
        script = (
            'mkdir out && mount -t tmpfs -o size=160k none out || exit 77; "$@"; code=$?; cp -r out saved; exit $code'
        )
        ended = run(made, "unshare", "-rm", "sh", "-c", script, "sh")
        if ended.returncode in (1, 77) and "No space" not in ended.stderr:
            raise Skipped("no file system can be mounted here")
        refused(ended, "No space left on device", "--resume")
        shutil.rmtree(folder / "out")
        shutil.copytree(folder / "saved", folder / "out")
        before = (folder / "out" / "results.jsonl").read_bytes().count(b"\n")
        assert run(made).returncode == 0
        return f"stopped with {before} records, resumed to {complete(made)}"


def read_only_folder(folder: Path) -> str:
    """Write to a folder that is mounted read-only."""
    with project(folder, SHAPES["function"], "local") as made:
        script = 'mkdir -p out && mount -t tmpfs -o ro none out || exit 77; exec "$@"'
        ended = run(made, "unshare", "-rm", "sh", "-c", script, "sh")
        if ended.returncode in (1, 77):
            raise Skipped("no file system can be mounted here")
        refused(ended, "Read-only file system")
        assert made.paid() == 0
        return "refused before the first call"


def slow_disk(folder: Path) -> str:
    """Make every sync take 300 ms."""
    with project(folder, SHAPES["function"], "local") as made:
        slow = "import os, time; os.fdatasync = lambda f, real=os.fdatasync: (time.sleep(0.3), real(f))"
        (folder / "sitecustomize.py").write_text(slow)
        started = time.monotonic()
        ended = subprocess.run(made.command, cwd=folder, env={**environment(), "PYTHONPATH": str(folder)}, check=False)
        assert ended.returncode == 0
        return f"{complete(made)} records in {time.monotonic() - started:.1f} s"


def few_descriptors(folder: Path) -> str:
    """Run commands with 64 descriptors."""
    with project(folder, SHAPES["command"], "local") as made:
        ended = run(made, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
        assert ended.returncode == 0, ended.stderr
        return f"{complete(made)} records with 64 descriptors"


def huge_answers(folder: Path) -> str:
    """Record answers of 20 MB."""
    with project(folder, Shape(cases=6), "local") as made:
        (folder / "agent.py").write_text(HUGE)
        assert run(made).returncode == 0
        return f"{complete(made)} records, {(folder / 'out' / 'results.jsonl').stat().st_size / 1e6:.0f} MB"


def two_processes(folder: Path) -> str:
    """Start a second process in the same folder, also after its lock file was removed."""
    with project(folder, Shape(cases=3_000), "local") as made:
        first = subprocess.Popen(made.command, cwd=folder, env=environment())
        while not (folder / "out" / "results.jsonl").exists():
            time.sleep(0.005)
        refused(run(made), "The run folder is in use")
        (folder / "out" / ".lock").unlink()
        refused(run(made), "The run folder is in use")
        assert first.wait(120) == 0
        return f"second process refused twice, {complete(made)} records"


def reading_while_writing(folder: Path) -> str:
    """Report, list and compare a run while it is written."""
    with project(folder, Shape(cases=3_000), "local") as made:
        first = subprocess.Popen(made.command, cwd=folder, env=environment())
        while not (folder / "out" / "results.jsonl").exists():
            time.sleep(0.005)
        reads = 0
        for arguments in (
            ["runs", "--in", "."],
            ["report", "out", "r.html"],
            ["compare", "out", "out"],
            ["runs", "check", "out"],
        ):
            command = [sys.executable, "-m", "agentv", *arguments]
            read = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
            assert "Traceback" not in read.stderr and read.returncode in (0, 2, 5), (arguments, read.stderr)
            reads += first.poll() is None
        assert first.wait(120) == 0
        return f"{reads} commands read it meanwhile, {complete(made)} records"


def clock_jumps(folder: Path) -> str:
    """Move the wall clock by a day, forwards and backwards, with every call."""
    with project(folder, SHAPES["function"], "local") as made:
        jump = "import itertools, time\n\nnumbers, real = itertools.count(), time.time\n"
        jump += "time.time = lambda: real() + 86400 * (-1) ** next(numbers)\n"
        (folder / "agent.py").write_text(jump + (folder / "agent.py").read_text())
        assert run(made).returncode == 0
        return f"{complete(made)} records"


def deleted_folder(folder: Path) -> str:
    """Delete the run folder during the run."""
    with project(folder, Shape(cases=4_000), "local") as made:
        first = subprocess.Popen(made.command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
        while not (folder / "out" / "results.jsonl").exists() or not made.paid():
            time.sleep(0.005)
        calls, started = made.paid(), time.monotonic()
        shutil.rmtree(folder / "out", ignore_errors=True)
        _, errors = first.communicate(timeout=120)
        assert first.returncode == 2 and "deleted" in errors, (first.returncode, errors)
        return f"stopped after {time.monotonic() - started:.1f} s and {made.paid() - calls} more calls of 4,000"


CONDITIONS: dict[str, Callable[[Path], str]] = {
    function.__name__: function
    for function in (
        full_disk, slow_disk, read_only_folder, deleted_folder, few_descriptors, huge_answers,
        two_processes, reading_while_writing, clock_jumps,
    )
}  # fmt: skip

if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
