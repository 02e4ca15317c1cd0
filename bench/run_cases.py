"""Cases per second with an instant target, compared with a bare loop that writes the same records."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import generate
import harness
from harness import Goal, Measurement, Options, Pair, Sample, Work
from load_jsonl import TextRow

SIZES, QUICK_SIZES = (220_000, 1_000_000), (22_000,)
START_UP_SHARE = 11
"""The time of a run with 1/11 of the cases is subtracted; the rest is beyond start-up."""

SPEED = Goal("ratio", "≥", 0.2)
MEMORY_MB = Goal("ours", "≤", 100)
FLOOR_IS = "a loop that decodes rows and writes the same records"
WANTED = "account"


def run(path: str) -> Callable[[], Any]:
    """A complete run: check, answer with the mock, score with one evaluator, write."""
    import agentv
    import agentv.api  # imported here, because imports are start-up

    folder = tempfile.mkdtemp(dir=Path(path).parent)

    def work() -> int:
        run = agentv.evaluate(path, {"provider": "mock"}, [{"type": "contains", "value": WANTED}], out=folder)
        return run.summary.targets["target"].scored

    return work


def floor(path: str) -> Callable[[], Any]:
    """The minimum: read a row, build and encode a record, write it."""
    from agentv.model.result import EvaluatorResult, ExecutionMetrics, Result

    decode, encode = msgspec.json.Decoder(TextRow).decode, msgspec.json.Encoder().encode
    handle, _ = tempfile.mkstemp(dir=Path(path).parent)

    def record(row: TextRow) -> Result:
        score = float(WANTED in row.input)
        verdict, text = ("pass", "contains") if score else ("fail", "does not contain")
        found = (f"{text} '{WANTED}'",)
        hits, misses = (found, ()) if score else ((), found)
        return Result(
            timestamp="2026-11-15T00:00:00.000Z",
            run_id="20261115-000000-0000",
            eval_id=row.id,
            dataset="cases",
            dataset_path=path,
            target="target",
            trial=1,
            status="ok",
            score=score,
            verdict=verdict,
            hits=hits,
            misses=misses,
            candidate_answer=row.input,
            evaluator_results=(
                EvaluatorResult(
                    name="contains", type="contains", score=score, weight=1.0, verdict=verdict, hits=hits, misses=misses
                ),
            ),
            execution_metrics=ExecutionMetrics(duration_ms=0.001),
            attempts=1,
            fingerprint="0123456789abcdef0123456789abcdef",
        )

    def work() -> int:
        count = 0
        with open(path, "rb") as lines:
            for line in lines:
                os.write(handle, encode(record(decode(line))) + b"\n")
                count += 1
        os.close(handle)
        return count

    return work


def measurements(options: Options) -> Iterator[Measurement]:
    """Speed and memory at each size."""
    for cases in options.sizes(SIZES, QUICK_SIZES):
        rounds = options.rounds or (1 if cases > 500_000 else options.rounds_for(cases))
        yield from by_size(cases, rounds)


def by_size(cases: int, rounds: int) -> Iterator[Measurement]:
    """Measure ours and the floor, each at full size and at 1/11 of it."""
    few = max(1, cases // START_UP_SHARE)
    with tempfile.TemporaryDirectory() as folder:
        small, large = (
            str(generate.write_jsonl(Path(folder, f"{name}.jsonl"), generate.text, count))
            for name, count in (("small", few), ("large", cases))
        )
        start_up = harness.interleaved({"ours": Work(run, (small,)), "floor": Work(floor, (small,))}, rounds, few)
        whole = harness.interleaved({"ours": Work(run, (large,)), "floor": Work(floor, (large,))}, rounds, cases)
    ours, least = (
        [beyond(more, less) for more, less in zip(whole[name], start_up[name], strict=True)]
        for name in ("ours", "floor")
    )
    full = cases in SIZES
    pair = Pair("run_cases", f"{cases:,} cases, beyond start-up", ours, least, FLOOR_IS)
    yield pair.speed(SPEED if full else None)
    yield Pair("run_cases", f"{cases:,} cases", ours, least, FLOOR_IS).memory(MEMORY_MB if full else None)


def beyond(whole: Sample, start_up: Sample) -> Sample:
    """The duration of a run beyond its start-up; the whole duration if the difference is not positive."""
    seconds = whole.seconds - start_up.seconds
    if seconds <= 0:
        return whole
    return Sample(seconds, whole.count - start_up.count, whole.peak_mb)


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
