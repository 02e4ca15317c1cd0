"""Speed and memory of loading YAML as validated cases, compared with PyYAML's C loader returning plain dicts."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import generate
import harness
from harness import Goal, Measurement, Options, Pair, Work
from loading import load_list

SIZES, QUICK_SIZES = (10_000,), (1_000,)
SPEED = Goal("ratio", "≥", 0.7)
VARIANTS: dict[str, generate.Shape] = {"strings": generate.text, "arrays of messages": generate.messages}


def floor_as_called(path: str) -> Callable[[], Any]:
    """Load with PyYAML's defaults."""
    import yaml  # late: our side does not need it

    def work() -> Any:
        with open(path, "rb") as stream:
            return yaml.load(stream, Loader=yaml.CSafeLoader)["evalcases"]

    return work


def floor_without_collector(path: str) -> Callable[[], Any]:
    """The same with the garbage collector off, as in our loader."""
    work = floor_as_called(path)
    gc.disable()
    return work


def measurements(options: Options) -> Iterator[Measurement]:
    """Measure both ways of writing a case at every size."""
    for cases in options.sizes(SIZES, QUICK_SIZES):
        for name, shape in VARIANTS.items():
            yield from by_shape(name, shape, cases, options.rounds_for(cases))


def by_shape(name: str, shape: generate.Shape, cases: int, rounds: int) -> Iterable[Measurement]:
    """Compare one way of writing a case with both floors."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(generate.write_yaml(Path(folder, "cases.yaml"), shape, cases))
        works = {
            "ours": Work(load_list, (path,)),
            "as called": Work(floor_as_called, (path,)),
            "without collector": Work(floor_without_collector, (path,)),
        }
        samples = harness.interleaved(works, rounds, cases)
    title = f"{cases:,} cases, {name}"
    called = Pair("load_yaml", title, samples["ours"], samples["as called"], "PyYAML's CSafeLoader as called")
    strict = Pair(
        "load_yaml",
        f"{title}, strict floor",
        samples["ours"],
        samples["without collector"],
        "PyYAML's CSafeLoader, collector off",
    )
    return [called.speed(SPEED), strict.speed(SPEED), called.memory()]


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
