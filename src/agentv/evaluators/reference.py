"""What an answer is held against: the reference answer of its case, as text or as the data that it is."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.evaluators.base import Evaluator
from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure

Scalar = str | int | float | bool
"""What stands for a text: YAML gives `value: 42` as a number."""

Scalars = Annotated[list[Scalar], Meta(min_length=1)]

BLANK = "is blank, so every answer would pass"


class AgainstReference(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that takes the reference answer when no `value` is given. Subclasses say what a value is."""

    @property
    def needs_reference(self) -> bool:
        """Without `value` the expected output takes its place."""
        return getattr(self, "value", None) is None


def text_of(value: Any) -> str:
    """A value as the text that it is compared as: trimmed; true and data as JSON writes them."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return msgspec.json.encode(value).decode()
    return str(value)


def reference_text(judgement: Judgement) -> str:
    """The reference answer, trimmed. Raises EvaluatorFailure when the case has none."""
    if not judgement.has_reference:
        raise EvaluatorFailure("The check needs a 'value' or an expected_output")
    return judgement.reference_answer.strip()


def reference_value(judgement: Judgement) -> Any:
    """The reference answer: data as it is, anything else as text."""
    text = reference_text(judgement)
    content = judgement.case.expected_output[-1].content
    return text if content is None or isinstance(content, str | tuple) else content


def reference_texts(judgement: Judgement) -> list[str]:
    """The reference answer as texts: each item of a list, else the one text that it is."""
    reference = reference_value(judgement)
    return [text_of(item) for item in reference] if isinstance(reference, list) else [text_of(reference)]
