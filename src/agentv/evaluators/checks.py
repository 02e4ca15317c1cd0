"""Deterministic checks of the answer's text: equality, parts of it, patterns, JSON, nearness."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.evaluators.base import OTHER_TOOLS, Count, Evaluator, Limit, Share

Scalar = str | int | float | bool
"""What stands for a text: YAML gives `value: 42` as a number."""

Scalars = Annotated[list[Scalar], Meta(min_length=1)]

FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "a": re.ASCII}
NO_EFFECT = "gu"
"""Flags of JavaScript that change nothing here: a search stops at the first match and text is Unicode."""


class _AgainstReference(Evaluator, frozen=True, kw_only=True):
    """A check that takes the reference answer when no `value` is given. Subclasses say what a value is."""

    @property
    def needs_reference(self) -> bool:
        """Without `value` the expected output takes its place."""
        return getattr(self, "value", None) is None


class _TextCheck(_AgainstReference, frozen=True, kw_only=True):
    value: Scalar | None = None


class _ListCheck(_AgainstReference, frozen=True, kw_only=True):
    aliases: ClassVar[dict[str, str]] = {"values": "value"}

    value: Scalars | None = None


class Equals(_AgainstReference, frozen=True, kw_only=True):
    """The answer is this text, or this JSON value."""

    value: Scalar | dict[str, Any] | list[Any] | None = None


class Contains(_TextCheck, frozen=True, kw_only=True):
    """The text occurs in the answer."""


class IContains(_TextCheck, frozen=True, kw_only=True):
    """The text occurs in the answer, in upper or lower case."""


class StartsWith(_TextCheck, frozen=True, kw_only=True):
    """The answer begins with the text."""


class EndsWith(_TextCheck, frozen=True, kw_only=True):
    """The answer ends with the text."""


class ContainsAny(_ListCheck, frozen=True, kw_only=True):
    """One of the texts occurs in the answer."""


class ContainsAll(_ListCheck, frozen=True, kw_only=True):
    """All of the texts occur in the answer."""


class IContainsAny(_ListCheck, frozen=True, kw_only=True):
    """One of the texts occurs in the answer, in upper or lower case."""


class IContainsAll(_ListCheck, frozen=True, kw_only=True):
    """All of the texts occur in the answer, in upper or lower case."""


class Regex(_AgainstReference, frozen=True, kw_only=True):
    """The pattern is found in the answer. `flags` are letters: i, m, s, x, a."""

    aliases: ClassVar[dict[str, str]] = {"pattern": "value"}

    value: str | None = None
    flags: str = ""

    def complaints(self) -> list[str]:
        """Unknown flags, or a pattern that does not compile."""
        unknown = sorted(set(self.flags) - set(FLAGS) - set(NO_EFFECT))
        if unknown:
            return [f"Unknown regex flag '{unknown[0]}' in 'flags'; known are {', '.join(FLAGS)}"]
        try:
            re.compile(self.value or "", self.compile_flags)
        except (re.error, OverflowError, RecursionError) as error:
            return [f"'value' is no regular expression: {error}"]
        return []

    @property
    def compile_flags(self) -> int:
        """The flags as the `re` module takes them."""
        return sum(flag for letter, flag in FLAGS.items() if letter in self.flags)


class IsJson(Evaluator, frozen=True, kw_only=True):
    """The answer is JSON, and fits `schema` where one is given."""

    aliases: ClassVar[dict[str, str]] = {"value": "schema"}
    files: ClassVar[tuple[str, ...]] = ("schema",)

    schema: dict[str, Any] | str | None = None


class JsonSchema(Evaluator, frozen=True, kw_only=True):
    """The answer is JSON that fits `schema`, an object or a file's path."""

    aliases: ClassVar[dict[str, str]] = {"value": "schema"}
    files: ClassVar[tuple[str, ...]] = ("schema",)

    schema: dict[str, Any] | str


class Levenshtein(_AgainstReference, frozen=True, kw_only=True):
    """One minus the share of characters to change; with `threshold` or `max_distance` (a number of edits), 0 or 1."""

    value: Scalar | None = None
    threshold: Limit | None = None
    max_distance: Count | None = None

    def complaints(self) -> list[str]:
        """A threshold that is meant as a number of edits, or both limits."""
        if self.threshold is not None and self.max_distance is not None:
            return ["Give 'threshold' or 'max_distance', not both"]
        if self.threshold is not None and self.threshold > 1:
            return ["'threshold' is a share from 0 to 1; a number of edits goes into 'max_distance'"]
        return []


class Similarity(_AgainstReference, frozen=True, kw_only=True):
    """How alike the texts are, the best of several; with `threshold`, 0 or 1."""

    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "config": "Texts are compared letter by letter here, without an embedding model",
    }

    value: Scalar | Scalars | None = None
    threshold: Share | None = None
