"""How long it takes to see which jobs of a killed run are done, beside a bare loop over the lines of its records."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
from harness import Measurement, Options, Pair, Work

SIZES, QUICK_SIZES = (200_000,), (10_000,)
FLOOR_IS = "a loop over the lines"


def scan(path: str) -> Callable[[], Any]:
    """What `--resume` does before its first call: the keys of what is done, and the figures so far."""
    from agentv.results.reading import read_run
    from agentv.results.scan import scan as done_jobs
    from agentv.results.summary import SummaryBuilder

    def work() -> int:
        done = done_jobs(path)
        SummaryBuilder("r").add_all(read_run(path))
        return len(done)

    return work


def floor(path: str) -> Callable[[], Any]:
    """The lines, counted."""

    def work() -> int:
        with open(path, "rb") as lines:
            return sum(1 for _ in lines)

    return work


def measurements(options: Options) -> Iterator[Measurement]:
    """Speed and memory at each size."""
    for records in options.sizes(SIZES, QUICK_SIZES):
        with tempfile.TemporaryDirectory() as folder:
            path = str(write_records(Path(folder, "results.jsonl"), records))
            works = {"ours": Work(scan, (path,)), "floor": Work(floor, (path,))}
            samples = harness.interleaved(works, options.rounds_for(records), records)
        pair = Pair("resume_scan", f"{records:,} records", samples["ours"], samples["floor"], FLOOR_IS)
        yield pair.speed()
        yield pair.memory()


def write_records(path: Path, records: int) -> Path:
    """Records of about the size that runs have."""
    from agentv.model.result import Result
    from agentv.results.record import encode_record

    with path.open("wb") as stream:
        for number in range(records):
            result = Result(
                timestamp="2026-11-15T00:00:00.000Z",
                run_id="20261115-000000-0000",
                eval_id=f"case-{number:07d}",
                dataset="cases",
                dataset_path="evals/cases.jsonl",
                target="default",
                trial=1,
                status="ok",
                score=1.0,
                verdict="pass",
                candidate_answer="An answer of some length, as they come. " * 5,
                fingerprint="0123456789abcdef0123456789abcdef",
            )
            stream.write(encode_record(result))
    return path


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
