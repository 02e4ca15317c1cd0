"""Find objects in a text that are nearly JSON: unquoted keys, comments, single quotes, or no end. YAML reads them."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from agentv.model.evaluator import EvaluatorFailure

_LONGEST = 100_000
_MOST_CHARACTERS = 2_000_000
"""Characters that are parsed in a few seconds, over all attempts in one answer."""

_BRACE = re.compile(r"[{}]")
_PART = re.compile(r"'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"|\S*://\S*|(?P<comment>//)|.", re.DOTALL)


class _Loader(yaml.SafeLoader):
    """Reads the scalars of JSON, and everything else as text. Aliases are refused, since they could grow."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", list("-+0123456789")),
    ("float", r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", list("-+0123456789.")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def loose_objects_in(text: str) -> list[Any]:
    """Return the objects in a text. Raises EvaluatorFailure if it has too many braces to search."""
    objects: list[Any] = []
    position, left = text.find("{"), _MOST_CHARACTERS
    while 0 <= position < len(text) - 1:
        source, end = _candidate(text, position)
        left -= len(source)
        if left < 0:
            raise EvaluatorFailure("Cannot search the answer for JSON: it has too many braces")
        value = _parsed(source)
        if isinstance(value, dict):
            objects.append(value)
        else:
            end = position + 1
        position = text.find("{", end)
    return objects


def _candidate(text: str, start: int) -> tuple[str, int]:
    """Return the text from a brace to its counterpart, or to the end with the missing braces, and its end."""
    depth, last = 0, min(len(text), start + _LONGEST)
    for brace in _BRACE.finditer(text, start, last):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[start : brace.end()], brace.end()
    return text[start:last] + "}" * depth, last


def _parsed(source: str) -> Any:
    try:
        return json.loads(source, parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    try:
        return _with_text_keys(yaml.load(_with_comments(source), _Loader))  # noqa: S506  # a safe loader
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def _with_comments(source: str) -> str:
    """Return a text whose comments start as in YAML."""
    return _PART.sub(lambda part: "#" if part["comment"] else part[0], source) if "//" in source else source
