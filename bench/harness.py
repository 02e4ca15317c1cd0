"""Shared by the benchmarks: timing in child processes, floors, JSON lines and tables."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parent / "packages" / "agentv-testing" / "src"))  # the model server of some benchmarks

Prepare = Callable[..., Callable[[], Any]]
"""Imports what the work needs and returns the work. Only the work is timed; its result is counted."""


@dataclass(frozen=True)
class Work:
    """A top-level `Prepare` function and its arguments: enough to run it in its own process."""

    prepare: Prepare
    args: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The command of the child process that runs this once and prints its sample."""
        script = Path(self.prepare.__code__.co_filename).stem
        return [sys.executable, str(BENCH / "harness.py"), f"{script}:{self.prepare.__name__}", *self.args]


@dataclass(frozen=True)
class Sample:
    """One run: its duration, its number of cases and the peak memory of its process."""

    seconds: float
    count: int
    peak_mb: float


@dataclass(frozen=True)
class Goal:
    """A bound on our figure or on its ratio to the floor."""

    of: Literal["ours", "ratio"]
    sense: Literal["≥", "≤"]
    bound: float

    def text(self, unit: str) -> str:
        """The goal in words, for a table."""
        return f"{self.sense} {number(self.bound)} {unit if self.of == 'ours' else 'x floor'}"

    def reached(self, ours: float, ratio: float) -> bool:
        """Whether a measurement meets the goal."""
        figure = ours if self.of == "ours" else ratio
        return figure >= self.bound if self.sense == "≥" else figure <= self.bound


@dataclass(frozen=True)
class Measurement:
    """Our figure, the floor from the same run, and their ratio."""

    bench: str
    name: str
    unit: str
    ours: float
    floor: float
    floor_is: str
    goal: Goal | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Ours ÷ floor, whatever the unit."""
        return self.ours / self.floor

    def to_data(self) -> dict[str, Any]:
        """The object printed on one line."""
        return {
            "bench": self.bench,
            "name": self.name,
            "unit": self.unit,
            "ours": round(self.ours, 4),
            "floor": round(self.floor, 4),
            "ratio": round(self.ratio, 3),
            "floor_is": self.floor_is,
            "goal": self.goal and self.goal.text(self.unit),
            "reached": self.goal and self.goal.reached(self.ours, self.ratio),
            **self.details,
            "python": platform.python_version(),
        }


@dataclass(frozen=True)
class Pair:
    """Our samples and the floor's, from the same rounds."""

    bench: str
    name: str
    ours: Sequence[Sample]
    floor: Sequence[Sample]
    floor_is: str

    def speed(self, goal: Goal | None = None) -> Measurement:
        """Cases per second of the best round, because other load on the machine only makes a round slower."""
        ours, floor = _rates(self.ours), _rates(self.floor)
        details = {
            "cases": self.ours[0].count,
            "rounds": len(ours),
            "statistic": "best",
            "ours_median": round(median(ours), 2),
            "floor_median": round(median(floor), 2),
            "ratio_median": round(median(mine / least for mine, least in zip(ours, floor, strict=True)), 3),
        }
        name = f"{self.name}, speed"
        return Measurement(self.bench, name, "cases/s", max(ours), max(floor), self.floor_is, goal, details)

    def memory(self, goal: Goal | None = None) -> Measurement:
        """Peak memory of the whole process, including the interpreter."""
        ours, floor = (median(sample.peak_mb for sample in samples) for samples in (self.ours, self.floor))
        details = {"cases": self.ours[0].count, "rounds": len(self.ours), "statistic": "median"}
        return Measurement(self.bench, f"{self.name}, peak memory", "MB", ours, floor, self.floor_is, goal, details)


def _rates(samples: Sequence[Sample]) -> list[float]:
    return [sample.count / sample.seconds for sample in samples]


@dataclass(frozen=True)
class Options:
    """Sizes and rounds. None means the script's default."""

    quick: bool = False
    cases: tuple[int, ...] | None = None
    rounds: int | None = None

    def sizes(self, full: tuple[int, ...], quick: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of cases to measure."""
        return self.cases or (quick if self.quick else full)

    def rounds_for(self, cases: int) -> int:
        """Many rounds if they are short and noisy, few if they are long."""
        if self.rounds is not None:
            return self.rounds
        return 3 if self.quick or cases > 100_000 else 5 if cases > 10_000 else 9


def interleaved(works: Mapping[str, Work], rounds: int, cases: int) -> dict[str, list[Sample]]:
    """Run every work once per round, each in its own process, in alternating order. All must return all cases."""
    samples: dict[str, list[Sample]] = {name: [] for name in works}
    for turn in range(rounds):
        for name in list(works)[:: -1 if turn % 2 else 1]:
            sample = in_child(works[name])
            if sample.count != cases:
                raise SystemExit(f"{name} gave {sample.count} cases instead of {cases}")
            samples[name].append(sample)
    return samples


def in_child(work: Work) -> Sample:
    """Run a work once in a new process, so that its memory can be measured."""
    done = subprocess.run(work.command(), env=environment(), stdout=subprocess.PIPE, check=True)
    return Sample(**json.loads(done.stdout))


def environment() -> dict[str, str]:
    """The environment of a child process; includes the source tree if agentv is not installed."""
    if importlib.util.find_spec("agentv") is not None:
        return dict(os.environ)
    paths = [str(BENCH.parent / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_child(name: str, args: Sequence[str]) -> None:
    """In the child process: prepare `script:function`, time it and print the sample."""
    script, function = name.split(":")
    work = getattr(importlib.import_module(script), function)(*args)
    start = time.perf_counter()
    outcome = work()
    seconds = time.perf_counter() - start
    count = outcome if isinstance(outcome, int) else len(outcome)
    print(json.dumps(asdict(Sample(seconds, count, peak_mb()))))


def peak_mb() -> float:
    """Peak memory of this process, in millions of bytes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource  # late: not available on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
    # On Linux, ru_maxrss includes the parent's memory at the time of the fork; VmHWM does not.
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


def main(description: str, measurements: Callable[[Options], Iterable[Measurement]]) -> None:
    """Run a script's command line: print one JSON line per measurement as it completes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--cases", type=int, nargs="+", metavar="N", help="numbers of cases (default: the script's)")
    parser.add_argument("--rounds", type=int, metavar="N", help="number of rounds (default: the script's)")
    given = parser.parse_args()
    options = Options(given.quick, tuple(given.cases) if given.cases else None, given.rounds)
    for measurement in measurements(options):
        print(json.dumps(measurement.to_data(), ensure_ascii=False), flush=True)


def table(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Format the printed objects as a Markdown table."""
    yield "| bench | measurement | ours | floor | ours ÷ floor | must reach | reached | floor is |"
    yield "|---|---|--:|--:|--:|---|---|---|"
    for line in lines:
        unit = line["unit"]
        reached = {None: "-", True: "yes", False: "no"}[line["reached"]]
        cells = (
            line["bench"],
            line["name"],
            f"{number(line['ours'])} {unit}",
            f"{number(line['floor'])} {unit}",
            f"{line['ratio']:.2f}",
            line["goal"] or "-",
            reached,
            line["floor_is"],
        )
        yield f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """Format a figure with only its significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    run_child(sys.argv[1], sys.argv[2:])
