"""The answer to a job, and the record made from it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from agentv.engine.job.request import CaseRequest
from agentv.engine.scoring.grades import Grade
from agentv.model.case import NO_DETAILS, Turn
from agentv.model.job import Job
from agentv.model.message import Message, message_to_data, tool_calls_in
from agentv.model.response import Response, TargetFailure
from agentv.model.result import (
    SCHEMA_VERSION,
    ConversationSummary,
    ErrorInfo,
    EvaluatorResult,
    ExecutionMetrics,
    Result,
    TraceSummary,
)
from agentv.settings.transform import TransformFailure


def summarise_trace(messages: Sequence[Message], errors: int = 0) -> TraceSummary | None:
    """Count the tool calls of an answer by name; `errors` of them failed. None if there are none."""
    counts = Counter(call.tool for call in tool_calls_in(messages))
    if not counts:
        return None
    names = tuple(sorted(counts))
    return TraceSummary(sum(counts.values()), names, {name: counts[name] for name in names}, errors)


def tool_durations(messages: Sequence[Message]) -> dict[str, list[float]]:
    """Return the durations of tool calls by tool, in milliseconds, if the target reports them."""
    durations: dict[str, list[float]] = {}
    for call in tool_calls_in(messages):
        if call.duration_ms is not None:
            durations.setdefault(call.tool, []).append(call.duration_ms)
    return durations


_ENDED_NORMALLY = frozenset({"stop", "tool_calls", "end_turn"})
_NOTHING_KEPT: dict[str, EvaluatorResult] = {}


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A reply of the target in a conversation, and the turn of the case it answers, if any."""

    request: CaseRequest
    response: Response
    turn: Turn | None = None


class Answer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The answer to a job, or the failure to get one; then `response` has the messages before the failure.

    `value` is the answer after its transform, if already known: text or data. `kept` are evaluator results that are
    still valid.
    """

    request: CaseRequest
    response: Response | None
    failure: TargetFailure | None = None
    attempts: int | None = 1
    cached: bool = False
    metrics: ExecutionMetrics | None = None
    trace: TraceSummary | None = None
    has_trace: bool = True
    value: Any = None
    replies: tuple[Reply, ...] = ()
    conversation: ConversationSummary | None = None
    file_changes: str | None = None
    kept: dict[str, EvaluatorResult] = _NOTHING_KEPT


def answer_to(request: CaseRequest, response: Response, attempts: int) -> Answer:
    """Return the answer of one call."""
    trace, metrics = usage_of(response)
    return Answer(
        request=request, response=response, attempts=attempts, cached=response.cached, metrics=metrics, trace=trace
    )


def usage_of(response: Response) -> tuple[TraceSummary | None, ExecutionMetrics]:
    """Return the tool calls of a response, and its usage, cost and durations as far as the target reports them."""
    messages, stop_reason = response.messages, response.stop_reason
    if len(messages) == 1 and not messages[0].tool_calls:
        trace, durations = None, {}
    else:
        trace, durations = summarise_trace(messages, response.tool_errors), tool_durations(messages)
    return trace, ExecutionMetrics(
        response.usage,
        response.cost_usd,
        response.duration_ms,
        durations,
        None if stop_reason in _ENDED_NORMALLY else stop_reason,
        response.logprobs,
        response.answered_by,
        response.provider_data,
        response.estimated_usd or None,
        response.trace_id,
    )


def now() -> str:
    """Return the current time as in records: UTC, with milliseconds."""
    return _timestamp(time.time_ns() // 1_000_000)


@lru_cache(maxsize=1)
def _timestamp(milliseconds: int) -> str:
    return f"{_second(milliseconds // 1_000)}.{milliseconds % 1_000:03d}Z"


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


class JobOutcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a job. `text` is the answer after its transform, `messages` are those stored in the record.

    `raw` is the answer before the transform, if that changed it or failed.
    """

    answer: Answer
    grade: Grade
    results: tuple[EvaluatorResult, ...] = ()
    text: str | None = None
    messages: tuple[dict[str, Any], ...] = ()
    raw: str | None = None


def failed(answer: Answer, failure: TargetFailure) -> JobOutcome:
    """Return the outcome of a job without an answer, with the messages before the failure."""
    error = ErrorInfo(failure.error_class, failure.message, failure.stage)
    messages = answer.response.messages if answer.response is not None else ()
    return JobOutcome(answer, Grade("error", error=error), messages=tuple(map(message_to_data, messages)))


def untransformed(answer: Answer, response: Response, error: TransformFailure) -> JobOutcome:
    """Return the outcome of a job whose answer its target's transform cannot handle; the answer is kept."""
    failure = TargetFailure("invalid_response", str(error), stage="evaluator")
    return msgspec.structs.replace(failed(answer, failure), raw=response.text)


def make_record(job: Job, outcome: JobOutcome, run_id: str) -> Result:
    """Return the record of a job."""
    answer, grade, results, case = outcome.answer, outcome.grade, outcome.results, job.case
    origin = case.place.origin
    if len(results) == 1:  # the common case: nothing to merge
        only_result = results[0]
        hits, misses = only_result.hits, only_result.misses
        reasoning = f"{only_result.name}: {only_result.reasoning}" if only_result.reasoning else None
    else:
        hits = tuple([hit for result in results for hit in result.hits])
        misses = tuple([miss for result in results for miss in result.misses])
        reasoning = " | ".join([f"{entry.name}: {entry.reasoning}" for entry in results if entry.reasoning]) or None
    record = Result(
        schema_version=SCHEMA_VERSION,
        timestamp=_timestamp(time.time_ns() // 1_000_000),
        run_id=run_id,
        eval_id=case.id,
        dataset=origin.dataset,
        dataset_path=origin.path,
        target=job.target,
        trial=job.trial,
        status=grade.status,
        score=grade.score,
        verdict=grade.verdict,
        candidate_answer=outcome.text,
        evaluator_results=results,
        execution_metrics=answer.metrics,
        fingerprint=job.fingerprint or case.fingerprint,
    )
    # Later, because CPython puts more than 15 keyword arguments into a dictionary, which takes four times as long.
    record = msgspec.structs.replace(record, hits=hits, misses=misses, attempts=answer.attempts)
    return _with_rare_fields(record, job, outcome, reasoning)


def _with_rare_fields(record: Result, job: Job, outcome: JobOutcome, reasoning: str | None) -> Result:
    """Return a record with the fields that few records have, which would take as long to set as the others."""
    answer, grade, case = outcome.answer, outcome.grade, job.case
    if answer.trace or answer.conversation or answer.file_changes is not None or answer.cached:
        record = msgspec.structs.replace(
            record,
            trace_summary=answer.trace,
            conversation=answer.conversation,
            file_changes=answer.file_changes,
            cached=answer.cached,
        )
    if case.conversation_id is not None or case.tags or case.metadata or case.details is not NO_DETAILS:
        record = msgspec.structs.replace(
            record,
            conversation_id=case.conversation_id,
            cluster=case.cluster,
            tags=case.tags,
            metadata=case.metadata or {},
        )
    if outcome.messages or outcome.raw is not None or reasoning or grade.error or job.prompt is not None or job.answer:
        earlier = None if job.answer is None else job.answer.record
        record = msgspec.structs.replace(
            record,
            prompt=job.prompt,
            partial_score=grade.partial_score,
            reasoning=reasoning,
            raw_answer=outcome.raw,
            output_messages=outcome.messages,
            error=grade.error,
            probability=None if earlier is None else earlier.probability,
        )
    return record
