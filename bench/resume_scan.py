"""Time to find the finished jobs of a killed run, compared with a bare msgspec scan of its records."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import harness
from harness import Goal, Measurement, Options, Pair, Work

SIZES, QUICK_SIZES = (100_000, 1_000_000), (10_000,)
FLOOR_IS = "msgspec structs of the keys, in a set"
SPEED = Goal("ratio", "≥", 1 / 1.5)


class Keys(msgspec.Struct):
    dataset_path: str
    eval_id: str
    target: str
    trial: int
    status: str
    prompt: str | None = None


def scan(path: str) -> Callable[[], Any]:
    """Read the finished jobs as hashes of their keys."""
    from agentv.runs.job_index import DoneJobs

    return lambda: len(DoneJobs.read(Path(path)))


def take_up(path: str) -> Callable[[], Any]:
    """Everything `--resume` reads before its first call: the finished jobs and the figures so far."""
    from agentv.runs.job_index import DoneJobs
    from agentv.runs.store import RunStore
    from agentv.runs.summary import SummaryBuilder

    def work() -> int:
        done = DoneJobs.read(Path(path))
        SummaryBuilder("r").add_all(RunStore.open(path).records())
        return len(done)

    return work


def floor(path: str) -> Callable[[], Any]:
    """Decode each line and keep its key."""
    decode = msgspec.json.Decoder(Keys).decode

    def work() -> int:
        done = set()
        with open(path, "rb") as lines:
            for line in lines:
                found = decode(line)
                done.add((found.dataset_path, found.eval_id, found.target, found.prompt, found.trial))
        return len(done)

    return work


def measurements(options: Options) -> Iterator[Measurement]:
    """Speed and memory at each size."""
    for records in options.sizes(SIZES, QUICK_SIZES):
        with tempfile.TemporaryDirectory() as folder:
            path = str(write_records(Path(folder, "results.jsonl"), records))
            works = {"ours": Work(scan, (path,)), "whole": Work(take_up, (path,)), "floor": Work(floor, (path,))}
            samples = harness.interleaved(works, options.rounds_for(records), records)
        pair = Pair("resume_scan", f"{records:,} records", samples["ours"], samples["floor"], FLOOR_IS)
        yield pair.speed(SPEED if records in SIZES else None)
        yield pair.memory()
        whole = Pair("resume_scan", f"{records:,} records, summed up too", samples["whole"], samples["floor"], FLOOR_IS)
        yield whole.speed()


def write_records(path: Path, records: int) -> Path:
    """Write records of a realistic size."""
    from agentv.model.result import Result
    from agentv.runs.record import encode_record

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
