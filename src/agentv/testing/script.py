"""What the model server answers: the last message again, one text, by match, by function, or step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from agentv.model.message import ToolCall
from agentv.model.result import TokenUsage
from agentv.testing.wire import Asked


@dataclass(frozen=True)
class Answer:
    """What the model says. Without `usage`, words are counted as tokens; `wrong_usage` writes nonsense instead.

    `stop_reason` is in OpenAI's words (`stop`, `tool_calls`, `length`, `content_filter`); each format has its own for
    them. `model` is the model that says it has answered, where it is not the one that was asked for.
    """

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    stop_reason: str | None = None
    refusal: str | None = None
    thinking: str | None = None
    model: str | None = None
    wrong_usage: bool = False


@dataclass(frozen=True)
class RawReply:
    """An answer in no format at all: this body, this status, these headers."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Said = str | Answer | RawReply
Steps = Said | Sequence[Said]
Answers = Steps | Mapping[str, Steps] | Callable[[Asked], Steps] | None
"""None echoes the user. A sequence is played step by step: a tool call, then, once its result is there, the text. A
mapping goes by globs over the last message of the user, the first that matches; without a match it echoes."""


def answer_to(asked: Asked, answers: Answers) -> Answer | RawReply:
    """What the script says to a request. The turn decides the step, so that conversations do not disturb each other."""
    steps: Any = answers
    if callable(steps):
        steps = steps(asked)
    if isinstance(steps, Mapping):
        steps = next((said for pattern, said in steps.items() if fnmatchcase(asked.prompt, pattern)), None)
    if steps is None:
        steps = asked.prompt
    if isinstance(steps, Sequence) and not isinstance(steps, str):
        steps = steps[min(asked.turn, len(steps) - 1)]
    return Answer(steps) if isinstance(steps, str) else steps
