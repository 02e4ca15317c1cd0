"""Equality: the answer is this text, or this JSON value."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.evaluators.reference import AgainstReference, Scalar, reference_value, text_of
from agentv.evaluators.scoring import missed, passed, quoted
from agentv.json_values import same
from agentv.model.judgement import Judgement
from agentv.model.score import Score


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
