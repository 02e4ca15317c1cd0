"""A result of an earlier run as an answer: ours and AgentV's, and of a conversation the reply to one turn."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import msgspec

from agentv.model.message import Message
from agentv.model.response import Request, Response, TargetFailure, answer, content_text
from agentv.model.result import ExecutionMetrics, TokenUsage
from agentv.targets.answers import response_from_object, response_from_value

USER = "user:"
"""What the ids begin with under which simulated users are asked."""

_MARKS = {"goal_met": "[[GOAL MET]]", "gave_up": "[[GIVE UP]]"}


class RecordedResult(msgspec.Struct, frozen=True, gc=False):
    """What a result says of the answer, in our words and in AgentV's."""

    candidate_answer: Any = None
    answer: Any = None
    text: Any = None
    output: Any = None
    output_messages: Any = None
    execution_metrics: ExecutionMetrics | None = None
    trace_summary: dict[str, Any] | None = None
    conversation: dict[str, Any] | None = None
    error: Any = None


def said_by_user(request: Request) -> tuple[str, str, str] | None:
    """Case, target and prompt of the job for which a simulated user is asked; None for any other request."""
    if not request.case.id.startswith(USER):
        return None
    target, _, prompt = (getattr(request, "prompt_id", None) or "").partition("/")
    return request.case.id.removeprefix(USER), target, prompt


def reply_in(line: RecordedResult, request: Request) -> Response:
    """The answer in a result. Of a conversation: the reply to this turn, or what the simulated user said in it."""
    response = _whole(line, request.case.id)
    if line.conversation is None:
        return response
    if request.case.id.startswith(USER):
        return answer(_next_of_user(response.messages, line.conversation, getattr(request, "said", 0)))
    return _reply(response, request.case.id, getattr(request, "turn", 0))


def _reply(whole: Response, id: str, turn: int) -> Response:
    replies: list[tuple[Message, ...]] = []
    for is_user, messages in groupby(whole.messages, lambda message: message.role == "user"):
        if not is_user:
            replies.append(tuple(messages))
    if turn >= len(replies):
        raise TargetFailure("invalid_response", f"The earlier run has no reply to '{id}' in turn {turn + 1}")
    if turn == 0:
        return msgspec.structs.replace(whole, messages=replies[0])
    # What the whole took is told by the first reply, so that the sum is what it was.
    usage = None if whole.usage is None else TokenUsage(0, 0)
    return Response(
        messages=replies[turn], usage=usage, cost_usd=None if whole.cost_usd is None else 0.0, duration_ms=0.0
    )


def _next_of_user(messages: tuple[Message, ...], conversation: dict[str, Any], said: int) -> str:
    """What the user said after so many messages; the mark that ended it is not among the messages, and is put back."""
    mark = _MARKS.get(str(conversation.get("ended")), _MARKS["gave_up"])
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if said >= len(places):
        return mark
    text = content_text(messages[places[said]].content)
    return f"{text}\n{mark}" if places[said] == len(messages) - 1 else text


def _whole(line: RecordedResult, id: str) -> Response:
    said = line.output_messages or (line.output if isinstance(line.output, list) else None)
    texts = (line.candidate_answer, line.answer, line.text, line.output)
    text = next((text for text in texts if text is not None), None)
    stage = line.error.get("stage") if isinstance(line.error, dict) else "target"
    if (line.error is not None and stage not in ("evaluator", "teardown")) or (not said and text is None):
        why = line.error.get("message") if isinstance(line.error, dict) else line.error
        told = f"has an error instead of an answer to '{id}': {why}" if why else f"has no answer to '{id}'"
        raise TargetFailure("invalid_response", f"The earlier run {told}")
    response = response_from_object({"output_messages": said}) if said else response_from_value(text)
    metrics = line.execution_metrics or _metrics(line.trace_summary)
    return msgspec.structs.replace(
        response, usage=metrics.token_usage, cost_usd=metrics.cost_usd, duration_ms=metrics.duration_ms
    )


def _metrics(summary: dict[str, Any] | None) -> ExecutionMetrics:
    """AgentV 2.x keeps the metrics in its trace summary."""
    known = {key: (summary or {}).get(key) for key in ("token_usage", "cost_usd", "duration_ms")}
    try:
        return msgspec.convert(known, ExecutionMetrics)
    except msgspec.ValidationError:
        return ExecutionMetrics()
