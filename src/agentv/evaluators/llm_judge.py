"""The LLM judge and its presets: a model reads the question, the answer and what was expected, and gives a score."""

from __future__ import annotations

from typing import ClassVar

from agentv.evaluators.base import Judge, Prompt, prompt_complaints
from agentv.evaluators.rubric import Rubrics, rubric_complaints


class LlmJudge(Judge, frozen=True, kw_only=True):
    """A judge with the built-in prompt or the user's own, in which `rubrics` may be used."""

    aliases: ClassVar[dict[str, str]] = {"rubric_prompt": "prompt"}
    files: ClassVar[tuple[str, ...]] = ("prompt",)

    prompt: Prompt | None = None
    rubrics: Rubrics | None = None

    def complaints(self) -> list[str]:
        """A prompt of no known form, or wrong rubric items."""
        return prompt_complaints(self.prompt) + rubric_complaints(self.rubrics)


class Factuality(Judge, frozen=True, kw_only=True):
    """Does the answer agree with the facts of the reference, which is `value` or the expected output?"""

    value: str | None = None

    @property
    def needs_reference(self) -> bool:
        """Without `value` the expected output is the reference."""
        return self.value is None


class Faithfulness(Judge, frozen=True, kw_only=True):
    """Is every claim of the answer supported by the case's context?"""


class AnswerRelevance(Judge, frozen=True, kw_only=True):
    """Does the answer speak to the question?"""


class ContextRecall(Judge, frozen=True, kw_only=True):
    """How much of the reference, which is `value` or the expected output, does the case's context hold?"""

    value: str | None = None

    @property
    def needs_reference(self) -> bool:
        """Without `value` the expected output is the reference."""
        return self.value is None
