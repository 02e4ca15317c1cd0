"""Checks of the answer's text: parts that it contains, its beginning or end, the whole text, a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import (
    BLANK,
    AgainstReference,
    Scalar,
    Scalars,
    cut,
    missed,
    passed,
    quoted,
    reference_text,
    reference_texts,
    reference_value,
    text_of,
)
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement
from agentv.support.json_values import same
from agentv.support.patterns import SlowPattern, search


class _TextCheck(AgainstReference, frozen=True, kw_only=True, dict=True):
    """A check that holds or does not; `says` is the sentence for when it does, `denies` for when it does not.

    `folds` takes upper and lower case for the same.
    """

    says: ClassVar[str]
    denies: ClassVar[str]
    folds: ClassVar[bool] = False

    value: Scalar | None = None

    def score(self, judgement: Judgement) -> Score:
        """1 when it holds, else 0."""
        text, hit, miss = self._fixed or self._outcomes(reference_text(judgement))
        return hit if self._holds(judgement.candidate_answer, text) else miss

    def complaints(self) -> list[str]:
        """A text that every answer would have."""
        return [f"'value' {BLANK}"] if self.value is not None and not text_of(self.value) else []

    @cached_property
    def _fixed(self) -> tuple[str, Score, Score] | None:
        """The text of the settings with its outcomes, made once; None when each case brings its own."""
        return None if self.value is None else self._outcomes(text_of(self.value))

    def _outcomes(self, text: str) -> tuple[str, Score, Score]:
        """The text to look for, and the score for either outcome."""
        if not text:
            raise EvaluatorFailure(f"The text to look for {BLANK}")
        sought = text.casefold() if self.folds else text
        return sought, passed(f"{self.says} {quoted(text)}"), missed(f"{self.denies} {quoted(text)}")

    def _holds(self, answer: str, text: str) -> bool:
        return text in (answer.casefold() if self.folds else answer)


class _ListCheck(AgainstReference, frozen=True, kw_only=True, dict=True):
    """A check for several texts; `folds` takes upper and lower case for the same."""

    folds: ClassVar[bool] = False
    aliases: ClassVar[dict[str, str]] = {"values": "value"}
    hints: ClassVar[dict[str, str]] = {"value": "Write a list: `value: [one, other]`"}

    value: Scalars | None = None

    def complaints(self) -> list[str]:
        """A text that every answer would have."""
        return [f"'value[{index}]' {BLANK}" for index, item in enumerate(self.value or ()) if not text_of(item)]

    @cached_property
    def _given(self) -> list[str] | None:
        return None if self.value is None else [text_of(item) for item in self.value]

    def _found(self, judgement: Judgement) -> list[tuple[str, bool]]:
        """Each text, and whether the answer contains it."""
        texts = reference_texts(judgement) if self._given is None else self._given
        if not texts or not all(texts):
            raise EvaluatorFailure(f"A text to look for {BLANK}")
        fold: Callable[[str], str] = str.casefold if self.folds else str
        answer = fold(judgement.candidate_answer)
        return [(text, fold(text) in answer) for text in texts]


class Contains(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The text occurs in the answer."""

    says: ClassVar[str] = "contains"
    denies: ClassVar[str] = "does not contain"


class IContains(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The text occurs in the answer, in upper or lower case."""

    says: ClassVar[str] = "contains, in upper or lower case,"
    denies: ClassVar[str] = "does not contain, in upper or lower case,"
    folds: ClassVar[bool] = True


class StartsWith(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The answer begins with the text."""

    says: ClassVar[str] = "begins with"
    denies: ClassVar[str] = "does not begin with"

    def _holds(self, answer: str, text: str) -> bool:
        return answer.lstrip().startswith(text)


class EndsWith(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The answer ends with the text."""

    says: ClassVar[str] = "ends with"
    denies: ClassVar[str] = "does not end with"

    def _holds(self, answer: str, text: str) -> bool:
        return answer.rstrip().endswith(text)


class ContainsAny(_ListCheck, frozen=True, kw_only=True, dict=True):
    """One of the texts occurs in the answer."""

    def score(self, judgement: Judgement) -> Score:
        """1 when one is there, else 0."""
        found = self._found(judgement)
        text = next((text for text, is_there in found if is_there), None)
        if text is not None:
            return passed(f"contains {quoted(text)}")
        return missed(cut(f"contains none of {', '.join(quoted(text) for text, _ in found)}"))


class ContainsAll(_ListCheck, frozen=True, kw_only=True, dict=True):
    """All of the texts occur in the answer."""

    def score(self, judgement: Judgement) -> Score:
        """1 when all are there, else 0."""
        found = self._found(judgement)
        hits = tuple(f"contains {quoted(text)}" for text, is_there in found if is_there)
        misses = tuple(f"does not contain {quoted(text)}" for text, is_there in found if not is_there)
        return Score(0.0 if misses else 1.0, hits, misses)


class IContainsAny(ContainsAny, frozen=True, kw_only=True, dict=True):
    """One of the texts occurs in the answer, in upper or lower case."""

    folds: ClassVar[bool] = True


class IContainsAll(ContainsAll, frozen=True, kw_only=True, dict=True):
    """All of the texts occur in the answer, in upper or lower case."""

    folds: ClassVar[bool] = True


class Equals(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The answer is this text, or this JSON value."""

    value: Scalar | dict[str, Any] | list[Any] | None = None

    def score(self, judgement: Judgement) -> Score:
        """1 when text and text, or value and value, are equal, else 0."""
        wanted = reference_value(judgement) if self.value is None else self.value
        answer = judgement.candidate_answer.strip()
        # A number also equals its text as it was written, which JSON may write in another way.
        holds = isinstance(wanted, str | int | float) and answer == text_of(wanted)
        if not holds and not isinstance(wanted, str):
            with suppress(ValueError, RecursionError):
                holds = same(msgspec.json.decode(answer), wanted)
        if holds:
            return passed(f"equals {quoted(wanted)}")
        return missed(f"is {quoted(answer)} and not {quoted(wanted)}")


FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "a": re.ASCII}
NO_EFFECT = "gu"
"""Flags of JavaScript that change nothing here: a search stops at the first match and text is Unicode."""


class Regex(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The pattern is found in the answer. `flags` are letters: i, m, s, x, a.

    It is searched for, not matched from the beginning: `^` and `$` say so. A pattern that backtracks for longer than
    five seconds is an error of its case.
    """

    aliases: ClassVar[dict[str, str]] = {"pattern": "value"}

    value: str | None = None
    flags: str = ""

    def score(self, judgement: Judgement) -> Score:
        """1 when the pattern is found, else 0."""
        pattern = self._pattern or self._compiled(reference_text(judgement))
        try:
            found = search(pattern, judgement.candidate_answer.strip())
        except SlowPattern as error:
            raise EvaluatorFailure(f"{error}: {quoted(pattern.pattern)}") from None
        if found is None:
            return missed(f"does not match {quoted(pattern.pattern)}")
        return passed(f"matches {quoted(pattern.pattern)} with {quoted(found[0])}")

    def complaints(self) -> list[str]:
        """Unknown flags, or a pattern that is blank or does not compile."""
        unknown = sorted(set(self.flags) - set(FLAGS) - set(NO_EFFECT))
        if unknown:
            return [f"Unknown regex flag '{unknown[0]}' in 'flags'; known are {', '.join(FLAGS)}"]
        if self.value == "":
            return [f"'value' {BLANK}"]
        try:
            re.compile(self.value or "", self.compile_flags)
        except (re.error, OverflowError, RecursionError) as error:
            return [f"'value' is no regular expression: {error}"]
        return []

    @property
    def compile_flags(self) -> int:
        """The flags as the `re` module takes them."""
        return sum(flag for letter, flag in FLAGS.items() if letter in self.flags)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return None if self.value is None else self._compiled(self.value)

    def _compiled(self, pattern: str) -> re.Pattern[str]:
        if not pattern:
            raise EvaluatorFailure(f"The pattern {BLANK}")
        try:
            return re.compile(pattern, self.compile_flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise EvaluatorFailure(f"{quoted(pattern)} is no regular expression: {error}") from None
