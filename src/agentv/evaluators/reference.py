"""What an answer is held against: the reference answer of its case, as text or as the data that it is."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure


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
