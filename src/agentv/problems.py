"""A problem found in data: what is wrong and at which key, before anybody knows the file and line."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["error", "warning"]
KeyPath = tuple[str | int, ...]


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong, at the end of `path`. A `topic` groups warnings of which one per file is always enough."""

    path: KeyPath
    message: str
    hint: str = ""
    severity: Severity = "error"
    topic: str = ""

    @property
    def field(self) -> str | None:
        """The path as people write it: `input[0].role`."""
        return field_name(self.path) or None

    @property
    def kind(self) -> str:
        """The same for problems that say the same of different cases."""
        return f"{field_name(tuple('*' if isinstance(step, int) else step for step in self.path))}: {self.message}"


class Problems(list[Problem]):
    """What a check has found so far."""

    def error(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Note something that must be mended."""
        self.append(Problem(path, message, hint))

    def warning(self, path: KeyPath, message: str, hint: str = "", topic: str = "") -> None:
        """Note something that is legal and probably not meant."""
        self.append(Problem(path, message, hint, "warning", topic))

    def wrong_type(self, path: KeyPath, expected: str, value: object, hint: str = "") -> None:
        """Note a value of the wrong type, in the words every message of this kind uses."""
        self.error(path, f"Field '{field_name(path)}' must be {expected}, got {type_word(value)}", hint)

    def missing(self, path: KeyPath, hint: str = "") -> None:
        """Note a key that must be there and is not."""
        self.error(path, f"Missing required field: '{field_name(path)}'", hint)

    @property
    def errors(self) -> list[Problem]:
        """The ones that must be mended."""
        return [problem for problem in self if problem.severity == "error"] if self else []


def field_name(path: KeyPath) -> str:
    """`("input", 0, "role")` as `input[0].role`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def type_word(value: object) -> str:
    """What a JSON value is, in the words of JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"
