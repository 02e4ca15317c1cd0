"""Convert the output of users' programs and functions to a response: text, messages, or an object with metrics."""

import math
from typing import Any

import msgspec

from agentv.model.message import PART_KINDS, ROLES, FilePart, ImagePart, Message, Part, TextPart, ToolCall
from agentv.model.response import Response, TargetFailure, answer
from agentv.model.result import Result, TokenUsage
from agentv.model.values import to_json
from agentv.support.json_values import json_or

_CALL_FIELDS = ("output", "id", "timestamp", "duration_ms")


def response_from_text(text: str) -> Response:
    """Convert printed output: a JSON object with `output_messages`, `output` or `text`, else the text of the answer."""
    data: Any = json_or(text, None) if text.lstrip().startswith("{") else None
    return response_from_object(data) if is_answer_object(data) else answer(text, calls_unknown=True)


def response_from_value(value: Any) -> Response:
    """Convert a returned value: a response, text, messages, an answer object, or data."""
    if isinstance(value, Response):
        return value
    if isinstance(value, str):
        return answer(str(value), calls_unknown=True)
    if value is None:
        raise _invalid("The function returned None; return text, messages, or an object with 'text'")
    if isinstance(value, bytes | bytearray):
        raise _invalid(f"The function returned {type(value).__name__}; decode it to text")
    try:
        data = msgspec.to_builtins(value)
        to_json(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(
            f"The function returned {type(value).__name__}, which cannot be converted to JSON: {error}"
        ) from None
    if is_answer_object(data):
        return response_from_object(data)
    if _is_message(data):
        return Response(messages=(message_from_data(data, "message"),))
    if isinstance(data, list) and data and _is_message(data[0]):
        return Response(messages=_messages(data, "messages"))
    return Response(messages=(Message("assistant", data),), calls_unknown=True)


def is_answer_object(data: Any) -> bool:
    """Whether a value is an answer object, with messages in `output_messages` or `output`, or with `text`."""
    return isinstance(data, dict) and (_messages_key(data) is not None or data.get("text") is not None)


def _messages_key(data: dict[str, Any]) -> str | None:
    """Return the key of an answer's messages. `output` may also be data, which is not read."""
    if data.get("output_messages"):
        return "output_messages"
    output = data.get("output")
    return "output" if isinstance(output, list) and output and _is_message(output[0]) else None


def response_from_object(data: dict[str, Any]) -> Response:
    """Convert an answer object, including its `token_usage`, `cost_usd` and `duration_ms`."""
    if (key := _messages_key(data)) is not None:
        messages = _messages(data[key], key)
    else:
        text = data["text"]
        messages = (Message("assistant", text if isinstance(text, str) else to_json(text).decode()),)
    return Response(
        messages=messages,
        usage=_usage(data.get("token_usage")),
        cost_usd=_number(data, "cost_usd"),
        duration_ms=_number(data, "duration_ms"),
        calls_unknown=key is None,
    )


def messages_of_record(record: Result) -> tuple[Message, ...]:
    """Return the messages of a record. A list that is an answer is data, rather than parts, if its JSON was scored."""
    text = record.candidate_answer if record.raw_answer is None else record.raw_answer
    messages = []
    for index, data in enumerate(record.output_messages):
        content = data.get("content")
        is_data = isinstance(content, list) and text is not None and to_json(content).decode() == text
        message = message_from_data({**data, "content": None} if is_data else data, f"output_messages[{index}]")
        messages.append(msgspec.structs.replace(message, content=content) if is_data else message)
    return tuple(messages)


def message_from_data(data: Any, where: str) -> Message:
    """Convert a target's message. Unknown keys, such as times and metadata, are ignored."""
    if not isinstance(data, dict) or data.get("role") not in ROLES:
        raise _invalid(f"'{where}' is not a message: it needs a 'role', one of {', '.join(ROLES)}")
    calls = data.get("tool_calls") or []
    if not isinstance(calls, list):
        raise _invalid(f"'{where}.tool_calls' must be an array")
    name, content = data.get("name"), data.get("content")
    if isinstance(content, list):
        content = tuple(_part(part, f"{where}.content[{index}]") for index, part in enumerate(content))
    return Message(
        data["role"],
        content,
        tuple(_tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)),
        name if isinstance(name, str) else None,
    )


def _is_message(data: Any) -> bool:
    return isinstance(data, dict) and data.get("role") in ROLES and ("content" in data or "tool_calls" in data)


def _messages(data: Any, where: str) -> tuple[Message, ...]:
    if not isinstance(data, list):
        raise _invalid(f"'{where}' must be an array of messages")
    return tuple(message_from_data(item, f"{where}[{index}]") for index, item in enumerate(data))


def _part(data: Any, where: str) -> Part:
    if isinstance(data, str):
        return TextPart(data)
    kind = data.get("type") if isinstance(data, dict) else None
    if kind == "image_url" and isinstance(data["image_url"], dict):
        return ImagePart(str(data["image_url"].get("url", "")))
    names = ("value", "text", "path", "source")  # AgentV (TypeScript) has the last three, each for one type
    value = next((data[name] for name in names if name in data), None) if isinstance(data, dict) else None
    if kind not in PART_KINDS or not isinstance(value, str):
        raise _invalid(
            f"'{where}' is not a content part: it needs a 'type', one of {', '.join(PART_KINDS)}, and a 'value'"
        )
    media_type = data.get("media_type")
    if kind == "file" and isinstance(media_type, str):
        return FilePart(value, media_type=media_type)
    return PART_KINDS[kind](value)


def _tool_call(data: Any, where: str) -> ToolCall:
    """Convert a tool call in agentv's format or that of chat APIs (`function` with `name` and `arguments`)."""
    if not isinstance(data, dict):
        raise _invalid(f"'{where}' must be an object")
    function = data.get("function")
    fields = {key: data[key] for key in _CALL_FIELDS if data.get(key) is not None}
    if isinstance(function, dict):
        args = function.get("arguments")
        fields |= {"tool": function.get("name"), "input": json_or(args, args) if isinstance(args, str) else args}
    else:
        fields |= {"tool": data.get("tool"), "input": data.get("input")}
    try:
        return msgspec.convert(fields, ToolCall)
    except msgspec.ValidationError as error:
        raise _invalid(f"'{where}' is not a tool call: {error}") from None


def _usage(data: Any) -> TokenUsage | None:
    if data is None:
        return None
    try:
        usage = msgspec.convert(data, TokenUsage)
    except msgspec.ValidationError as error:
        raise _invalid(f"'token_usage' must have the numbers 'input' and 'output': {error}") from None
    if min(usage.input, usage.output, usage.cached or 0) < 0:
        raise _invalid("'token_usage' has a negative number")
    return usage


def _number(data: dict[str, Any], key: str) -> float | None:
    if (value := data.get(key)) is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _invalid(f"'{key}' must be a non-negative number")
    return float(value)


def _invalid(message: str) -> TargetFailure:
    return TargetFailure("invalid_response", message)
