"""Similarity of the answer to a text: by characters, words or embeddings."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec
from rapidfuzz import fuzz
from rapidfuzz.distance.Indel import normalized_similarity
from rapidfuzz.distance.Levenshtein import distance

from agentv.errors import plural
from agentv.evaluators.base import (
    OTHER_TOOLS,
    AgainstReference,
    Count,
    Limit,
    Scalar,
    Scalars,
    Share,
    check_sizes,
    pass_if,
    quoted,
    reference_text,
    similarity_score,
    written,
)
from agentv.evaluators.checks.javascript_patterns import characters, code_units
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.model.response import Response

MOST_PAIRS = 4e10
MOST_SLOW_PAIRS = 2e7
"""Pairs of characters that are compared in a few seconds."""

Method = Literal["ratio", "partial_ratio", "token_sort_ratio", "token_set_ratio", "embedding"]


class Similarity(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The similarity of the answer to `value`, or to the closest of several values; with `threshold`, 0 or 1.

    | `method` | compares |
    |---|---|
    | `ratio` | characters in order |
    | `partial_ratio` | the shorter text with the best matching part of the longer one |
    | `token_sort_ratio` | words in any order |
    | `token_set_ratio` | words in any order, ignoring words that only one text has |
    | `embedding` | meaning: the cosine of embeddings from the target named in `target`; below 0 counts as 0 |
    """

    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        **dict.fromkeys(("config", "provider"), "Use `method: embedding`, and set `target` to an embedding target"),
    }

    value: Scalar | Scalars | None = None
    method: Method = "ratio"
    threshold: Share | None = None

    @property
    def is_plain(self) -> bool:
        """Whether no embeddings are needed."""
        return self.method != "embedding"

    @property
    def needs(self) -> Needs:
        """The reference unless `value` is set, and an embedding target for the method `embedding`."""
        return Needs(reference=self.value is None, embedder=self.method == "embedding")

    def score(self, judgement: Judgement) -> Score:
        """Compare characters or words."""
        answer = judgement.candidate_answer.strip()
        return self._best([(_ratio(self.method, answer, text), text) for text in self.texts(judgement)])

    async def evaluate(self, judgement: Judgement) -> Score:
        """Compare by any method. `embedding` makes one call for all texts."""
        if self.is_plain:
            return self.score(judgement)
        if judgement.embed is None:
            raise EvaluatorFailure("No embedding target is configured")
        answer = judgement.candidate_answer.strip()
        texts = self.texts(judgement)
        if not answer:
            return msgspec.structs.replace(self._best([(0.0, text) for text in texts]), is_partial=True)
        response = await judgement.embed((answer, *texts))
        own, *others = vectors_of(response, len(texts) + 1)
        return self._best([(cosine(own, vector), text) for vector, text in zip(others, texts, strict=True)])

    def _best(self, similarities: Sequence[tuple[float, str]]) -> Score:
        similarity, text = max(similarities)
        how = "" if self.method == "ratio" else f" by {self.method}"
        return similarity_score(similarity, self.threshold, f"similarity {similarity:.3g}{how} to {quoted(text)}")


def vectors_of(response: Response, count: int) -> list[list[float]]:
    """Read the vectors from a response. Raises EvaluatorFailure for anything else."""
    try:
        vectors = msgspec.convert(response.messages[-1].content, list[list[float]])
    except (msgspec.ValidationError, IndexError) as error:
        raise EvaluatorFailure(f"The target did not return embeddings: {error}") from None
    if len(vectors) != count:
        raise EvaluatorFailure(f"Expected {count} embeddings from the target, got {len(vectors)}")
    return vectors


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors, with negative values raised to 0."""
    if len(one) != len(other):
        raise EvaluatorFailure(f"The embeddings have different lengths: {len(one)} and {len(other)}")
    length = math.hypot(*one) * math.hypot(*other)
    if not math.isfinite(length) or not length:
        raise EvaluatorFailure("An embedding has no direction: all of its numbers are 0, or one is not finite")
    product = math.fsum(x * y for x, y in zip(one, other, strict=True))
    return min(1.0, max(0.0, product / length))


def _ratio(method: str, one: str, other: str) -> float:
    check_sizes(len(one), len(other), MOST_SLOW_PAIRS if method == "partial_ratio" else MOST_PAIRS)
    if method == "ratio":
        return normalized_similarity(one, other)
    return float(getattr(fuzz, method)(one, other) / 100)


class Levenshtein(AgainstReference, frozen=True, kw_only=True, dict=True):
    """One minus the fraction of characters to edit; with `threshold` or `max_distance` (number of edits), 0 or 1.

    With `exact`, white space at the ends counts, and a character that UTF-16 writes as a pair counts twice.
    """

    value: Scalar | None = None
    threshold: Limit | None = None
    max_distance: Count | None = None
    exact: bool = False

    def score(self, judgement: Judgement) -> Score:
        """Score the edit distance relative to the longer text, or 0 or 1 if there is a limit."""
        reference = reference_text(judgement) if self.value is None else written(self.value, self.exact)
        answer = judgement.candidate_answer if self.exact else judgement.candidate_answer.strip()
        if self.exact:
            answer, reference = code_units(answer), code_units(reference)
        check_sizes(len(answer), len(reference), MOST_PAIRS)
        edits = distance(answer, reference)
        similarity = 1.0 - edits / max(len(answer), len(reference), 1)
        sentence = f"{plural(edits, 'edit')} away from {quoted(characters(reference))}, similarity {similarity:.3g}"
        if self.max_distance is not None:
            return pass_if(edits <= self.max_distance, f"{sentence}; required: at most {self.max_distance}")
        return similarity_score(similarity, self.threshold, sentence)

    def complaints(self) -> list[str]:
        """Both limits, or a threshold that looks like a number of edits."""
        if self.threshold is not None and self.max_distance is not None:
            return ["Set 'threshold' or 'max_distance', not both"]
        if self.threshold is not None and self.threshold > 1:
            return ["'threshold' must be from 0 to 1; use 'max_distance' for a number of edits"]
        return []
