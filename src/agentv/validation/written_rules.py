"""What only the text of a JSONL file shows: repeated keys, and the written rules of AgentMark that loading relaxes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentv.datasets.jsonl import read_lines
from agentv.datasets.lines import TooLong
from agentv.datasets.shorthand import is_message
from agentv.problems import type_word
from agentv.validation.finding import Finding


class _Pairs(dict[str, Any]):
    """An object as it was written: the keys that came twice are kept apart."""

    repeated: tuple[str, ...] = ()


def repeated_keys(path: str, max_line_bytes: int) -> Iterator[Finding]:
    """Keys that an object has twice. Loading takes the last of them, which is rarely what was meant."""
    decoder = json.JSONDecoder(object_pairs_hook=_pairs)
    for number, line in read_lines(path, max_line_bytes):
        if isinstance(line, TooLong) or line.count(b'"') < 8:
            continue
        try:
            value = decoder.decode(line.decode("utf-8").strip(" \t\r"))
        except (ValueError, RecursionError):
            continue  # said already, with its place, by whoever read the line as a case
        for key in dict.fromkeys(_all_repeated(value)):
            message = f"The key '{key}' is there twice in one object; the last one is taken"
            yield Finding("error", path, message, number, None, key, "Remove one of the two")


def agentmark_rules(path: str, max_line_bytes: int) -> Iterator[Finding]:
    """AgentMark's own rules for its files, each line that breaks one."""
    for number, line in read_lines(path, max_line_bytes):
        if isinstance(line, TooLong):
            continue
        if not line.strip(b" \t\r"):
            yield Finding("error", path, "AgentMark datasets have no blank lines", number, hint="Remove the line")
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield from _row_findings(row, path, number)


def _row_findings(row: dict[str, Any], path: str, number: int) -> Iterator[Finding]:
    value = row.get("input")
    if value is not None and (not isinstance(value, dict) or is_message(value)):
        found = "message" if is_message(value) else type_word(value)
        message = f"AgentMark's 'input' must be an object of variables, got {found}"
        yield Finding("error", path, message, number, None, "input", "")
    expected = row.get("expected_output")
    if expected is not None and not isinstance(expected, str):
        message = f"AgentMark's 'expected_output' must be a string, got {type_word(expected)}"
        yield Finding("error", path, message, number, None, "expected_output", "Write the JSON as a string")


def _pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
    value = _Pairs(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        value.repeated = tuple(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return value


def _all_repeated(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Pairs):
            yield from item.repeated
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
