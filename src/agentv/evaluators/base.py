"""Settings and checks that several evaluator types share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.model.evaluator import COMMON_KEYS as RESERVED
from agentv.model.evaluator import OTHER_TOOLS, Evaluator, Needs

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
