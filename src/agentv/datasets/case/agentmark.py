"""AgentMark's datasets: how their rows are recognized and named, and the rules that AgentMark has for them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from agentv.datasets.case.shorthand import is_message
from agentv.datasets.case_ids import PackedIds
from agentv.settings.diagnostics import Problems, type_word

AGENTMARK = "agentmark"
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_OURS = ("id", "expected_outcome", "outcome", "criteria")


def is_agentmark_row(row: Any) -> bool:
    """Whether a first row of JSONL says by its shape that the file is AgentMark's."""
    return holds_variables(row) and not any(key in row for key in _OURS)


def holds_variables(row: Any) -> bool:
    """Whether a row's input is an object that is no message."""
    return isinstance(row, dict) and isinstance(row.get("input"), dict) and not is_message(row["input"])


class ItemNames:
    """The names AgentMark gives the rows of one dataset, from their input; a repeated one gets `-2`, `-3` and so on."""

    def __init__(self) -> None:
        self._seen = PackedIds()
        self._counts: dict[str, int] = {}

    def name(self, value: Any) -> str:
        text = _CANONICAL.encode(value)
        name = hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest()[:12]
        if not self._seen.repeats((name,)):
            return name
        self._counts[name] = self._counts.get(name, 1) + 1
        return f"{name}-{self._counts[name]}"


def row_problems(row: dict[str, Any], problems: Problems) -> None:
    """Note where a row breaks AgentMark's own rules."""
    value, expected = row.get("input"), row.get("expected_output")
    if value is not None and (not isinstance(value, dict) or is_message(value)):
        found = "message" if is_message(value) else type_word(value)
        problems.error(("input",), f"AgentMark's 'input' must be an object of variables, got {found}")
    if expected is not None and not isinstance(expected, str):
        message = f"AgentMark's 'expected_output' must be a string, got {type_word(expected)}"
        problems.error(("expected_output",), message, "Write the JSON as a string")
