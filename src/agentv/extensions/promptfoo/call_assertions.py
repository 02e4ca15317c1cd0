"""Translate promptfoo's assertions about the calls of functions in an answer: they fit the functions of the targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentv.datasets.foreign.values import object_at, text_of
from agentv.extensions.promptfoo.text_assertions import schema_entry, script_text_of

CALL_TYPES = ("is-valid-openai-tools-call", "is-valid-openai-function-call", "is-valid-function-call")
_DECLARATIONS = "functionDeclarations"


def call_entry(type_: str, targets: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the evaluator: the calls of an answer are data that fits a JSON Schema. Raises ValueError."""
    reads, is_listed = (_tools, True) if type_ == CALL_TYPES[0] else (_functions, False)
    schemas: dict[str, Any] = {}
    for function in (each for entry in targets for each in reads(entry)):
        name, schema = text_of(function.get("name")), object_at(function, "parameters")
        if schemas.setdefault(name, schema) != schema:
            raise ValueError(f"The providers have different functions '{name}', and '{type_}' has one schema for each")
    calls = [
        {"properties": {"name": {"const": name}, "arguments": schema}, "required": ["name", "arguments"]}
        for name, schema in schemas.items()
        if schema
    ]
    results: list[dict[str, Any]] = [{"required": ["result"]}] if is_listed else []
    schema = {"type": "array", "minItems": 1, "items": {"anyOf": [*calls, *results]} if calls or results else False}
    code = f"const isListed = {str(is_listed).lower()};\n{script_text_of('function_calls')}"
    transform = {"javascript": code, "allow_empty": True}
    return {**schema_entry(schema), "name": type_.replace("-", "_"), "transform": transform}


def _tools(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    declared_tools = entry.get("tools") or object_at(entry, "config").get("tools")  # those of a program, in its config
    return _objects([tool.get("function") for tool in _objects(declared_tools) if tool.get("type") == "function"])


def _functions(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the functions of a request to OpenAI, or those that are declared to Gemini."""
    if entry.get("provider") != "gemini":
        return _objects(object_at(entry, "extra_body").get("functions"))
    declarations = (tool[_DECLARATIONS] for tool in _objects(entry.get("tools")) if _DECLARATIONS in tool)
    return _objects(_lowered(next(declarations, [])))


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; none for another value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _lowered(schema: Any) -> Any:
    """Return a schema with types in lower case: `STRING` of Gemini is `string`."""
    if isinstance(schema, list):
        return [_lowered(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    lowered = {key: _lowered(value) for key, value in schema.items()}
    return {**lowered, "type": schema["type"].lower()} if isinstance(schema.get("type"), str) else lowered
