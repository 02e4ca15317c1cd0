"""Runs for comparisons, written record by record."""

import msgspec

from agentv.model.result import ErrorInfo, EvaluatorResult, ExecutionMetrics, Result
from agentv.results.record import encode_record

PLAIN = Result(
    timestamp="2026-01-02T03:04:05Z",
    run_id="r",
    eval_id="a",
    dataset="d",
    dataset_path="d.jsonl",
    target="t",
    trial=1,
    status="ok",
    score=1.0,
    verdict="pass",
)


def record(id, score, **known):
    """A result; None for a score is an error."""
    if score is None:
        known |= {"status": "error", "verdict": None, "error": ErrorInfo("timeout", "no answer", "target")}
    return msgspec.structs.replace(PLAIN, eval_id=str(id), score=score, **known)


def judged(**scores):
    return tuple(
        EvaluatorResult(name=name, type="contains", score=score, weight=1.0, verdict=None)
        for name, score in scores.items()
    )


def used(cost_usd, duration_ms):
    return ExecutionMetrics(cost_usd=cost_usd, duration_ms=duration_ms)


def write_run(path, *records):
    path.write_bytes(b"".join(map(encode_record, records)))
    return path


def write_scores(path, scores, **known):
    return write_run(path, *(record(f"case-{number}", score, **known) for number, score in enumerate(scores)))
