"""Convert values of other tools: messages, tool calls, texts, lists in cells, and what is left for metadata."""

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.model.message import ROLES
from agentv.model.values import to_json

_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("ai", "gpt", "model", "bot", "chatgpt", "assistant", "agent"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation"), "tool"),
}

_ARGUMENTS = (
    *("arguments", "args", "input", "input_parameters", "inputParameters", "parameters", "params", "kwargs"),
    "tool_input",
)


def text_of(value: Any) -> str:
    """Return text unchanged, nothing as an empty text, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value).decode()


def is_blank(value: Any) -> bool:
    """Whether a value is missing: null, blank text, or an empty list or object. NaN is an empty cell of a table."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, list | dict) and not value)


def filled(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without missing values."""
    return {key: value for key, value in row.items() if not is_blank(value)}


def metadata_of(data: dict[str, Any], used: Iterable[str], more: Any = None) -> dict[str, Any]:
    """Return what is left of a record after the used keys, and the record's own metadata."""
    used = frozenset(used)
    rest = {str(key): value for key, value in data.items() if key not in used and not is_blank(value)}
    return {**rest, **more} if isinstance(more, dict) else rest


def first_of(data: dict[str, Any], *keys: str) -> Any:
    """Return the first value that is not missing."""
    return next((data[key] for key in keys if not is_blank(data.get(key))), None)


def object_at(data: Any, key: str) -> dict[str, Any]:
    """Return the object under a key; an empty one if there is none."""
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def texts_of(value: Any) -> list[str]:
    """Return a list of texts: of a list, its items; of a text, the text."""
    if is_blank(value):
        return []
    return [text_of(item) for item in value if not is_blank(item)] if isinstance(value, list) else [text_of(value)]


def parsed(value: Any) -> Any:
    """Return the value of a text that is a JSON object or list; any other value unchanged."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def messages_of(value: Any, lose: Lose) -> list[dict[str, Any]]:
    """Return messages with our names. Raises ValueError if a value is not a message."""
    items = value if isinstance(value, list) else [value]
    return [message_of(item, lose) for item in items]


def message_of(data: Any, lose: Lose) -> dict[str, Any]:
    """Return one message of a chat API, LangChain or ShareGPT with our names. Raises ValueError."""
    if isinstance(data, str):
        return {"role": "user", "content": data}
    if not isinstance(data, dict):
        raise ValueError(f"Expected a message, got {text_of(data)[:80]}")
    kwargs = data.get("kwargs") or data.get("data")
    if isinstance(kwargs, dict) and "content" in kwargs:  # a serialized LangChain message
        kind = data["id"][-1] if isinstance(data.get("id"), list) and data["id"] else data.get("type", "")
        data = {"role": str(kind).removesuffix("Chunk").removesuffix("Message").lower(), **kwargs}
    raw_role = next((data[key] for key in ("role", "type", "from", "author") if isinstance(data.get(key), str)), "")
    if (role := _ROLES.get(raw_role.lower(), raw_role)) not in ROLES:
        raise ValueError(f"A message has the unknown role '{raw_role}'")
    content = next((data[key] for key in ("content", "value", "text", "parts") if data.get(key) is not None), None)
    calls = [call_of(call) for call in data.get("tool_calls") or ()]
    if isinstance(data.get("function_call"), dict):
        calls.append(call_of(data["function_call"]))
    message: dict[str, Any] = {"role": role}
    if content is not None or not calls:
        message["content"] = _content(content, lose)
    if calls:
        message["tool_calls"] = calls
    name = data.get("name")
    return {**message, "name": name} if isinstance(name, str) and role == "tool" else message


def call_of(data: Any) -> dict[str, Any]:
    """Return a tool call with our names. Raises ValueError if it has no name."""
    if not isinstance(data, dict):
        raise ValueError(f"Expected a tool call, got {text_of(data)[:80]}")
    inner = data.get("function") if isinstance(data.get("function"), dict) else data
    assert isinstance(inner, dict)
    name = first_of(inner, "name", "tool", "tool_name", "toolName")
    if not isinstance(name, str):
        raise ValueError("A tool call has no name")
    arguments = parsed(next((inner[key] for key in _ARGUMENTS if inner.get(key) is not None), {}))
    return {"tool": name, "input": arguments}


def _content(value: Any, lose: Lose) -> Any:
    if not isinstance(value, list):
        return text_of(value) if not isinstance(value, dict) else value
    parts = [part for item in value if (part := _part(item, lose)) is not None]
    texts = [part["value"] for part in parts if part["type"] == "text"]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _part(item: Any, lose: Lose) -> dict[str, str] | None:
    if isinstance(item, str):
        return {"type": "text", "value": item}
    if not isinstance(item, dict):
        lose("a part of a message that is not text")
        return None
    if isinstance(item.get("text"), str):
        return {"type": "text", "value": item["text"]}
    if item.get("type") in ("text", "file", "image") and isinstance(item.get("value"), str):  # ours
        return {"type": item["type"], "value": item["value"]}
    image = item.get("image_url") or item.get("image")
    address = image.get("url") if isinstance(image, dict) else image
    address = _inline_image(item) if address is None else address
    if isinstance(address, str):
        return {"type": "image", "value": address}
    lose(f"a part of a message of type '{item.get('type', 'unknown')}'")
    return None


def _inline_image(item: dict[str, Any]) -> str | None:
    """Return the address of an image whose data is in the part, as for Anthropic, Google or Bedrock."""
    bedrock = object_at(item, "image")
    source = object_at(item, "source") if item.get("type") == "image" else object_at(bedrock, "source")
    source = source or object_at(item, "inline_data") or object_at(item, "inlineData")
    if isinstance(source.get("url"), str):
        return str(source["url"])
    data = first_of(source, "data", "bytes")
    kind = first_of(source, "media_type", "mime_type", "mimeType") or f"image/{bedrock.get('format', 'png')}"
    if not isinstance(data, str) or not str(kind).startswith("image/"):
        return None
    is_address = data.startswith("data:") or "{{" in data  # a template, whose value is an address
    return data if is_address else f"data:{kind};base64,{data}"


_QUESTIONS = ("input", "question", "query", "prompt", "messages", "text", "message", "user_input", "content")


def question_of(value: Any, lose: Lose) -> Any:
    """Return an input of any type: text, messages, the only text of an object, or the object as variables."""
    if isinstance(value, list):
        return messages_of(value, lose) if all(isinstance(item, dict) for item in value) else text_of(value)
    if not isinstance(value, dict):
        return text_of(value)
    if "role" in value or "kwargs" in value:
        return [message_of(value, lose)]
    key = next((key for key in _QUESTIONS if not is_blank(value.get(key))), None)
    if key is not None and all(is_blank(item) for name, item in value.items() if name != key):
        return question_of(parsed(value[key]), lose)
    if len(value) == 1:
        return question_of(parsed(next(iter(value.values()))), lose)
    # Several values: without a prompt, the target sees them all.
    return text_of(value)


OUTCOME = "Does what the input asks for"
"""The expected outcome of a case without a reference or a check."""

_CHECKED = ("expected_output", "expected_outcome", "assertions", "rubrics")


def with_outcome(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without missing values; with a general outcome if there is no reference and no check."""
    row = filled(row)
    return row if any(key in row for key in _CHECKED) else {**row, "expected_outcome": OUTCOME}


def expected_calls(calls: list[dict[str, Any]], mode: str = "superset") -> dict[str, Any]:
    """Return an evaluator for expected tool calls. Calls without arguments allow any."""
    expected = [{"tool": call["tool"], **({"args": call["input"]} if call["input"] else {})} for call in calls]
    return {"type": "tool_trajectory", "mode": mode, "args_match": "superset", "expected": expected}
