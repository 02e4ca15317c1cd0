"""The answer to a job, wherever it comes from: a call, a conversation, an earlier run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from agentv.engine.job.request import Question
from agentv.model.case import Turn
from agentv.model.message import Message, tool_calls_in
from agentv.model.response import Response, TargetFailure
from agentv.model.result import ConversationSummary, EvaluatorResult, ExecutionMetrics, TraceSummary


def summarise_trace(messages: Sequence[Message], errors: int = 0) -> TraceSummary | None:
    """The tool calls of an answer by name, `errors` of which failed; None when it made none."""
    if _is_one_text(messages) or not any(message.tool_calls for message in messages):
        return None
    counts = Counter(call.tool for call in tool_calls_in(messages))
    names = tuple(sorted(counts))
    return TraceSummary(sum(counts.values()), names, {name: counts[name] for name in names}, errors)


def tool_durations(messages: Sequence[Message]) -> dict[str, list[float]]:
    """How long each call of each tool took, as far as the target said so, in milliseconds."""
    durations: dict[str, list[float]] = {}
    if _is_one_text(messages):
        return durations
    for call in tool_calls_in(messages):
        if call.duration_ms is not None:
            durations.setdefault(call.tool, []).append(call.duration_ms)
    return durations


def _is_one_text(messages: Sequence[Message]) -> bool:
    """As most answers are; they need no second look."""
    return len(messages) == 1 and not messages[0].tool_calls


_ENDED_NORMALLY = frozenset({"stop", "tool_calls", "end_turn"})
_NOTHING_KEPT: dict[str, EvaluatorResult] = {}


class Reply(msgspec.Struct, frozen=True, gc=False):
    """One reply of the target in a conversation, and the turn of the case that it answers, if it was one."""

    question: Question
    response: Response
    turn: Turn | None = None


class Answer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was answered, or why there is no answer: then `response` is what was said before the failure.

    `text` is the answer after its transform, where that is known already; `kept` are evaluator results that still hold.
    """

    request: Question
    response: Response | None
    failure: TargetFailure | None = None
    attempts: int | None = 1
    cached: bool = False
    metrics: ExecutionMetrics | None = None
    trace: TraceSummary | None = None
    has_trace: bool = True
    text: str | None = None
    replies: tuple[Reply, ...] = ()
    conversation: ConversationSummary | None = None
    file_changes: str | None = None
    kept: dict[str, EvaluatorResult] = _NOTHING_KEPT


def answer_to(request: Question, response: Response, attempts: int) -> Answer:
    """Return the answer of one call."""
    return Answer(
        request=request,
        response=response,
        attempts=attempts,
        cached=response.cached,
        metrics=metrics_of(response),
        trace=summarise_trace(response.messages, response.tool_errors),
    )


def metrics_of(response: Response) -> ExecutionMetrics:
    """Return what an answer used, as far as its target said so."""
    stop_reason = None if response.stop_reason in _ENDED_NORMALLY else response.stop_reason
    durations = tool_durations(response.messages)
    return ExecutionMetrics(
        response.usage, response.cost_usd, response.duration_ms, durations, stop_reason, response.logprobs
    )
