"""What evaluator types share: settings and checks of them, the reference answer, the sentences of a score."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.model.evaluator import COMMON_KEYS as RESERVED
from agentv.model.evaluator import OTHER_TOOLS, Evaluator, EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement

__all__ = ["OTHER_TOOLS", "RESERVED", "Evaluator"]

NEEDS_CONTEXT = "judges against the case's 'context', and there is none"

Share = Annotated[float, Meta(ge=0, le=1)]
Limit = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0)]


class PromptProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints the judge's prompt; it gets what a code judge gets, with `config`."""

    aliases: ClassVar[dict[str, str]] = {"command": "script"}

    script: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    config: dict[str, Any] = {}


Prompt = str | list[str | dict[str, Any]] | PromptProgram
"""Text or a file's path; messages, or the arguments of a program; a program with its settings."""


class Judge(Evaluator, frozen=True, kw_only=True):
    """Settings of every type that asks a judge model. `model` and `temperature` replace those of the judge's target.

    `votes` is how often each judge is asked. `combine` makes one score of several votes: `mean`, or `majority`, the one
    that most votes give; unset it is the mean of scores and the majority of a rubric's checks. `include_trace` shows
    the judge the tool calls too.
    """

    votes: Annotated[int, Meta(ge=1, le=100)] = 1
    combine: Literal["mean", "majority"] | None = None
    model: str | None = None
    temperature: Limit | None = None
    include_trace: bool = False

    @property
    def needs(self) -> Needs:
        """A call for each vote."""
        return Needs(judge_calls=self.votes)

    @property
    def runs_code(self) -> bool:
        """Only where a program makes the prompt."""
        return not is_template(getattr(self, "prompt", None))


def is_template(prompt: Prompt | None) -> bool:
    """Whether a prompt is text or messages; otherwise it is a program that prints one."""
    if isinstance(prompt, PromptProgram):
        return False
    return isinstance(prompt, str | None) or all(isinstance(item, dict) for item in prompt)


def has_context(context: Iterable[str]) -> bool:
    """Whether there is a passage that says something."""
    return any(passage.strip() for passage in context)


def program_complaints(field: str, program: str | list[str]) -> list[str]:
    """What is wrong with a program given as a shell string or as a list of arguments."""
    if isinstance(program, str):
        return [] if program.strip() else [f"'{field}' is blank"]
    return [] if program and program[0].strip() else [f"'{field}' must name a program"]


def prompt_complaints(prompt: Prompt | None) -> list[str]:
    """What is wrong with a judge's prompt in any of its forms."""
    if isinstance(prompt, PromptProgram):
        return program_complaints("prompt.script", prompt.script)
    if isinstance(prompt, str):
        return [] if prompt.strip() else ["'prompt' is blank"]
    if prompt is None:
        return []
    if not prompt:
        return ["'prompt' is an empty list"]
    messages = [item for item in prompt if isinstance(item, dict)]
    if messages and len(messages) < len(prompt):
        return ["'prompt' mixes messages with strings: give messages, or the arguments of a program"]
    return [
        f"'prompt[{index}]' is no message: it needs a 'role' (system, user or assistant) and 'content', a text"
        for index, message in enumerate(messages)
        if message.get("role") not in ("system", "user", "assistant") or not isinstance(message.get("content"), str)
    ]


Scalar = str | int | float | bool
"""What stands for a text: YAML gives `value: 42` as a number."""

Scalars = Annotated[list[Scalar], Meta(min_length=1)]

BLANK = "is blank, so every answer would pass"


class AgainstReference(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that takes the reference answer when no `value` is given. Subclasses say what a value is."""

    @property
    def needs(self) -> Needs:
        """Without `value` the expected output is used instead."""
        return Needs(reference=getattr(self, "value", None) is None)


def text_of(value: Any) -> str:
    """A value as the text that it is compared as: trimmed; true and data as JSON writes them."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return msgspec.json.encode(value).decode()
    return str(value)


def reference_text(judgement: Judgement) -> str:
    """The reference answer, trimmed. Raises EvaluatorFailure when the case has none."""
    if not judgement.has_reference:
        raise EvaluatorFailure("The check needs a 'value' or an expected_output")
    return judgement.reference_answer.strip()


def reference_value(judgement: Judgement) -> Any:
    """The reference answer: data as it is, anything else as text."""
    text = reference_text(judgement)
    content = judgement.case.expected_output[-1].content
    return text if content is None or isinstance(content, str | tuple) else content


def reference_texts(judgement: Judgement) -> list[str]:
    """The reference answer as texts: each item of a list, else the one text that it is."""
    reference = reference_value(judgement)
    return [text_of(item) for item in reference] if isinstance(reference, list) else [text_of(reference)]


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
