"""Translate promptfoo's assertions about the text of an answer. They compare as JavaScript does, and never trim."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.model.evaluator import EvaluatorFailure

_WITH_NUMBER = ("contains", "icontains")
"""Types whose value may also be a number."""

_WITH_TEXT: dict[str, dict[str, Any]] = {
    "starts-with": {"type": "starts_with", "exact": True},
    "regex": {"type": "regex", "syntax": "javascript"},
    "levenshtein": {"type": "levenshtein", "exact": True},
    "rouge-n": {"type": "rouge", "variant": "rouge1", "words": "treebank"},
    "bleu": {"type": "bleu", "method": "words"},
    "gleu": {"type": "bleu", "method": "gleu"},
}
_LISTS = {name: name.replace("-", "_") for name in ("contains-any", "contains-all", "icontains-any", "icontains-all")}
OVERLAP = {"rouge-n": 0.75, "bleu": 0.5, "gleu": 0.5, "tool-call-f1": 1.0}
"""The default thresholds of types with a score."""

TEXT_TYPES = (
    *(*_WITH_NUMBER, *_WITH_TEXT, *_LISTS, "equals", "is-json", "contains-json", "word-count", "is-refusal"),
    *("contains-html", "is-xml", "tool-call-f1"),
)
_CHECKS = Path(__file__).parent / "checks"
_DEFAULT_EDITS = 5
_DRAFT = "http://json-schema.org/draft-07/schema"
_KEYWORDS = frozenset(
    (
        *("$schema", "$id", "$ref", "$comment", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "type", "nullable", "enum", "const", "format", "pattern", "minLength"),
        *("maxLength", "contentEncoding", "contentMediaType", "contentSchema", "multipleOf", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "items", "additionalItems", "contains", "minItems", "maxItems"),
        *("uniqueItems", "properties", "patternProperties", "additionalProperties", "propertyNames", "required"),
        *("dependencies", "minProperties", "maxProperties", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    )
)
_FORMATS = frozenset(
    (
        *("date", "time", "date-time", "duration", "uri", "uri-reference", "uri-template", "email", "hostname", "ipv4"),
        *("ipv6", "regex", "uuid", "json-pointer", "relative-json-pointer", "float", "double", "password", "binary"),
    )
)
"""The keywords and formats that promptfoo accepts, except for formats that are not checked here."""

_INTEGERS: dict[str, dict[str, Any]] = {
    "int32": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    "int64": {"type": "integer"},
}
"""Formats of numbers as schemas, which other values fit."""

_OVERESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\([^\w^$\\.*+?()\[\]{}|/-])", re.ASCII)
"""An escape that a pattern with the flag `u` must not have."""

_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*+(?:\]|\Z)")
_SCHEMAS = ("not", "if", "then", "else", "additionalItems", "contains", "additionalProperties", "propertyNames")
_SCHEMA_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependencies")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.|"")*)"\s*(?=,|$)', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\])|""')


def is_number(value: Any) -> bool:
    """Whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_entry(type_: str, value: Any, threshold: Any) -> dict[str, Any]:
    """Return the evaluator for an assertion about the text. Raises ValueError."""
    if type_ in _MADE:
        return _MADE[type_](type_, value)
    if type_ == "equals":
        is_data = isinstance(value, dict | list)
        return {"type": "equals", "value": value if is_data else script_text(value), "exact": True}
    if type_ in _LISTS and isinstance(value, list | str):
        items = value if isinstance(value, list) else list_items(script_text(value))
        if not items:
            raise ValueError(f"The assertion '{type_}' has no value")
        return {"type": _LISTS[type_], "value": [script_text(item) for item in items], "exact": True}
    if value is None or (value == "" and type_ != "levenshtein") or isinstance(value, dict | bool):
        raise ValueError(f"The assertion '{type_}' has no value that is a text")
    if isinstance(value, list) and type_ not in ("bleu", "gleu"):
        raise ValueError(f"The assertion '{type_}' has a list as its value")
    if type_ in _WITH_NUMBER:
        return {"type": type_, "value": script_text(value), "exact": True}
    for item in value if isinstance(value, list) else (value,):
        if not isinstance(item, str):
            raise ValueError(f"The value of '{type_}' must be text, got {script_text(item)}. Put it into quotes")
    if type_ == "levenshtein":
        most = math.floor(threshold) if is_number(threshold) else _DEFAULT_EDITS
        return {**_WITH_TEXT[type_], "value": value, "max_distance": max(0, most)}
    return {**_WITH_TEXT[type_], "value": value}


def script_text(value: Any) -> str:
    """Return the text that JavaScript makes of a value: whole numbers have no decimal point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return "null" if value is None else text_of(value)


def list_items(text: str) -> list[str]:
    """Return the items of a list that is written as text: separated by commas, with quotes around commas."""
    items, position = [], 0
    while position < len(text):
        if text[position] == "," or text[position].isspace():
            position += 1
            continue
        quoted = _QUOTED.match(text, position)
        if quoted is None and text[position] == '"':
            raise ValueError(f"A quotation mark has no counterpart, or no comma after it: {text[:80]}")
        end = quoted.end() if quoted else (text.find(",", position) + len(text) + 1) % (len(text) + 1)
        items.append(_ESCAPED.sub(lambda match: match[1] or '"', quoted[1]) if quoted else text[position:end].strip())
        position = end
    return items


def _word_count(_: str, value: Any) -> dict[str, Any]:
    least, most = (value.get("min"), value.get("max")) if isinstance(value, dict) else (value, value)
    try:
        least, most = (None if limit is None else float(limit) for limit in (least, most))
    except (TypeError, ValueError):
        raise ValueError("The value of 'word-count' must be a number, or have `min` or `max`") from None
    if least is None and most is None:
        raise ValueError("The value of 'word-count' must be a number, or have `min` or `max`")
    low = max(0, math.ceil(least or 0))
    high = None if most is None else math.floor(most)
    if high is not None and high < low:
        raise ValueError(f"'word-count' is from {low} to {high}, which no answer can have")
    words = r"^\s*$" if high == 0 else rf"^\s*\S+(?:\s+\S+){{{max(0, low - 1)},{'' if high is None else high - 1}}}\s*$"
    words = rf"{words}|^\s*$" if low == 0 and high != 0 else words
    return {"type": "regex", "name": "word_count", "value": words, "syntax": "javascript"}


def _json_entry(type_: str, value: Any) -> dict[str, Any]:
    schema = value
    if isinstance(value, str) and value.strip():
        from agentv.support.yaml.yaml_parser import YamlError, parse_yaml  # late: few assertions have a schema

        try:
            schema = parse_yaml(value.encode())
        except YamlError as error:
            raise ValueError(f"The schema of '{type_}' is not valid: {error.what}") from None
    own: dict[str, Any] = {"anywhere": True, "loose": True} if type_ == "contains-json" else {}
    if is_blank(schema) or schema is False:
        return {"type": "is_json", **own}
    if not isinstance(schema, dict):
        raise ValueError(f"The schema of '{type_}' must be an object")
    plain = msgspec.to_builtins(schema)
    if not text_of(plain.get("$schema", _DRAFT)).startswith(_DRAFT):
        raise ValueError(f"The schema of '{type_}' must be one of draft-07, got {plain['$schema']}")
    return {**schema_entry(plain), **own}


def schema_entry(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the evaluator for a JSON Schema. Raises ValueError for one that promptfoo refuses."""
    return {"type": "json_schema", "schema": {"$schema": f"{_DRAFT}#", **_schema(schema)}, "formats": True}


def _calls_entry(_: str, value: Any) -> dict[str, Any]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise ValueError("The value of 'tool-call-f1' must be a list of tools, or their names with commas")
    tools = [script_text(name) for name in names] if names is value else [name.strip() for name in names]
    return {**script_entry("tool_call_f1"), "config": {"tools": tools}}


def _xml_entry(_: str, value: Any) -> dict[str, Any]:
    """Return a check that is Python, in a file of this extension."""
    names = value.get("requiredElements") if isinstance(value, dict) else value
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    if not isinstance(names, list | None) or (isinstance(value, dict) and value and names is None):
        raise ValueError("The value of 'is-xml' must be a list of elements, or have `requiredElements`")
    code = (_CHECKS / "is_xml.txt").read_text("utf-8")
    required = [script_text(name) for name in names or ()]
    return {"type": "python", "name": "is_xml", "code": code, "syntax": "promptfoo", "config": {"required": required}}


def script_entry(name: str, **config: Any) -> dict[str, Any]:
    """Return a check that is JavaScript, in a file of this extension."""
    settings = {"syntax": "promptfoo", "config": config} if config else {}
    return {"type": "javascript", "name": name, "code": script_text_of(name), **settings}


def script_text_of(name: str) -> str:
    """Return the JavaScript in a file of this extension."""
    return (_CHECKS / f"{name}.js").read_text("utf-8")


_MADE: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "is-json": _json_entry,
    "contains-json": _json_entry,
    "is-refusal": lambda *_: script_entry("is_refusal", isInverse=False),
    "word-count": _word_count,
    "is-xml": _xml_entry,
    "contains-html": lambda *_: script_entry("contains_html"),
    "tool-call-f1": _calls_entry,
}


def _schema(schema: Any) -> Any:
    """Return a schema as promptfoo reads it. Raises ValueError for what its strict validator refuses."""
    if not isinstance(schema, dict):
        return schema
    if reason := next((why for is_wrong, why in _strict_rules(schema) if is_wrong), None):
        raise ValueError(f"The schema has {reason}")
    result = {key: value for key, value in schema.items() if key != "nullable"} | dict(_subschemas(schema))
    if schema.get("nullable") is True and isinstance(schema.get("type"), str):
        result["type"] = list(dict.fromkeys((schema["type"], "null")))
    more = []
    if "$ref" in schema:  # draft-07 ignores what is next to a reference
        more.append({"$ref": result.pop("$ref")})
    if schema.get("format") in _INTEGERS:
        more.append({"if": {"type": "number"}, "then": _INTEGERS[result.pop("format")]})
    return {**result, "allOf": [*result.get("allOf", ()), *more]} if more else result


def _strict_rules(schema: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Yield the rules of a strict validator that are not those of JSON Schema: whether it breaks one, and how."""
    unknown = next((key for key in schema if key not in _KEYWORDS), None)
    yield unknown is not None, f"the unknown keyword '{unknown}'"
    form, step, pattern = (schema.get(key) for key in ("format", "multipleOf", "pattern"))
    has_format = isinstance(form, str) and form not in (*_FORMATS, *_INTEGERS)
    yield has_format, f"the format '{form}', which cannot be checked"
    is_rounded = isinstance(step, float) and not step.is_integer()
    yield is_rounded, f"'multipleOf: {step}', which promptfoo checks with rounding errors"
    is_escaped = isinstance(pattern, str) and (_OVERESCAPED.search(pattern) or r"\-" in _CLASS.sub("", pattern))
    yield bool(is_escaped), f"the pattern '{pattern}', where an escape is not valid in JavaScript with the flag 'u'"
    yield "if" in schema and not {"then", "else"} & schema.keys(), "'if' without 'then' and 'else'"
    yield "if" not in schema and bool({"then", "else"} & schema.keys()), "'then' or 'else' without 'if'"
    no_list = "additionalItems" in schema and not isinstance(schema.get("items"), list)
    yield no_list, "'additionalItems' without a list in 'items'"
    yield "nullable" in schema and not schema.get("type"), "'nullable' without 'type'"
    values = schema.get("enum", [None])
    is_repeated = isinstance(values, list) and len({json.dumps(value, sort_keys=True) for value in values}) < len(
        values
    )
    yield is_repeated or not values, "an 'enum' that is empty or repeats a value"
    patterns = object_at(schema, "patternProperties")
    properties = object_at(schema, "properties")
    names = [name for pattern in patterns for name in _matching(pattern, properties)]
    yield (
        bool(names) and any(item not in ({}, True) for item in patterns.values()),
        f"the property '{''.join(names[:1])}', which also matches one of its 'patternProperties'",
    )


def _matching(pattern: str, properties: dict[str, Any]) -> list[str]:
    """Return the names that match a pattern, by a search that takes a limited time."""
    from agentv.evaluators.checks.json_checks import compiled_schema  # late: few schemas have patterns

    with suppress(EvaluatorFailure):
        other = compiled_schema(json.dumps({"propertyNames": {"not": {"pattern": pattern}}}))
        is_other = other.is_valid(dict.fromkeys(properties))
        return [] if is_other else [name for name in properties if not other.is_valid({name: None})]
    return []


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key in _SCHEMAS or (key == "items" and isinstance(value, dict)):
            yield key, _schema(value)
        elif key in _SCHEMA_MAPS and isinstance(value, dict):
            yield key, {name: _schema(item) for name, item in value.items()}
        elif key in ("allOf", "anyOf", "oneOf", "items") and isinstance(value, list):
            yield key, [_schema(item) for item in value]
