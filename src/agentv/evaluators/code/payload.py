"""The input of code judges, under the names of AgentV (TypeScript) 2.x and 4.x.

The judging processes import this module, so its imports must stay small.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.model.evaluator import EvaluatorFailure
from agentv.model.job import Judgement

_NAMES = (
    *("question", "expected_outcome", "expected_messages", "reference_answer", "candidate_answer", "output_messages"),
    *("guideline_files", "input_files", "input_messages", "context"),
    *("trace_summary", "execution_metrics", "workspace_path", "file_changes"),
)
FIGURES = ("token_usage", "cost_usd", "duration_ms")


def payload(judgement: Judgement, config: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a judge that is a function."""
    fields = {name: getattr(judgement, name) for name in _NAMES}
    return {**fields, "metadata": judgement.case.metadata, "config": config}


def program_input(judgement: Judgement, config: dict[str, Any], **more: Any) -> bytes:
    """Return the standard input of a program. Raises EvaluatorFailure for values that JSON cannot represent."""
    return encoded(program_payload(payload(judgement, config)) | more)


def encoded(data: dict[str, Any]) -> bytes:
    """Return the standard input of a program with this data. Raises EvaluatorFailure."""
    try:
        return msgspec.json.encode(data)
    except (TypeError, ValueError) as error:
        raise EvaluatorFailure(f"Cannot encode the answer as JSON: {error}") from None


def program_payload(data: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a program: the names of 2.x and those of 4.x, as its SDKs require them.

    `output` is a text, as it has been since 4.38. Unknown figures are null at the top level, and missing elsewhere.
    """
    metrics = msgspec.to_builtins(data["execution_metrics"]) or {}
    figures = {name: metrics[name] for name in FIGURES if metrics.get(name) is not None}
    messages = json_messages(data["output_messages"])
    summary = _summary(data["trace_summary"], metrics.get("tool_durations"), messages)
    return {
        **data,
        "trace_summary": None if summary is None else summary | figures,
        "criteria": data["expected_outcome"],
        "input": json_messages(data["input_messages"]),
        "output": data["candidate_answer"],
        "answer": data["candidate_answer"],
        "expected_output": json_messages(data["expected_messages"]),
        "messages": messages,
        "tool_calls": [call for message in messages for call in message.get("tool_calls", ())],
        "trace": None
        if summary is None
        else summary | figures | {"messages": messages, "events": list(_events(messages))},
        **dict.fromkeys((*FIGURES, "start_time", "end_time")),
        **figures,
        "metadata": data["metadata"] or None,
        "config": data["config"] or None,
    }


def _summary(trace: Any, durations: Any, messages: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the figures of the tool calls. 4.x has other names for them than 2.x."""
    if trace is None:
        return None
    summary: dict[str, Any] = msgspec.to_builtins(trace)
    calls = sum(message["role"] == "assistant" for message in messages)
    additions = {"tool_calls": summary["tool_calls_by_name"], "llm_call_count": calls}
    return {**summary, **additions, **({"tool_durations": durations} if durations else {})}


def json_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages whose content is a text, an object or a list of objects; other data becomes JSON text."""
    return [
        message
        if _is_content(message.get("content", ""))
        else {**message, "content": msgspec.json.encode(message["content"]).decode()}
        for message in messages
    ]


def _is_content(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, dict) for part in content)
    return isinstance(content, str | dict)


def _events(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield an event for each message and each tool call, in order."""
    ordinal = 0
    for message in messages:
        yield _event(ordinal, "message", message={key: message[key] for key in ("role", "content") if key in message})
        ordinal += 1
        for call in message.get("tool_calls", ()):
            tool = {"name": call["tool"], **{key: call[key] for key in ("input", "output") if key in call}}
            took = {"duration_ms": call["duration_ms"]} if "duration_ms" in call else {}
            yield _event(ordinal, "tool_call", tool=tool, **took)
            ordinal += 1


def _event(ordinal: int, type_: str, **more: Any) -> dict[str, Any]:
    return {"event_id": f"event-{ordinal + 1}", "ordinal": ordinal, "type": type_, **more}
