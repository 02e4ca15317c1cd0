"""The pairwise judge: is the answer better than another one? Judged twice, with the positions swapped."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import Judge
from agentv.evaluators.judges.judge_prompt import Material, built_in, builtin_prompts, material_of
from agentv.evaluators.judges.judge_responses import (
    ResponseFormat,
    UnusableResponse,
    call_judges,
    object_schema,
    read_text,
    vote_details,
)
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement

_CHOICES = ("first", "second", "tie")
SCHEMA = object_schema(
    {"reasoning": {"type": "string"}, "better": {"type": "string", "enum": list(_CHOICES)}}, title="preference"
)
_POINTS = {"answer": 1.0, "tie": 0.5, "other": 0.0}


class Preference(msgspec.Struct, frozen=True):
    """A judge's choice: the first answer, the second, or neither."""

    better: str
    reasoning: str | None = None


class Pairwise(Judge, frozen=True, kw_only=True):
    """A judge compares the answer with another one: `value`, or the expected output.

    Each judge is called twice per vote, with the two answers in both positions. The score is 1 if the answer is better,
    0.5 for a tie and 0 if the other is better, averaged over all calls: a judge that always prefers the same position
    scores 0.5. `criteria` are what the answers are compared by, instead of the expected outcome.
    """

    aliases: ClassVar[dict[str, str]] = {"baseline": "value", "prompt": "criteria"}

    value: str | None = None
    criteria: str | None = None

    def complaints(self) -> list[str]:
        """A blank answer to compare with, or blank criteria."""
        texts = {"value": self.value, "criteria": self.criteria}
        return [f"'{name}' is blank" for name, text in texts.items() if text is not None and not text.strip()]

    @property
    def needs(self) -> Needs:
        """Two judge calls per vote, and the reference unless `value` is set."""
        return Needs(judge_calls=2 * self.votes, reference=self.value is None)

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """The texts of the comparison."""
        return builtin_prompts("pairwise", "preference", include_trace=self.include_trace)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Call the judges with the answer first and with the answer second."""
        other = judgement.reference_answer if self.value is None else self.value
        if not other.strip():
            raise EvaluatorFailure("pairwise needs a 'value' or an expected_output to compare with")
        orders = [(judgement.candidate_answer, other), (other, judgement.candidate_answer)]
        # Wait for both orders even if one fails: each call is paid for and belongs in the record.
        outcomes = await asyncio.gather(*(self._votes(judgement, *order) for order in orders), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        ahead, behind = (outcome for outcome in outcomes if not isinstance(outcome, BaseException))
        return _score([*_named(ahead, "answer", "other"), *_named(behind, "other", "answer")])

    async def _votes(self, judgement: Judgement, first: str, second: str) -> list[tuple[str, Preference]]:
        material = material_of(judgement, include_trace=self.include_trace)
        values = {**material.values, "first_answer": first, "second_answer": second}
        prompt = built_in("pairwise", "preference", Material(values, material.trace), self.criteria or "")
        form = ResponseFormat(SCHEMA, read_preference, quoted=prompt.quoted, decision=lambda found: found.better)
        return await call_judges(self, judgement, prompt.messages, form)


def read_preference(data: dict[str, Any]) -> Preference:
    """Read a preference from a judge's object. Raises UnusableResponse."""
    if (better := data.get("better")) not in _CHOICES:
        raise UnusableResponse(f"'better' must be one of {', '.join(_CHOICES)}")
    return Preference(better, read_text(data, "reasoning"))


def _named(votes: Sequence[tuple[str, Preference]], first: str, second: str) -> list[tuple[str, str, Preference]]:
    """Return each vote with its judge and the answer it prefers: `answer`, `other` or `tie`."""
    names = {"first": first, "second": second, "tie": "tie"}
    return [(judge, names[vote.better], vote) for judge, vote in votes]


def _score(votes: Sequence[tuple[str, str, Preference]]) -> Score:
    points = [_POINTS[preferred] for _, preferred, _ in votes]
    score = sum(points) / len(points)
    summaries = [
        {"judge": judge, "score": _POINTS[preferred], "better": preferred, "reasoning": vote.reasoning}
        for judge, preferred, vote in votes
    ]
    counts = {name: sum(preferred == name for _, preferred, _ in votes) for name in _POINTS}
    sentence = f"better in {counts['answer']} of {len(votes)} comparisons, {counts['tie']} ties"
    is_consistent = len({preferred for _, preferred, _ in votes}) == 1
    nearest = min(votes, key=lambda vote: abs(_POINTS[vote[1]] - score))[2]
    return Score(
        score,
        hits=(sentence,) if score > 0.5 else (),
        misses=(sentence,) if score <= 0.5 else (),
        reasoning=nearest.reasoning,
        details={**vote_details(summaries, "mean"), "consistent": is_consistent},
    )
