"""How alike the answer and a text are: letter by letter, word by word, or by what they mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec
from rapidfuzz import fuzz
from rapidfuzz.distance.Indel import normalized_similarity
from rapidfuzz.distance.Levenshtein import distance

from agentv.evaluators.base import (
    OTHER_TOOLS,
    AgainstReference,
    Count,
    Limit,
    Scalar,
    Scalars,
    Share,
    limited,
    near,
    quoted,
    reference_text,
    reference_texts,
    text_of,
)
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.model.response import Response

Method = Literal["ratio", "partial_ratio", "token_sort_ratio", "token_set_ratio", "embedding"]


class Similarity(AgainstReference, frozen=True, kw_only=True, dict=True):
    """How alike the answer and `value` are, the best of several values; with `threshold`, 0 or 1.

    `method`: `ratio` compares letters in their order; `partial_ratio` the best place in the longer text;
    `token_sort_ratio` words in any order; `token_set_ratio` words, those that only one text has aside; `embedding`
    meanings: the cosine of the vectors that the target named in `target` makes of the texts, below 0 counting as 0.
    """

    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "config": "Write `method: embedding`, and name in `target` a target that makes embeddings",
        "provider": "Write `method: embedding`, and name in `target` a target that makes embeddings",
    }

    value: Scalar | Scalars | None = None
    method: Method = "ratio"
    threshold: Share | None = None

    @property
    def is_plain(self) -> bool:
        """Only embeddings have to be waited for."""
        return self.method != "embedding"

    @property
    def needs(self) -> Needs:
        """The method `embedding` needs a target that makes embeddings."""
        return Needs(reference=self.value is None, embedder=self.method == "embedding")

    def score(self, judgement: Judgement) -> Score:
        """The share of letters or words that both texts have."""
        answer = judgement.candidate_answer.strip()
        return self._best([(_ratio(self.method, answer, text), text) for text in self._texts(judgement)])

    async def evaluate(self, judgement: Judgement) -> Score:
        """The same for every method; with `embedding` it asks the target once for all texts."""
        if self.is_plain:
            return self.score(judgement)
        if judgement.embed is None:
            raise EvaluatorFailure("There is no target that makes embeddings")
        answer = judgement.candidate_answer.strip()
        texts = self._texts(judgement)
        if not answer:
            return self._best([(0.0, text) for text in texts])
        response = await judgement.embed((answer, *texts))
        own, *others = _vectors(response, len(texts) + 1)
        return self._best([(cosine(own, vector), text) for vector, text in zip(others, texts, strict=True)])

    def _texts(self, judgement: Judgement) -> list[str]:
        if self.value is None:
            return reference_texts(judgement)
        return [text_of(item) for item in self.value] if isinstance(self.value, list) else [text_of(self.value)]

    def _best(self, shares: Sequence[tuple[float, str]]) -> Score:
        share, text = max(shares)
        how = "" if self.method == "ratio" else f" by {self.method}"
        return near(share, self.threshold, f"similarity {share:.3g}{how} to {quoted(text)}")


def _vectors(response: Response, wanted: int) -> list[list[float]]:
    """The vectors in an answer. Raises EvaluatorFailure for anything else."""
    try:
        vectors = msgspec.convert(response.messages[-1].content, list[list[float]])
    except (msgspec.ValidationError, IndexError) as error:
        raise EvaluatorFailure(f"The target made no embeddings: {error}") from None
    if len(vectors) != wanted:
        raise EvaluatorFailure(f"The target made {len(vectors)} embeddings of {wanted} texts")
    return vectors


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two vectors, from 0 to 1: texts that point apart are as unlike as those that share nothing."""
    if len(one) != len(other):
        raise EvaluatorFailure(f"The embeddings have different lengths: {len(one)} and {len(other)}")
    length = math.hypot(*one) * math.hypot(*other)
    if not math.isfinite(length) or not length:
        raise EvaluatorFailure("An embedding has no direction: all of its numbers are 0, or one is not finite")
    product = math.fsum(left * right for left, right in zip(one, other, strict=True))
    return min(1.0, max(0.0, product / length))


def _ratio(method: str, one: str, other: str) -> float:
    """A measure from 0 to 1 by its name."""
    if method == "ratio":
        return normalized_similarity(one, other)
    return float(getattr(fuzz, method)(one, other) / 100)


class Levenshtein(AgainstReference, frozen=True, kw_only=True, dict=True):
    """One minus the share of characters to change; with `threshold` or `max_distance` (a number of edits), 0 or 1."""

    value: Scalar | None = None
    threshold: Limit | None = None
    max_distance: Count | None = None

    def score(self, judgement: Judgement) -> Score:
        """How little of the longer text must change, or whether that is little enough."""
        wanted = reference_text(judgement) if self.value is None else text_of(self.value)
        answer = judgement.candidate_answer.strip()
        edits = distance(answer, wanted)
        share = 1.0 - edits / max(len(answer), len(wanted), 1)
        sentence = f"{edits} {'edit' if edits == 1 else 'edits'} away from {quoted(wanted)}, similarity {share:.3g}"
        if self.max_distance is not None:
            return limited(edits <= self.max_distance, f"{sentence}; at most {self.max_distance} edits wanted")
        return near(share, self.threshold, sentence)

    def complaints(self) -> list[str]:
        """A threshold that is meant as a number of edits, or both limits."""
        if self.threshold is not None and self.max_distance is not None:
            return ["Give 'threshold' or 'max_distance', not both"]
        if self.threshold is not None and self.threshold > 1:
            return ["'threshold' is a share from 0 to 1; a number of edits goes into 'max_distance'"]
        return []
