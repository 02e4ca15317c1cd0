"""A pattern that is searched for in the answer."""

from __future__ import annotations

import re
from functools import cached_property
from typing import ClassVar

from agentv.evaluators.checks.reference import BLANK, AgainstReference, missed, passed, quoted, reference_text
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.judgement import Judgement
from agentv.support.regex_timeout import SlowPattern, search

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
