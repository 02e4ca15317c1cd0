"""Checks of the answer's text: parts that it contains, its beginning or end, the whole text, a pattern."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.checks.reference import (
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
    """A check that holds or does not; `says` is the sentence for when it does, `denies` for when it does not."""

    says: ClassVar[str]
    denies: ClassVar[str]

    value: Scalar | None = None

    def score(self, judgement: Judgement) -> Score:
        """1 when it holds, else 0."""
        fixed = self._fixed
        if fixed is None:
            text = reference_text(judgement)
            if not text:
                raise EvaluatorFailure(f"The text to look for {BLANK}")
            return self._outcome(self._holds(judgement.candidate_answer, self._folded(text)), text)
        text, hit, miss = fixed
        return hit if self._holds(judgement.candidate_answer, text) else miss

    def complaints(self) -> list[str]:
        """A text that every answer would have."""
        return [f"'value' {BLANK}"] if self.value is not None and not text_of(self.value) else []

    @cached_property
    def _fixed(self) -> tuple[str, Score, Score] | None:
        """The text to look for and both outcomes, made once; None when each case brings its own."""
        if self.value is None:
            return None
        text = text_of(self.value)
        return self._folded(text), self._outcome(True, text), self._outcome(False, text)

    def _outcome(self, holds: bool, text: str) -> Score:
        return passed(f"{self.says} {quoted(text)}") if holds else missed(f"{self.denies} {quoted(text)}")

    @staticmethod
    def _folded(text: str) -> str:
        return text

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        raise NotImplementedError


class _ListCheck(AgainstReference, frozen=True, kw_only=True, dict=True):
    """A check for several texts."""

    aliases: ClassVar[dict[str, str]] = {"values": "value"}
    hints: ClassVar[dict[str, str]] = {"value": "Write a list: `value: [one, other]`"}

    value: Scalars | None = None

    def complaints(self) -> list[str]:
        """A text that every answer would have."""
        return [f"'value[{index}]' {BLANK}" for index, item in enumerate(self.value or ()) if not text_of(item)]

    @cached_property
    def _given(self) -> list[str] | None:
        return None if self.value is None else [text_of(item) for item in self.value]

    def _texts(self, judgement: Judgement) -> list[str]:
        texts = self._given
        if texts is None:
            texts = reference_texts(judgement)
        if not texts or not all(texts):
            raise EvaluatorFailure(f"A text to look for {BLANK}")
        return texts


class Contains(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The text occurs in the answer."""

    says: ClassVar[str] = "contains"
    denies: ClassVar[str] = "does not contain"

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        return text in answer


class IContains(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The text occurs in the answer, in upper or lower case."""

    says: ClassVar[str] = "contains, in upper or lower case,"
    denies: ClassVar[str] = "does not contain, in upper or lower case,"

    @staticmethod
    def _folded(text: str) -> str:
        return text.casefold()

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        return text in answer.casefold()


class StartsWith(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The answer begins with the text."""

    says: ClassVar[str] = "begins with"
    denies: ClassVar[str] = "does not begin with"

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        return answer.lstrip().startswith(text)


class EndsWith(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The answer ends with the text."""

    says: ClassVar[str] = "ends with"
    denies: ClassVar[str] = "does not end with"

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        return answer.rstrip().endswith(text)


class ContainsAny(_ListCheck, frozen=True, kw_only=True, dict=True):
    """One of the texts occurs in the answer."""

    def score(self, judgement: Judgement) -> Score:
        """1 when one is there, else 0."""
        return _any_of(self._texts(judgement), judgement.candidate_answer)


class ContainsAll(_ListCheck, frozen=True, kw_only=True, dict=True):
    """All of the texts occur in the answer."""

    def score(self, judgement: Judgement) -> Score:
        """1 when all are there, else 0."""
        return _all_of(self._texts(judgement), judgement.candidate_answer)


class IContainsAny(_ListCheck, frozen=True, kw_only=True, dict=True):
    """One of the texts occurs in the answer, in upper or lower case."""

    def score(self, judgement: Judgement) -> Score:
        """1 when one is there, else 0."""
        return _any_of(self._texts(judgement), judgement.candidate_answer.casefold(), fold=True)


class IContainsAll(_ListCheck, frozen=True, kw_only=True, dict=True):
    """All of the texts occur in the answer, in upper or lower case."""

    def score(self, judgement: Judgement) -> Score:
        """1 when all are there, else 0."""
        return _all_of(self._texts(judgement), judgement.candidate_answer.casefold(), fold=True)


def _any_of(texts: list[str], answer: str, *, fold: bool = False) -> Score:
    for text in texts:
        if (text.casefold() if fold else text) in answer:
            return passed(f"contains {quoted(text)}")
    return missed(cut(f"contains none of {', '.join(map(quoted, texts))}"))


def _all_of(texts: list[str], answer: str, *, fold: bool = False) -> Score:
    hits, misses = [], []
    for text in texts:
        if (text.casefold() if fold else text) in answer:
            hits.append(f"contains {quoted(text)}")
        else:
            misses.append(f"does not contain {quoted(text)}")
    return Score(0.0 if misses else 1.0, tuple(hits), tuple(misses))


class Equals(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The answer is this text, or this JSON value."""

    value: Scalar | dict[str, Any] | list[Any] | None = None

    def score(self, judgement: Judgement) -> Score:
        """1 when text and text, or value and value, are equal, else 0."""
        wanted = reference_value(judgement) if self.value is None else self.value
        answer = judgement.candidate_answer.strip()
        if isinstance(wanted, str):
            holds = answer == wanted.strip()
        else:
            # A number also equals its text as it was written, which JSON may write in another way.
            holds = (isinstance(wanted, int | float) and answer == text_of(wanted)) or _is_json_value(answer, wanted)
        if holds:
            return passed(f"equals {quoted(wanted)}")
        return missed(f"is {quoted(answer)} and not {quoted(wanted)}")


def _is_json_value(answer: str, wanted: Any) -> bool:
    try:
        return same(msgspec.json.decode(answer), wanted)
    except (ValueError, RecursionError):
        return False


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
