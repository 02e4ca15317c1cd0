"""The judge of a context that is a part of the answer, as `contextTransform` of promptfoo reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

from agentv.evaluators.base import Judge, has_context
from agentv.evaluators.code.static_checks import transform_references
from agentv.evaluators.judges.judge_prompt import Material, built_in, builtin_prompts, material_of
from agentv.evaluators.judges.llm_judge import verdict
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.job import Judgement
from agentv.settings.transform import Transform, TransformFailure, apply_transform


class ContextGraded(Judge, frozen=True, kw_only=True):
    """A judge of the type in `grades` whose context is read from the answer instead of the case.

    `passages` is a transform of the answer that returns a text, or a list of texts. `answer` is a transform that
    returns the text to judge. `value` is the reference of `context_recall`.
    """

    grades: Literal["faithfulness", "context_relevance", "context_recall"]
    passages: Transform | list[Transform]
    answer: Transform | list[Transform] = []
    value: str = ""

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """The texts of the judge's prompt."""
        return builtin_prompts(self.grades, "verdict", include_trace=self.include_trace)

    def references(self) -> Iterator[FileReference]:
        """The code of the transforms."""
        yield from transform_references(self.passages)
        yield from transform_references(self.answer)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Read the context, and call the judges. Raises EvaluatorFailure if there is no context."""
        source = judgement.candidate_value
        more = (judgement.find_file, judgement.case.variables, judgement.response.metadata)
        try:
            context, value = [
                await asyncio.to_thread(apply_transform, source, steps, *more) for steps in (self.passages, self.answer)
            ]
        except TransformFailure as failure:
            raise EvaluatorFailure(f"Cannot read the context or the answer: {failure}") from None
        passages = context if isinstance(context, list) else [context]
        if not all(isinstance(passage, str) for passage in passages) or not has_context(passages):
            raise EvaluatorFailure("'passages' must return a text or a list of texts that are not blank")
        material = material_of(judgement.with_value(value), reference=self.value, include_trace=self.include_trace)
        own = Material({**material.values, "context": passages}, material.trace)
        return await verdict(self, judgement, built_in(self.grades, "verdict", own))
