"""Judges that score the answer as a whole: by the case's expectations, by a preset, or against another answer."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import (
    NEEDS_CONTEXT,
    Judge,
    bounded,
    checked_assertions,
    checked_score,
    checked_sentences,
    has_context,
)
from agentv.evaluators.judges.answer_files import with_file_texts
from agentv.evaluators.judges.judge_prompt import (
    JudgePrompt,
    Material,
    built_in,
    builtin_prompts,
    judge_prompt,
    material_of,
)
from agentv.evaluators.judges.judge_responses import (
    ResponseFormat,
    UnusableResponse,
    all_of,
    call_judges,
    combine_votes,
    object_schema,
    read_text,
    vote_details,
)
from agentv.evaluators.judges.rubric import Rubric
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.model.message import Message

_SENTENCES = {"type": "array", "items": {"type": "string"}}
SCHEMA = object_schema(
    {"reasoning": {"type": "string"}, "hits": _SENTENCES, "misses": _SENTENCES, "score": {"type": "number"}},
    title="verdict",
)
"""The reasoning comes before the score, so that the model reasons before it decides."""

MAX_EXTRA_BYTES = 20_000
"""Maximum size of additional keys in a judge's response, which are copied to the record."""


class LlmJudge(Rubric, frozen=True, kw_only=True):
    """A judge with the built-in prompt or a custom one.

    `criteria` are what the answer is judged by, instead of the expected outcome. With `rubrics`, it works like the type
    `rubric`: the judge checks each item, and their weights and requirements decide the score.
    """

    aliases: ClassVar[dict[str, str]] = {"rubric_prompt": "prompt"}

    criteria: str | None = None

    def complaints(self) -> list[str]:
        """Blank criteria, or criteria that nothing would read, in addition to those of a rubric."""
        own = []
        if self.criteria is not None and not self.criteria.strip():
            own.append("'criteria' is blank")
        elif self.criteria is not None and self.rubrics:
            own.append("'criteria' and 'rubrics' are both set: add the criteria to the rubrics")
        return own + super().complaints()

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """The texts of the built-in prompt, or around the user's prompt."""
        if self.rubrics:
            return super().builtin_prompts
        return builtin_prompts("llm_judge", "verdict", include_trace=self.include_trace)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Call the judges for their verdicts."""
        if self.rubrics:
            return await super().evaluate(judgement)
        judgement = await with_file_texts(self.preprocessors, judgement)
        material = material_of(judgement, include_trace=self.include_trace)
        return await verdict(self, judgement, await self._prompt(material, judgement))

    async def _prompt(self, material: Material, judgement: Judgement) -> JudgePrompt:
        if self.criteria is None:
            return await judge_prompt(self.prompt, "llm_judge", "verdict", material, judgement)
        criteria = self.criteria.strip()
        if self.prompt is None:
            return built_in("llm_judge", "verdict", material, criteria)
        replaced = Material({**material.values, "expected_outcome": criteria}, material.trace)
        prompt = await judge_prompt(self.prompt, "llm_judge", "verdict", replaced, judgement)
        if any(criteria in str(message.content) for message in prompt.messages):
            return prompt
        system, *others = prompt.messages  # the prompt does not use the criteria
        return JudgePrompt((system, Message("user", f"Criteria:\n{criteria}"), *others), prompt.quoted)


class PresetJudge(Judge, frozen=True, kw_only=True):
    """A judge with a fixed prompt. Some presets need the case's context or a reference."""

    prompt_name: ClassVar[str]
    reads_context: ClassVar[bool] = False

    @property
    def needs(self) -> Needs:
        """One judge call per vote, and the context or the reference that the preset compares with."""
        needs_reference = getattr(self, "value", "") is None
        return Needs(judge_calls=self.votes, context=self.reads_context, reference=needs_reference)

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """The texts of the preset's prompt."""
        return builtin_prompts(self.prompt_name, "verdict", include_trace=self.include_trace)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Call the judges for their verdicts. Raises EvaluatorFailure if the context or the reference is missing."""
        if self.reads_context and not has_context(judgement.context):
            raise EvaluatorFailure(f"{self.prompt_name} {NEEDS_CONTEXT}")
        return await verdict(self, judgement, self._prompt(self._material(judgement)))

    def _material(self, judgement: Judgement) -> Material:
        return material_of(judgement, include_trace=self.include_trace)

    def _prompt(self, material: Material) -> JudgePrompt:
        return built_in(self.prompt_name, "verdict", material)


class ReferenceJudge(PresetJudge, frozen=True, kw_only=True):
    """A preset that compares the answer or the context with a reference."""

    value: str | None = None

    def _material(self, judgement: Judgement) -> Material:
        reference = judgement.reference_answer if self.value is None else self.value
        if not reference.strip():
            raise EvaluatorFailure(f"{self.prompt_name} needs a 'value' or an expected_output")
        return material_of(judgement, reference=reference, include_trace=self.include_trace)


class Factuality(ReferenceJudge, frozen=True, kw_only=True):
    """Does the answer agree with the facts in the reference (`value` or the expected output)?"""

    prompt_name: ClassVar[str] = "factuality"


class Faithfulness(PresetJudge, frozen=True, kw_only=True):
    """Is every claim in the answer supported by the case's context?"""

    prompt_name: ClassVar[str] = "faithfulness"
    reads_context: ClassVar[bool] = True


class AnswerRelevance(PresetJudge, frozen=True, kw_only=True):
    """Does the answer address the input?"""

    prompt_name: ClassVar[str] = "answer_relevance"


class ContextRecall(ReferenceJudge, frozen=True, kw_only=True):
    """How much of the reference (`value` or the expected output) does the case's context contain?"""

    prompt_name: ClassVar[str] = "context_recall"
    reads_context: ClassVar[bool] = True


class ContextPrecision(ReferenceJudge, frozen=True, kw_only=True):
    """Are the passages of the case's context useful for the reference, and do the useful ones come first?"""

    prompt_name: ClassVar[str] = "context_precision"
    reads_context: ClassVar[bool] = True


class ContextRelevance(PresetJudge, frozen=True, kw_only=True):
    """How much of the case's context is needed to answer the input?"""

    prompt_name: ClassVar[str] = "context_relevance"
    reads_context: ClassVar[bool] = True


class Refusal(PresetJudge, frozen=True, kw_only=True):
    """Does the answer decline to do what was asked? It scores 1 if it does; `not-refusal` expects an answer."""

    prompt_name: ClassVar[str] = "refusal"


class Moderation(PresetJudge, frozen=True, kw_only=True):
    """Is the answer free of harmful content, by the judgement of the model in `target`?

    `categories` replace the usual ones: hate, harassment, violence, self-harm, sexual content, crimes, private data.
    """

    prompt_name: ClassVar[str] = "moderation"
    aliases: ClassVar[dict[str, str]] = {"value": "categories"}

    categories: list[str] = []

    def _prompt(self, material: Material) -> JudgePrompt:
        return built_in(self.prompt_name, "verdict", material, categories=self.categories)


async def verdict(settings: Judge, judgement: Judgement, prompt: JudgePrompt) -> Score:
    """Call the judges and combine their verdicts into one score."""
    form = verdict_format(prompt.quoted)
    return combined(await call_judges(settings, judgement, prompt.messages, form), settings.combine or "mean")


def verdict_format(quoted: tuple[str, ...] = ()) -> ResponseFormat[Score]:
    """Return the format of a verdict. Two verdicts with the same score agree."""
    return ResponseFormat(SCHEMA, read_verdict, quoted=quoted, decision=lambda reply: reply.score)


def read_verdict(data: dict[str, Any]) -> Score:
    """Read a verdict from a judge's object; additional keys become details. Raises UnusableResponse."""
    if "score" not in data:
        raise UnusableResponse("it has no 'score'")
    try:
        score = checked_score(data["score"], "it")
        hits = checked_sentences(data.get("hits"), "'hits'")
        misses = checked_sentences(data.get("misses"), "'misses'")
    except EvaluatorFailure as failure:
        raise UnusableResponse(str(failure)) from None
    if not hits and not misses:
        with suppress(EvaluatorFailure):  # a prompt of AgentV (TypeScript) may ask for assertions instead
            hits, misses = map(tuple, checked_assertions(data.get("assertions"), "it")[:2])
    extra = {name: value for name, value in data.items() if name not in SCHEMA["properties"]}
    if isinstance(details := extra.get("details"), dict):
        extra = {**{name: value for name, value in extra.items() if name != "details"}, **details}
    if len(msgspec.json.encode(extra)) > MAX_EXTRA_BYTES:
        raise UnusableResponse("its additional keys are too large")
    return Score(score, bounded(hits), bounded(misses), read_text(data, "reasoning"), extra or None)


def combined(votes: Sequence[tuple[str, Score]], combine: str) -> Score:
    """Combine votes into their mean or majority score. Hits, misses and reasoning are those of the nearest vote."""
    score = combine_votes([vote.score for _, vote in votes], combine)
    nearest = min((vote for _, vote in votes), key=lambda vote: abs(vote.score - score))
    details = nearest.details
    if len(votes) > 1:
        summaries = [{"judge": judge, "score": vote.score, "reasoning": vote.reasoning} for judge, vote in votes]
        details = {**(details or {}), **vote_details(summaries, combine)}
    return msgspec.structs.replace(nearest, score=score, details=details)


_CHOICES = ("first", "second", "tie")
PREFERENCE_SCHEMA = object_schema(
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
        ahead, behind = await all_of(self._votes(judgement, *order) for order in orders)
        return _score([*_named(ahead, "answer", "other"), *_named(behind, "other", "answer")])

    async def _votes(self, judgement: Judgement, first: str, second: str) -> list[tuple[str, Preference]]:
        material = material_of(judgement, include_trace=self.include_trace)
        values = {**material.values, "first_answer": first, "second_answer": second}
        prompt = built_in("pairwise", "preference", Material(values, material.trace), self.criteria or "")
        form = ResponseFormat(
            PREFERENCE_SCHEMA, read_preference, quoted=prompt.quoted, decision=lambda reply: reply.better
        )
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
