"""Tools and the form of answers as targets declare them, in one shape for every API. Makes no request."""

from __future__ import annotations

from typing import Any

import msgspec


class Function(msgspec.Struct, frozen=True):
    """A tool that the caller runs: its name, what it does, and the JSON Schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class AnswerFormat(msgspec.Struct, frozen=True):
    """That an answer is JSON, and of which JSON Schema; None is any."""

    schema: dict[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None
    description: str | None = None


def function_of(tool: dict[str, Any]) -> Function | None:
    """A declared tool as a function; None for one of the API's own, which is sent as it is.

    Taken are OpenAI's form, a function by itself (`name`, `description`, `parameters`), Anthropic's and MCP's.
    """
    if tool.get("type", "function") != "function" and "input_schema" not in tool:
        return None
    inner = tool.get("function", tool)
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str):
        return None
    parameters = next((inner[key] for key in ("parameters", "input_schema", "inputSchema") if key in inner), None)
    return Function(name, inner.get("description"), parameters, inner.get("strict"))


def answer_format(value: dict[str, Any] | str | None) -> AnswerFormat | dict[str, Any] | None:
    """`response_format` in one shape: `json`, OpenAI's object of either API, or a bare JSON Schema.

    An object that is none of them is an API's own and comes back as it is; a text other than `json` is a type.
    """
    if value is None or value == "text":
        return None
    if isinstance(value, str):
        return AnswerFormat() if value in ("json", "json_object") else {"type": value}
    kind = value.get("type")
    if kind == "json_object" and len(value) == 1:
        return AnswerFormat()
    if kind == "json_schema":
        inner = value.get("json_schema", value)
        if isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
            name, description = inner.get("name") or "answer", inner.get("description")
            return AnswerFormat(inner["schema"], name, inner.get("strict"), description)
    if kind in ("object", "array") or "$schema" in value or "anyOf" in value:
        return _fitting(value)
    return value


def _fitting(schema: dict[str, Any]) -> AnswerFormat:
    """The format of an answer that must fit a JSON Schema; strict where the schema allows for it."""
    title = schema.get("title")
    name = "".join(char if char.isalnum() or char in "_-" else "_" for char in str(title))[:64] if title else "answer"
    return AnswerFormat(schema, name, _can_be_strict(schema))


def _can_be_strict(schema: Any) -> bool:
    """Whether OpenAI would take a schema as strict: no object in it is open, none has keys that may be left out."""
    if isinstance(schema, list):
        return all(map(_can_be_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", ())):
            return False
    return all(_can_be_strict(value) for key, value in schema.items() if key not in ("enum", "const", "default"))
