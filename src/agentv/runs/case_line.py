"""The structure of the lines of `cases.jsonl`, as far as readers depend on it."""

from __future__ import annotations

from typing import Any

import msgspec


class _Evaluator(msgspec.Struct):
    name: str
    type: str


class _Part(msgspec.Struct):
    type: str | None = None
    value: Any = None
    text: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part | str | int | float | list[Any] | None] | _Part | int | float | None = None


class _Turn(msgspec.Struct):
    input: list[_Message]
    evaluators: list[_Evaluator] = []
    expected_output: list[Any] = []


class _Prompt(msgspec.Struct):
    id: str
    input: list[_Message]


class CaseLine(msgspec.Struct):
    """The structure of a line of `cases.jsonl`, as far as readers depend on it."""

    id: str
    dataset_path: str
    evaluators: list[_Evaluator] = []
    dataset: str = ""
    input: list[_Message] = []
    expected_output: list[dict[str, Any]] = []
    turns: list[_Turn] = []
    prompts: list[_Prompt] = []
    variables: dict[str, Any] | None = None


def check_case_line(line: bytes) -> CaseLine:
    """Check the structure of a line of `cases.jsonl`. Raises msgspec.DecodeError or UnicodeDecodeError."""
    return msgspec.json.decode(line, type=CaseLine)
