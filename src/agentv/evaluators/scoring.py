"""What the types that score share: sentences about an answer, numbers that are scores, files of the user's."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import msgspec

from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure, Score

LONGEST_SENTENCE = 200
LONGEST_REASON = 2000
MOST_SENTENCES = 50
_LAST_BITS = 1e-9
"""A mean of parts may miss 1 or a limit by the last bits; these decide nothing."""


def quoted(value: Any) -> str:
    """A value as a sentence shows it: on one line, in quotes, cut when it is long."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{cut(' '.join(text[: 4 * LONGEST_SENTENCE].split()))}'"


def cut(text: str, longest: int = LONGEST_SENTENCE) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def bounded(sentences: tuple[str, ...]) -> tuple[str, ...]:
    """Sentences of a model, so many and so long as anybody reads: a record must not grow with what a model says."""
    return tuple(cut(sentence, LONGEST_REASON) for sentence in sentences[:MOST_SENTENCES])


def passed(*sentences: str) -> Score:
    """The full score, and what was found."""
    return Score(1.0, hits=sentences)


def missed(*sentences: str) -> Score:
    """No score, and what was not found."""
    return Score(0.0, misses=sentences)


def limited(holds: bool, sentence: str) -> Score:
    """The full score or none, and the sentence for either."""
    return passed(sentence) if holds else missed(sentence)


def near(share: float, threshold: float | None, sentence: str) -> Score:
    """How near two things are, or with a threshold whether that is near enough, the last bits aside."""
    if threshold is None:
        return Score(share, reasoning=sentence)
    return limited(round(share, 12) >= threshold, f"{sentence}; at least {threshold:.3g} wanted")


def at_most(value: float, limit: float) -> bool:
    """Whether a value keeps within a limit, the last bits of a sum aside."""
    return value <= limit or math.isclose(value, limit, rel_tol=_LAST_BITS, abs_tol=0.0)


def as_share(value: Any, source: str) -> float:
    """A number from 0 to 1 that `source` gave as its score. Anything else raises EvaluatorFailure."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluatorFailure(f"{source} gave no number as its score: {_as_written(value)}")
    if not -_LAST_BITS <= value <= 1 + _LAST_BITS:
        raise EvaluatorFailure(f"{source} gave {value} as its score; a score is a number from 0 to 1")
    return min(1.0, max(0.0, float(value)))


def _as_written(value: Any) -> str:
    """A value as JSON has it, a text in its quotes; what JSON has no form for, as Python does."""
    try:
        return cut(msgspec.json.encode(value).decode())
    except (TypeError, ValueError):
        return cut(repr(value))


def as_sentences(value: Any, source: str) -> tuple[str, ...]:
    """Hits or misses that `source` gave: a list of texts, or one text; null is none."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise EvaluatorFailure(f"{source} must be a list of texts, got {type(value).__name__}")
    return tuple(item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in value)


def file_finder(judgement: Judgement) -> Callable[[str], str]:
    """Finds a file that settings name; what the dataset's lookup leaves relative counts from the dataset's folder."""

    def find(value: str) -> str:
        return os.path.join(judgement.workdir, judgement.find_file(value))

    return find
