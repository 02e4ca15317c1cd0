"""The input of code judges, under the names of AgentV (TypeScript) 2.x and 4.x.

The judging processes import this module, so its imports must stay small.
"""

from collections import Counter
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
_FIGURES = ("token_usage", "cost_usd", "duration_ms")


def payload(judgement: Judgement, config: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a judge that is a function."""
    fields = {name: getattr(judgement, name) for name in _NAMES}
    return {**fields, "metadata": judgement.case.metadata, "config": config}


def program_input(judgement: Judgement, config: dict[str, Any], **more: Any) -> bytes:
    """Return the standard input of a program. Raises EvaluatorFailure for values that JSON cannot represent."""
    return _encoded(program_payload(payload(judgement, config)) | more)


def grader_input(judgement: Judgement, config: dict[str, Any], **more: Any) -> bytes:
    """Return the standard input of a code grader of AgentV (TypeScript) 4.x."""
    return _encoded(grader_payload(payload(judgement, config) | more))


def _encoded(data: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(data)
    except (TypeError, ValueError) as error:
        raise EvaluatorFailure(f"Cannot encode the answer as JSON: {error}") from None


def program_payload(data: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a program: the names of 2.x and those of 4.x, as its SDKs require them.

    `output` is a text, as it has been since 4.38. Unknown figures are null at the top level, and missing elsewhere.
    """
    metrics = msgspec.to_builtins(data["execution_metrics"]) or {}
    figures = {name: metrics[name] for name in _FIGURES if metrics.get(name) is not None}
    messages = _messages(data["output_messages"])
    summary = _summary(data["trace_summary"], metrics.get("tool_durations"), messages)
    return {
        **data,
        "trace_summary": None if summary is None else summary | figures,
        "criteria": data["expected_outcome"],
        "input": _messages(data["input_messages"]),
        "output": data["candidate_answer"],
        "answer": data["candidate_answer"],
        "expected_output": _messages(data["expected_messages"]),
        "messages": messages,
        "tool_calls": [call for message in messages for call in message.get("tool_calls", ())],
        "trace": None
        if summary is None
        else summary | figures | {"messages": messages, "events": list(_events(messages))},
        **dict.fromkeys((*_FIGURES, "start_time", "end_time")),
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


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def grader_payload(data: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a code grader of AgentV (TypeScript) 4.x, and none of the names that it has deprecated.

    The trace has the messages of the user too, and exists without tool calls. Keys are in snake case, as they are
    there, including those of the user's data.
    """
    metrics = msgspec.to_builtins(data["execution_metrics"]) or {}
    figures = {name: metrics[name] for name in _FIGURES if metrics.get(name) is not None}
    input_messages, output = _messages(data["input_messages"]), _messages(data["output_messages"])
    messages = _transcript(input_messages, output or [{"role": "assistant", "content": data["candidate_answer"]}])
    errors = 0 if data["trace_summary"] is None else msgspec.to_builtins(data["trace_summary"])["error_count"]
    summary = _call_summary(messages, errors)
    events = list(_grader_events(messages, data["candidate_answer"]))
    value: dict[str, Any] = _with_snake_case(
        {
            "criteria": data["expected_outcome"],
            "expected_output": list(_reference_messages(data["expected_messages"])),
            "output": data["candidate_answer"],
            "messages": messages,
            "input_files": data["input_files"],
            "input": input_messages,
            "metadata": data["metadata"] or None,
            "trace": {**summary, "messages": messages, "events": events, **figures},
            "trace_summary": summary,
            **dict.fromkeys((*_FIGURES, "start_time", "end_time")),
            **figures,
            "file_changes": data["file_changes"],
            "workspace_path": data["workspace_path"],
            "config": data["config"] or None,
        }
    )
    return value


def _reference_messages(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages of the reference. Of a list, AgentV keeps texts and objects; other values it drops."""
    for message in messages:
        content = message.get("content", "")
        if isinstance(content, list):
            parts = [{"type": "text", "value": part} if isinstance(part, str) else part for part in content]
            yield {**message, "content": [part for part in parts if isinstance(part, dict) and part.get("value") != ""]}
        elif isinstance(content, str | dict):
            yield message


def _transcript(input_messages: list[dict[str, Any]], output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of both sides. Output that has those of the user is already complete."""
    is_complete = any(message["role"] in ("user", "system") for message in output)
    return output if is_complete else [*input_messages, *output]


def _call_summary(messages: list[dict[str, Any]], errors: int) -> dict[str, Any]:
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    durations: dict[str, list[float]] = {}
    for call in calls:
        if "duration_ms" in call:
            durations.setdefault(call["tool"], []).append(call["duration_ms"])
    return {
        "event_count": len(calls),
        "tool_calls": dict(Counter(call["tool"] for call in calls)),
        "error_count": errors,
        **({"tool_durations": durations} if durations else {}),
        "llm_call_count": sum(message["role"] == "assistant" for message in messages),
    }


def _grader_events(messages: list[dict[str, Any]], answer: str) -> Iterator[dict[str, Any]]:
    """Yield an event for each message, each tool call, its result, and the final response."""
    events = [event for index, message in enumerate(messages) for event in _events_of(index, message)]
    last = next((index for index in reversed(range(len(messages))) if messages[index]["role"] == "assistant"), None)
    if last is not None:
        names = {"event_id": "final-response", "parent_event_id": f"message-{last}", "type": "final_response"}
        message = {**_without_calls(messages[last]), "content": answer}
        events.append({**names, "message": message, "metadata": {"message_index": last}})
    yield from ({**event, "ordinal": ordinal} for ordinal, event in enumerate(events))


def _events_of(index: int, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name = f"message-{index}"
    place: dict[str, Any] = {"message_index": index}
    yield {"event_id": name, "type": "message", "message": _without_calls(message), "metadata": place}
    for number, call in enumerate(message.get("tool_calls", ())):
        call_name = f"{name}-tool-{number}"
        result = {"name": call["tool"], **({"call_id": call["id"]} if "id" in call else {}), "status": "ok"}
        result |= {"output": call["output"]} if "output" in call else {}
        tool = {**result, **({"input": call["input"]} if "input" in call else {})}
        place = {"message_index": index, "tool_index": number}
        took = {"duration_ms": call["duration_ms"]} if "duration_ms" in call else {}
        names = {"event_id": call_name, "parent_event_id": name, "type": "tool_call"}
        yield {**names, "tool": tool, **took, "metadata": place}
        if "output" in call:
            names = {"event_id": f"{call_name}-result", "parent_event_id": call_name, "type": "tool_result"}
            yield {**names, "tool": result, "metadata": place}


def _without_calls(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "tool_calls"}


def _with_snake_case(value: Any) -> Any:
    """Return data with keys such as `filePath` as `file_path`, at any depth. Keys in capitals stay as they are."""
    if isinstance(value, dict):
        return {_snake_case(key): _with_snake_case(item) for key, item in value.items()}
    return [_with_snake_case(item) for item in value] if isinstance(value, list | tuple) else value


def _snake_case(key: str) -> str:
    if key[:1].isascii() and key[:1].isupper():
        return key
    return "".join(f"_{letter.lower()}" if letter.isascii() and letter.isupper() else letter for letter in key)
