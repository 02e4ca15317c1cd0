"""Build the record of a job from typed values."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from agentv.engine.job.answer import Answer
from agentv.engine.scoring.grading import Grade
from agentv.model.job import Job
from agentv.model.message import message_to_data
from agentv.model.response import TargetFailure
from agentv.model.result import SCHEMA_VERSION, ErrorInfo, EvaluatorResult, Result


def now() -> str:
    """Return the current time as records have it: UTC, with milliseconds."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{_date_and_time(seconds)}.{nanoseconds // 1_000_000:03d}Z"


@lru_cache(maxsize=1)
def _date_and_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class JobOutcome(msgspec.Struct, frozen=True, gc=False):
    """How a job ended. `text` is the answer after its transform, `messages` is what the record keeps of it."""

    answer: Answer
    grade: Grade
    results: tuple[EvaluatorResult, ...] = ()
    text: str | None = None
    messages: tuple[dict[str, Any], ...] = ()


def failed(answer: Answer, failure: TargetFailure) -> JobOutcome:
    """Return the outcome of a job without an answer, with what was said before the failure."""
    error = ErrorInfo(failure.error_class, failure.message, failure.stage)
    said = answer.response.messages if answer.response is not None else ()
    return JobOutcome(answer, Grade("error", error=error), messages=tuple(map(message_to_data, said)))


def make_record(job: Job, outcome: JobOutcome, run_id: str) -> Result:
    """Return the record of a job."""
    answer, grade, results, case = outcome.answer, outcome.grade, outcome.results, job.case
    origin = case.place.origin
    if len(results) == 1:  # the common case: nothing to merge
        found = results[0]
        hits, misses = found.hits, found.misses
        reasoning = f"{found.name}: {found.reasoning}" if found.reasoning else None
    else:
        hits = tuple([hit for result in results for hit in result.hits])
        misses = tuple([miss for result in results for miss in result.misses])
        reasoning = " | ".join([f"{each.name}: {each.reasoning}" for each in results if each.reasoning]) or None
    return Result(
        schema_version=SCHEMA_VERSION,
        timestamp=now(),
        run_id=run_id,
        eval_id=case.id,
        dataset=origin.dataset,
        dataset_path=origin.path,
        conversation_id=case.conversation_id,
        target=job.target,
        prompt=job.prompt,
        trial=job.trial,
        status=grade.status,
        score=grade.score,
        verdict=grade.verdict,
        partial_score=grade.partial_score,
        hits=hits,
        misses=misses,
        reasoning=reasoning,
        candidate_answer=outcome.text,
        output_messages=outcome.messages,
        evaluator_results=results,
        error=grade.error,
        trace_summary=answer.trace,
        execution_metrics=answer.metrics,
        conversation=answer.conversation,
        file_changes=answer.file_changes,
        attempts=answer.attempts,
        cached=answer.cached,
        fingerprint=job.fingerprint or case.fingerprint,
        tags=case.tags,
        metadata=case.metadata or {},
    )
