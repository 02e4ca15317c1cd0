"""The LLM judge and its presets: a model reads the question, the answer and what was expected, and gives a score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import (
    LONGEST_REASON,
    NEEDS_CONTEXT,
    Judge,
    Prompt,
    as_sentences,
    as_share,
    bounded,
    cut,
    has_context,
    prompt_complaints,
)
from agentv.evaluators.judges.judge_prompt import (
    JudgePrompt,
    Material,
    built_in,
    builtin_prompts,
    judge_prompt,
    material_of,
    prompt_references,
)
from agentv.evaluators.judges.replies import Form, Unfit, ask_judges, majority, mean, spread
from agentv.evaluators.judges.rubric import Rubric, Rubrics, rubric_complaints, rubric_items
from agentv.model.evaluator import EvaluatorFailure, FileReference, Needs, Score
from agentv.model.job import Judgement

SCHEMA: dict[str, Any] = {
    "title": "verdict",
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "hits": {"type": "array", "items": {"type": "string"}},
        "misses": {"type": "array", "items": {"type": "string"}},
        "score": {"type": "number"},
    },
    "required": ["reasoning", "hits", "misses", "score"],
    "additionalProperties": False,
}
"""Why comes before how much: what a model has written already is what it goes on from."""


LONGEST_MORE = 20_000
"""Bytes of what a judge says besides: it goes into the record as it is."""


class JudgeVerdict(msgspec.Struct, frozen=True):
    """A judge's verdict. `more` are keys that were not asked for."""

    score: float
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    reasoning: str | None = None
    more: dict[str, Any] = {}


class LlmJudge(Judge, frozen=True, kw_only=True):
    """A judge with the built-in prompt or the user's own, in which `rubrics` may be used.

    With `rubrics` and no prompt it is a rubric.
    """

    aliases: ClassVar[dict[str, str]] = {"rubric_prompt": "prompt"}

    prompt: Prompt | None = None
    rubrics: Rubrics | None = None

    def complaints(self) -> list[str]:
        """A prompt of no known form, or wrong rubric items."""
        return prompt_complaints(self.prompt) + rubric_complaints(self.rubrics)

    def references(self) -> Iterator[FileReference]:
        """The prompt."""
        return prompt_references(self.prompt)

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """Those of the built-in prompt, or around the user's."""
        if self.prompt is None and self.rubrics is not None:
            return _as_rubric(self).builtin_prompts
        name = "llm_judge" if self.prompt is None else None
        return builtin_prompts(name, "verdict", include_trace=self.include_trace)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Asks for a verdict, or for as many as there are votes and judges."""
        if self.prompt is None and self.rubrics is not None:
            return await _as_rubric(self).evaluate(judgement)
        material = material_of(judgement, rubrics=rubric_items(self.rubrics), include_trace=self.include_trace)
        asked = await judge_prompt(self.prompt, "llm_judge", "verdict", material, judgement)
        return await verdict(self, judgement, asked)


class PresetJudge(Judge, frozen=True, kw_only=True):
    """A judge with a prompt of its own, over what a case must then have."""

    prompt_name: ClassVar[str]
    reads_context: ClassVar[bool] = False

    @property
    def needs(self) -> Needs:
        """Some compare with the passages of the case, some with a reference, unless `value` gives one."""
        needs_reference = getattr(self, "value", "") is None
        return Needs(judge_calls=self.votes, context=self.reads_context, reference=needs_reference)

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """Those of the preset's prompt."""
        return builtin_prompts(self.prompt_name, "verdict", include_trace=self.include_trace)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Asks for a verdict. Raises EvaluatorFailure for a case that lacks what is to be compared."""
        if self.reads_context and not has_context(judgement.context):
            raise EvaluatorFailure(f"{self.prompt_name} {NEEDS_CONTEXT}")
        return await verdict(self, judgement, built_in(self.prompt_name, "verdict", self._material(judgement)))

    def _material(self, judgement: Judgement) -> Material:
        return material_of(judgement, include_trace=self.include_trace)


class ReferenceJudge(PresetJudge, frozen=True, kw_only=True):
    """A preset that compares with a reference."""

    value: str | None = None

    def _material(self, judgement: Judgement) -> Material:
        reference = judgement.reference_answer if self.value is None else self.value
        if not reference.strip():
            raise EvaluatorFailure(f"{self.prompt_name} needs a 'value' or an expected_output")
        return material_of(judgement, reference=reference, include_trace=self.include_trace)


class Factuality(ReferenceJudge, frozen=True, kw_only=True):
    """Does the answer agree with the facts of the reference, which is `value` or the expected output?"""

    prompt_name: ClassVar[str] = "factuality"


class Faithfulness(PresetJudge, frozen=True, kw_only=True):
    """Is every claim of the answer supported by the case's context?"""

    prompt_name: ClassVar[str] = "faithfulness"
    reads_context: ClassVar[bool] = True


class AnswerRelevance(PresetJudge, frozen=True, kw_only=True):
    """Does the answer speak to the question?"""

    prompt_name: ClassVar[str] = "answer_relevance"


class ContextRecall(ReferenceJudge, frozen=True, kw_only=True):
    """How much of the reference, which is `value` or the expected output, does the case's context hold?"""

    prompt_name: ClassVar[str] = "context_recall"
    reads_context: ClassVar[bool] = True


async def verdict(settings: Judge, judgement: Judgement, asked: JudgePrompt) -> Score:
    """The judges' verdicts on what they are asked, as one score."""
    votes = await ask_judges(settings, judgement, asked.messages, Form(SCHEMA, read_verdict, quoted=asked.quoted))
    return combined([vote.value for vote in votes], [vote.judge for vote in votes], settings.combine)


def read_verdict(reply: dict[str, Any]) -> JudgeVerdict:
    """A verdict out of a judge's object. Raises Unfit for a score that is no number from 0 to 1."""
    if "score" not in reply:
        raise Unfit("it has no 'score'")
    try:
        score = as_share(reply["score"], "it")
        hits = as_sentences(reply.get("hits"), "'hits'")
        misses = as_sentences(reply.get("misses"), "'misses'")
    except EvaluatorFailure as failure:
        raise Unfit(str(failure)) from None
    reasoning = reply.get("reasoning")
    if not isinstance(reasoning, str | None):
        raise Unfit("'reasoning' must be a text")
    more = {name: value for name, value in reply.items() if name not in SCHEMA["properties"]}
    if len(msgspec.json.encode(more)) > LONGEST_MORE:
        raise Unfit("it has more than was asked for, and too much of it")
    return JudgeVerdict(score, bounded(hits), bounded(misses), reasoning and cut(reasoning, LONGEST_REASON), more)


def combined(said: Sequence[JudgeVerdict], judges: Sequence[str], how: str | None = None) -> Score:
    """One score of all votes: their mean, or the one that most give. Words are those of the vote nearest to it."""
    scores = [each.score for each in said]
    score = majority(scores) if how == "majority" else mean(scores)
    nearest = min(said, key=lambda each: abs(each.score - score))
    details: Any = nearest.more or None
    if len(said) > 1:
        votes = [
            {"judge": judge, "score": each.score, "reasoning": each.reasoning}
            for judge, each in zip(judges, said, strict=True)
        ]
        details = {**nearest.more, "votes": votes, "combine": how or "mean", **spread(scores)}
    return Score(score, nearest.hits, nearest.misses, nearest.reasoning, details)


def _as_rubric(judge: LlmJudge) -> Rubric:
    shared = {name: getattr(judge, name) for name in Judge.__struct_fields__}
    return Rubric(rubrics=judge.rubrics, **shared)
