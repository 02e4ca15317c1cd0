"""Runs for comparisons, written record by record."""

from agentv.model.result import ExecutionMetrics
from agentv.runs.record import encode_record
from made_results import failed, made
from made_results import judged as judged_by


def record(id, score, **known):
    """A result; an error if the score is None."""
    known = {"fingerprint": f"of {id}", **known}
    return failed(eval_id=str(id), **known) if score is None else made(eval_id=str(id), score=score, **known)


def judged(**scores):
    return tuple(judged_by(name, score) for name, score in scores.items())


def used(cost_usd, duration_ms):
    return ExecutionMetrics(cost_usd=cost_usd, duration_ms=duration_ms)


def write_run(path, *records):
    path.write_bytes(b"".join(map(encode_record, records)))
    return path


def write_scores(path, scores, **known):
    return write_run(path, *(record(f"case-{number}", score, **known) for number, score in enumerate(scores)))
