"""A problem found in data: what is wrong and at which key, before anybody knows the file and line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

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


_TYPE_WORDS = (
    *((type(None), "null"), (bool, "boolean"), (int, "integer")),
    *((float, "number"), (str, "string"), (dict, "object")),
)


def type_word(value: object) -> str:
    """What a JSON value is, in the words of JSON."""
    return next((word for kind, word in _TYPE_WORDS if isinstance(value, kind)), "array")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that `word` was probably meant to be, or None when nothing is near."""
    from difflib import get_close_matches  # late: only a mistake needs it

    by_shape = {_shape(name): name for name in known}
    found = get_close_matches(_shape(word), by_shape, n=1, cutoff=0.75)
    return by_shape[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to put behind a message, or nothing."""
    name = nearest(word, known)
    return f"Did you mean '{name}'?" if name and name != word else ""


def _shape(name: str) -> str:
    return name.replace("-", "_").lower()


class Range(NamedTuple):
    """A range of numbers; None where it has no end. `above` and `below` leave an end out."""

    least: float | None = None
    most: float | None = None
    whole: bool = False
    above: bool = False
    below: bool = False

    def read(self, value: object) -> float:
        """The number that was given or typed. Raises ValueError with a sentence that goes on from its name."""
        kind = int if self.whole else float
        try:
            number = value if type(value) is kind else kind(str(value))
        except ValueError:
            raise ValueError(self._complaint(value)) from None
        too_low = self.least is not None and (number < self.least or (self.above and number == self.least))
        too_high = self.most is not None and (number > self.most or (self.below and number == self.most))
        if too_low or too_high or not math.isfinite(number):
            raise ValueError(self._complaint(value))
        return number

    def _complaint(self, value: object) -> str:
        noun = "a whole number" if self.whole else "a number"
        if self.least is not None and self.most is not None:
            between, to = ("between", "and") if self.above and self.below else ("from", "to")
            noun += f" {between} {self.least:g} {to} {self.most:g}"
        elif self.least is not None:
            noun += f" above {self.least:g}" if self.above else f" of at least {self.least:g}"
        return f"must be {noun}, got {str(value)!r}{self._instead(value)}"

    def _instead(self, value: object) -> str:
        """For `80` and `80%` where a share is wanted, the share."""
        try:
            share = float(str(value).removesuffix("%")) / 100
        except ValueError:
            return ""
        return f"; write {share:g} for {share:.0%}" if (self.least, self.most) == (0, 1) and 0 < share <= 1 else ""


SHARE = Range(0, 1)
AT_LEAST_1 = Range(1, whole=True)
