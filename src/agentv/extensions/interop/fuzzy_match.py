"""The comparison of `FuzzyMatch` in OpenAI Evals, as an evaluator."""

from __future__ import annotations

import re
import string

from agentv.evaluators.base import AgainstReference, Scalar, Scalars, cut, missed, passed, quoted
from agentv.model.evaluator import Score
from agentv.model.job import Judgement

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


class FuzzyMatch(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The answer contains one of the texts, or is a part of it, as in `FuzzyMatch` of OpenAI Evals.

    Case, ASCII punctuation, the articles a, an and the, and repeated white space do not matter.
    """

    value: Scalar | Scalars | None = None

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if any text matches, otherwise 0."""
        texts, answer = self.texts(judgement), _normalized(judgement.candidate_answer)
        for text in texts:
            reference = _normalized(text)
            if answer == reference or (answer and reference and (answer in reference or reference in answer)):
                return passed(f"matches {quoted(text)}")
        return missed(cut(f"matches none of {', '.join(map(quoted, texts))}"))


def _normalized(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
