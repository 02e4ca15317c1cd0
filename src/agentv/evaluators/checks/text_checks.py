"""Checks of the answer's text: what it contains, starts or ends with, equals, or matches."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar, Literal

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
    reference_value,
    written,
)
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement
from agentv.support.json_values import same
from agentv.support.patterns import SlowPattern, search


class _TextCheck(AgainstReference, frozen=True, kw_only=True, dict=True):
    """A check for one text. `hit` and `miss` begin the sentences for a pass and a fail."""

    hit: ClassVar[str]
    miss: ClassVar[str]
    ignores_case: ClassVar[bool] = False

    value: Scalar | None = None
    exact: bool = False

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if the check holds, otherwise 0."""
        text, hit, miss = self._fixed or self._outcomes(reference_text(judgement))
        return hit if self._holds(judgement.candidate_answer, text) else miss

    def complaints(self) -> list[str]:
        """A blank text."""
        return [f"'value' {BLANK}"] if self.value is not None and not written(self.value, self.exact) else []

    @cached_property
    def _fixed(self) -> tuple[str, Score, Score] | None:
        """The text from the settings with its scores, computed once; None if each case has its own text."""
        return None if self.value is None else self._outcomes(written(self.value, self.exact))

    def _outcomes(self, text: str) -> tuple[str, Score, Score]:
        """Return the text to look for, and the scores for a hit and a miss."""
        if not text:
            raise EvaluatorFailure(f"The text to look for {BLANK}")
        sought = text.lower() if self.ignores_case else text
        label = f"{quoted(text)} (case-insensitive)" if self.ignores_case else quoted(text)
        return sought, passed(f"{self.hit} {label}"), missed(f"{self.miss} {label}")

    def _holds(self, answer: str, text: str) -> bool:
        return text in (answer.lower() if self.ignores_case else answer)


class _ListCheck(AgainstReference, frozen=True, kw_only=True, dict=True):
    """A check for several texts."""

    ignores_case: ClassVar[bool] = False
    aliases: ClassVar[dict[str, str]] = {"values": "value"}
    hints: ClassVar[dict[str, str]] = {"value": "Write a list: `value: [one, other]`"}

    value: Scalars | None = None
    exact: bool = False

    def complaints(self) -> list[str]:
        """A blank text."""
        return [f"'value[{index}]' {BLANK}" for index, text in enumerate(self._value_texts) if not text]

    def _found(self, judgement: Judgement) -> list[tuple[str, bool]]:
        """Return each text, and whether the answer contains it."""
        texts = self.texts(judgement)
        if not texts or not all(texts):
            raise EvaluatorFailure(f"A text to look for {BLANK}")
        fold: Callable[[str], str] = str.lower if self.ignores_case else str
        answer = fold(judgement.candidate_answer)
        return [(text, fold(text) in answer) for text in texts]


class Contains(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The text occurs in the answer. With `exact`, white space at the ends of the text counts."""

    hit: ClassVar[str] = "contains"
    miss: ClassVar[str] = "does not contain"


class IContains(Contains, frozen=True, kw_only=True, dict=True):
    """The text occurs in the answer, ignoring case. With `exact`, white space at the ends of the text counts."""

    ignores_case: ClassVar[bool] = True


class StartsWith(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The answer starts with the text. With `exact`, white space at the ends counts."""

    hit: ClassVar[str] = "starts with"
    miss: ClassVar[str] = "does not start with"

    def _holds(self, answer: str, text: str) -> bool:
        return (answer if self.exact else answer.lstrip()).startswith(text)


class EndsWith(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The answer ends with the text. With `exact`, white space at the ends counts."""

    hit: ClassVar[str] = "ends with"
    miss: ClassVar[str] = "does not end with"

    def _holds(self, answer: str, text: str) -> bool:
        return (answer if self.exact else answer.rstrip()).endswith(text)


class ContainsAny(_ListCheck, frozen=True, kw_only=True, dict=True):
    """At least one of the texts occurs in the answer. With `exact`, white space at their ends counts."""

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if any text is found, otherwise 0."""
        matches = self._found(judgement)
        if (text := next((text for text, is_found in matches if is_found), None)) is not None:
            return passed(f"contains {quoted(text)}")
        return missed(cut(f"contains none of {', '.join(quoted(text) for text, _ in matches)}"))


class ContainsAll(_ListCheck, frozen=True, kw_only=True, dict=True):
    """All of the texts occur in the answer. With `exact`, white space at their ends counts."""

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if all texts are found, otherwise 0."""
        matches = self._found(judgement)
        hits = tuple(f"contains {quoted(text)}" for text, is_found in matches if is_found)
        misses = tuple(f"does not contain {quoted(text)}" for text, is_found in matches if not is_found)
        return Score(0.0 if misses else 1.0, hits, misses)


class IContainsAny(ContainsAny, frozen=True, kw_only=True, dict=True):
    """At least one of the texts occurs in the answer, ignoring case. With `exact`, white space at their ends counts."""

    ignores_case: ClassVar[bool] = True


class IContainsAll(ContainsAll, frozen=True, kw_only=True, dict=True):
    """All of the texts occur in the answer, ignoring case. With `exact`, white space at their ends counts."""

    ignores_case: ClassVar[bool] = True


class Equals(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The answer equals a text or a JSON value. A text with a JSON object or list also equals the same JSON.

    With `exact`, white space at the ends counts, and a text equals only the same text. `exact: trimmed` is the same
    without the white space.
    """

    value: Scalar | dict[str, Any] | list[Any] | None = None
    exact: bool | Literal["trimmed"] = False

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if the answer equals the text or the JSON value, otherwise 0."""
        reference = reference_value(judgement) if self.value is None else self.value
        answer = judgement.candidate_answer if self.exact is True else judgement.candidate_answer.strip()
        # A number also equals its own text, which JSON may write differently.
        holds = isinstance(reference, str | int | float) and answer == written(reference, self.exact is True)
        is_text = isinstance(reference, str) and (self.exact or not reference.lstrip().startswith(("{", "[")))
        if not holds and not is_text:
            with suppress(ValueError, RecursionError):
                data = msgspec.json.decode(reference) if isinstance(reference, str) else reference
                holds = same(msgspec.json.decode(answer), data)
        if holds:
            return passed(f"equals {quoted(reference)}")
        return missed(f"is {quoted(answer)}, not {quoted(reference)}")


FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "a": re.ASCII}
NO_EFFECT = "gu"
"""JavaScript flags that are accepted without effect: a search stops at the first match, and text is Unicode."""


class Regex(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The pattern is found in the answer. `flags` are letters: i, m, s, x, a.

    The pattern may match anywhere; use `^` and `$` to anchor it. A pattern that backtracks for more than five seconds
    is an error. `syntax` is `python` or `javascript`. Patterns of JavaScript are matched as JavaScript does without the
    flag `u`, and white space at the ends of the answer counts.
    """

    aliases: ClassVar[dict[str, str]] = {"pattern": "value"}

    value: str | None = None
    flags: str = ""
    syntax: Literal["python", "javascript"] = "python"

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if the pattern is found, otherwise 0."""
        from agentv.evaluators.checks.javascript_patterns import characters, code_units  # late: other checks need none

        source = reference_text(judgement) if self.value is None else self.value
        pattern = self._pattern or self._compiled(source)
        answer = judgement.candidate_answer
        try:
            match = search(pattern, code_units(answer) if self.syntax == "javascript" else answer.strip())
        except SlowPattern as error:
            raise EvaluatorFailure(f"{error}: {quoted(source)}") from None
        if match is None:
            return missed(f"does not match {quoted(source)}")
        return passed(f"matches {quoted(source)} with {quoted(characters(match[0]))}")

    def complaints(self) -> list[str]:
        """Unknown flags, or a pattern that is blank or does not compile."""
        if unknown := sorted(set(self.flags) - set(FLAGS) - set(NO_EFFECT)):
            return [f"Unknown regex flag '{unknown[0]}' in 'flags'; known flags: {', '.join(FLAGS)}"]
        if self.value == "":
            return [f"'value' {BLANK}"]
        try:
            _ = self._pattern
        except EvaluatorFailure as failure:
            return [f"'value': {failure}"]
        return []

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return None if self.value is None else self._compiled(self.value)

    def _compiled(self, pattern: str) -> re.Pattern[str]:
        if not pattern:
            raise EvaluatorFailure(f"The pattern {BLANK}")
        flags = sum(flag for letter, flag in FLAGS.items() if letter in self.flags)
        try:
            if self.syntax == "javascript":
                from agentv.evaluators.checks.javascript_patterns import translated  # late: as above

                if "u" in self.flags and (escape := re.search(r"\\[pPu]\{", pattern)):
                    raise ValueError(f"'{escape[0]}' of the flag u is not supported")
                # `^`, `$` and `.` are translated with their flags.
                pattern = translated(pattern, "m" in self.flags, "s" in self.flags)
                return re.compile(pattern, flags & ~(re.MULTILINE | re.DOTALL))
            return re.compile(pattern, flags)
        except (re.error, OverflowError, RecursionError, ValueError) as error:
            raise EvaluatorFailure(f"{quoted(pattern)} is not a valid regular expression: {error}") from None
