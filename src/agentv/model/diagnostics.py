"""Problems found in data, located by key path; file and line are added later."""

import math
from collections.abc import Iterable
from itertools import islice
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]
KeyPath = tuple[str | int, ...]


class Problem(msgspec.Struct, frozen=True):
    """One problem at `path`. Warnings with the same `topic` are shown once per file."""

    path: KeyPath
    message: str
    hint: str = ""
    severity: Severity = "error"
    topic: str = ""

    @property
    def field(self) -> str | None:
        """The path as text: `input[0].role`."""
        return field_name(self.path) or None

    @property
    def kind(self) -> str:
        """A key that is equal for the same problem in different cases."""
        return f"{field_name(tuple('*' if isinstance(step, int) else step for step in self.path))}: {self.message}"


class Problems(list[Problem]):
    """The problems found so far."""

    def error(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Add an error."""
        self.append(Problem(path, message, hint))

    def warning(self, path: KeyPath, message: str, hint: str = "", topic: str = "") -> None:
        """Add a warning about a value that is valid but probably a mistake."""
        self.append(Problem(path, message, hint, "warning", topic))

    def wrong_type(self, path: KeyPath, expected: str, value: object, hint: str = "") -> None:
        """Add an error about a value of the wrong type."""
        self.error(path, f"Field '{field_name(path)}' must be {expected}, got {type_word(value)}", hint)

    def missing(self, path: KeyPath, hint: str = "") -> None:
        """Add an error about a missing key."""
        self.error(path, f"Missing required field: '{field_name(path)}'", hint)

    @property
    def errors(self) -> list[Problem]:
        """The problems that are errors."""
        return [problem for problem in self if problem.severity == "error"] if self else []


def field_name(path: KeyPath) -> str:
    """Format a path: `("input", 0, "role")` as `input[0].role`. Control characters in keys are escaped."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


_TYPE_WORDS = (
    *((type(None), "null"), (bool, "boolean"), (int, "integer")),
    *((float, "number"), (str, "string"), (dict, "object")),
)


def type_word(value: object) -> str:
    """Return the name of a value's JSON type."""
    return next((word for kind, word in _TYPE_WORDS if isinstance(value, kind)), "array")


MOST_NAMES = 1_000
LONGEST_NAME = 100
"""Limits on what is compared for a hint: a file with thousands of names must not take minutes."""


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `word`, or None."""
    from difflib import get_close_matches  # late: needed only for mistakes

    from rapidfuzz.distance.Indel import normalized_similarity
    from rapidfuzz.process import extract

    shape = word.replace("-", "_").lower()
    if len(shape) > LONGEST_NAME:
        return None
    by_shape = {name.replace("-", "_").lower(): name for name in islice(names, MOST_NAMES)}
    # The slower measure is never above this one.
    likely = extract(shape, list(by_shape), scorer=normalized_similarity, score_cutoff=0.75, limit=5)
    matches = get_close_matches(shape, [name for name, _, _ in likely], n=1, cutoff=0.75)
    return by_shape[matches[0]] if matches else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a hint with the most similar name, or an empty string."""
    name = nearest(word, names)
    return f"Did you mean '{name}'?" if name and name != word else ""


class Range(msgspec.Struct, frozen=True):
    """A range of numbers. `whole`: integers only. `exclusive`: without the bounds."""

    least: float = -math.inf
    most: float = math.inf
    whole: bool = False
    exclusive: bool = False

    def read(self, value: object) -> float:
        """Return the number of a value or its text. Raises ValueError with a message to put after a name."""
        kind = int if self.whole else float
        try:
            number = value if type(value) is kind else kind(str(value))
        except ValueError:
            number = math.nan
        is_bound = self.exclusive and number in (self.least, self.most)
        if is_bound or not math.isfinite(number) or not self.least <= number <= self.most:
            raise ValueError(self._complaint(value))
        return number

    def _complaint(self, value: object) -> str:
        noun = "a whole number" if self.whole else "a number"
        if self.most < math.inf:
            between, to = ("between", "and") if self.exclusive else ("from", "to")
            noun += f" {between} {self.least:g} {to} {self.most:g}"
        else:
            noun += f" above {self.least:g}" if self.exclusive else f" of at least {self.least:g}"
        return f"must be {noun}, got {str(value)!r}{self._instead(value)}"

    def _instead(self, value: object) -> str:
        """Suggest the fraction for `80` or `80%`, if the range is that of a fraction."""
        try:
            share = float(str(value).removesuffix("%")) / 100
        except ValueError:
            return ""
        return f"; write {share:g} for {share * 100:g}%" if (self.least, self.most) == (0, 1) and 0 < share <= 1 else ""


SHARE = Range(0, 1)
AT_LEAST_1 = Range(1, whole=True)
MOST_TRIALS = 10_000
"""Maximum number of trials of a case: a dataset must not be able to start an endless run."""
