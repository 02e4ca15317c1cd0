"""Time and memory of the commands as their input grows tenfold. Exits with code 1 if one grows faster than its input.

By default, inputs have 1,000, 10,000 and 100,000 targets, evaluators, tags or results; with --full also 1,000,000. The
time is processor time, without that of the smallest input, so that start-up does not hide the growth.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import harness

SIZES = (1_000, 10_000, 100_000)
FULL = 1_000_000
SLACK = 1.6
"""A ratio per tenfold above ten times this is worse than linear. Machines are shared, and caches have sizes."""
ROUNDS = 3
SHORT_SECONDS = 1.5
NOISE_SECONDS = 0.15
NOISE_MB = 5.0
"""Smaller differences cannot be measured."""

TARGETS = "targets:\n  - {name: default, provider: mock, response: hi}\n"
ONE = [{"type": "contains", "value": "h"}]
EVAL = ("eval", "cases.jsonl", "--quiet", "--out")


@dataclass(frozen=True)
class Figure:
    """One command with one size of input: its processor time and its peak memory."""

    what: str
    command: str
    size: int
    seconds: float
    peak_mb: float


def main() -> int:
    """Measure all commands, print a Markdown table, and return 1 if a command is worse than linear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also one million")
    parser.add_argument("--sizes", metavar="N,N,…", help="other sizes, each ten times the one before")
    parser.add_argument("--only", choices=MEASURES, action="append", metavar="NAME", help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measurements of a short command")
    options = parser.parse_args()
    sizes = tuple(map(int, options.sizes.split(","))) if options.sizes else (*SIZES, *([FULL] if options.full else []))
    worse = []
    print("| input | command | size | s | MB | time per tenfold | memory per tenfold |\n|---|---|--:|--:|--:|--:|--:|")
    for name in options.only or MEASURES:
        for figures in measured(name, sizes, options.rounds):
            worse += list(printed(figures))
    for problem in worse:
        print(f"Worse than linear: {problem}", file=sys.stderr)
    return 1 if worse else 0


def measured(name: str, sizes: Sequence[int], rounds: int = ROUNDS) -> list[list[Figure]]:
    """Return the figures of each command with one kind of input, by size."""
    by_command: dict[str, list[Figure]] = {}
    for size in (1, *sizes):
        folder = Path(tempfile.mkdtemp(prefix="agentv-growth-"))
        try:
            (folder / ".agentv").mkdir()
            (folder / ".agentv" / "targets.yaml").write_text(TARGETS)
            for label, arguments in MEASURES[name](folder, size):
                figure = Figure(name, label, size, *used(arguments, folder, rounds))
                by_command.setdefault(label, []).append(figure)
        finally:
            shutil.rmtree(folder)
    return list(by_command.values())


def used(arguments: Sequence[str], folder: Path, most: int = ROUNDS) -> tuple[float, float]:
    """Run agentv, a short command several times; return the least processor time in seconds and peak memory in MB."""
    rounds = [used_once(arguments, folder)]
    while len(rounds) < most and rounds[0][0] < SHORT_SECONDS:
        if "--out" in arguments:
            shutil.rmtree(folder / arguments[-1])
        rounds.append(used_once(arguments, folder))
    return min(seconds for seconds, _ in rounds), min(peak for _, peak in rounds)


def used_once(arguments: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run agentv; return its processor time in seconds and its peak memory in MB."""
    command = [sys.executable, "-m", "agentv", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, env=harness.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{errors.decode(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def printed(figures: list[Figure]) -> Iterator[str]:
    """Print a row for each size, and yield what grew faster than its input."""
    start, *rest = figures
    before = None
    for figure in rest:
        ratios = ["", ""]
        if before is not None:
            seconds = [each.seconds - start.seconds for each in (before, figure)]
            memory = [each.peak_mb - start.peak_mb for each in (before, figure)]
            both = (("time", seconds, NOISE_SECONDS), ("memory", memory, NOISE_MB))
            for place, (unit, (small, large), noise) in enumerate(both):
                ratios[place] = f"{large / small:.1f}" if small > noise / 2 else "-"
                if large > SLACK * figure.size / before.size * max(small, noise):
                    yield f"{unit} of `{figure.command}` with {figure.size:,} {figure.what}: x {ratios[place]}"
        cells = [figure.what, f"`{figure.command}`", f"{figure.size:,}", f"{figure.seconds:.1f}"]
        print("| " + " | ".join([*cells, f"{figure.peak_mb:.0f}", *ratios]) + " |", flush=True)
        before = figure


Commands = Iterator[tuple[str, Sequence[str]]]


def write_cases(folder: Path, count: int, key: str = "tags", entries: Iterable[object] = ()) -> None:
    """Write a dataset with cases that the mock target answers; the first case has the entries as the value of `key`.

    Nothing large is kept in memory: the peak of a child process includes the memory of its parent when it starts.
    """
    case = {"expected_outcome": "It greets", "input": "Hello", "evaluators": ONE}
    case.pop(key, None)
    with (folder / "cases.jsonl").open("w") as stream:
        for number in range(count):
            stream.write(json.dumps({"id": f"case-{number:07d}", **case})[:-1] + f', "{key}": [')
            for place, entry in enumerate(entries):
                stream.write(("," if place else "") + json.dumps(entry))
            stream.write("]}\n")


def with_targets(folder: Path, count: int) -> Commands:
    """Measure a targets file with many entries."""
    entry = "  - {name: t%d, provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1', api_key: '${{ KEY_%d }}'}\n"
    with (folder / ".agentv" / "targets.yaml").open("w") as stream:
        stream.write(TARGETS)
        stream.writelines(entry % (number, number % 100) for number in range(count))
    (folder / ".env").write_text("".join(f"KEY_{number}=secret-number-{number}\n" for number in range(100)))
    write_cases(folder, 1)
    yield "targets", ("targets",)
    yield "eval", (*EVAL, "out")


def with_evaluators(folder: Path, count: int) -> Commands:
    """Measure a case with many evaluators."""
    write_cases(folder, 1, "evaluators", ({**ONE[0], "name": f"check-{number}"} for number in range(count)))
    yield "validate", ("validate", "cases.jsonl")
    yield "eval", (*EVAL, "out")
    yield "report", ("report", "out")
    yield "compare", ("compare", "out", "out", "--fail-on", "never")


def with_tags(folder: Path, count: int) -> Commands:
    """Measure a case with many tags."""
    write_cases(folder, 1, "tags", (f"tag-{number}" for number in range(count)))
    yield "eval", (*EVAL, "out")
    yield "report", ("report", "out")


def with_results(folder: Path, count: int) -> Commands:
    """Measure a dataset with many cases, and the runs that result from it."""
    write_cases(folder, count)
    yield "validate", ("validate", "cases.jsonl")
    yield "cases", ("cases", "cases.jsonl", "--quiet")
    yield "eval", (*EVAL, "before")
    used((*EVAL, "after"), folder)
    yield "report", ("report", "before")
    yield "compare", ("compare", "before", "after", "--fail-on", "never")
    yield "rescore", ("rescore", "before", "--quiet", "--out", "again")
    yield "runs", ("runs",)


MEASURES = {"targets": with_targets, "evaluators": with_evaluators, "tags": with_tags, "results": with_results}


if __name__ == "__main__":
    raise SystemExit(main())
