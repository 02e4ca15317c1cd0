"""Compare the embeddings of the answer and of texts, as `similar` of promptfoo does."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Literal

from agentv.evaluators.base import Evaluator
from agentv.evaluators.checks.similarity import vectors_of
from agentv.extensions.promptfoo.evaluators.rubric_prompt import OutOfRange, own_score
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement


class EmbeddingSimilarity(Evaluator, frozen=True, kw_only=True):
    """The similarity of the answer to the first text that reaches `threshold`, or else to the closest one.

    `measure` is `cosine`, `dot` or `euclidean`: its threshold is the largest distance d, its score 1 / (1 + d). With
    `inverse`, no text may be that close. A score below 0 or above 1 is limited, or an error. The target in `target`
    returns the embeddings.
    """

    value: list[str]
    measure: Literal["cosine", "dot", "euclidean"] = "cosine"
    threshold: float = 0.75
    inverse: bool = False
    out_of_range: OutOfRange = "limit"

    @property
    def needs(self) -> Needs:
        """An embedding target."""
        return Needs(embedder=True)

    def complaints(self) -> list[str]:
        """No text to compare with."""
        return [] if self.value else ["'value' must have a text"]

    async def evaluate(self, judgement: Judgement) -> Score:
        """Embed all texts with one call, and compare them. Raises EvaluatorFailure if the call fails."""
        if judgement.embed is None:
            raise EvaluatorFailure("No embedding target is configured")
        response = await judgement.embed((judgement.candidate_answer, *self.value))
        own, *others = vectors_of(response, len(self.value) + 1)
        results = [self._result(own, other) for other in others]
        decisive = next((result for result in results if result[0] is not self.inverse), None)
        is_pass, score = decisive or (self.inverse, (min if self.inverse else max)(score for _, score in results))
        reason = f"{self.measure} similarity {score:.3g}, threshold {self.threshold:g}"
        return own_score(is_pass, score, reason, self.out_of_range)

    def _result(self, one: Sequence[float], other: Sequence[float]) -> tuple[bool, float]:
        if len(one) != len(other):
            raise EvaluatorFailure(f"The embeddings have different lengths: {len(one)} and {len(other)}")
        figure = _figure(self.measure, one, other)
        if not math.isfinite(figure):
            raise EvaluatorFailure("The embeddings have numbers that are too large to compare")
        sign = -1 if (self.measure == "euclidean") is not self.inverse else 1
        score = 1 / (1 + figure) if self.measure == "euclidean" else figure
        return sign * (figure - self.threshold) >= -sys.float_info.epsilon, 1 - score if self.inverse else score


def _figure(measure: str, one: Sequence[float], other: Sequence[float]) -> float:
    if measure == "euclidean":
        return math.sqrt(_total((x - y) * (x - y) for x, y in zip(one, other, strict=True)))
    product = _total(x * y for x, y in zip(one, other, strict=True))
    if measure == "dot":
        return product
    lengths = [math.sqrt(_total(x * x for x in vector)) for vector in (one, other)]
    return product / (lengths[0] * lengths[1]) if all(lengths) else 0.0


def _total(numbers: Iterable[float]) -> float:
    """Return the sum as JavaScript adds: one number after the other."""
    total = 0.0
    for number in numbers:
        total += number
    return total
