"""What a wire format is to the model server: how it reads a question and writes answers, whole, streamed and wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol

import msgspec

from agentv.model.case import EvalCase
from agentv.model.message import Message, ToolCall
from agentv.model.response import OpenLog, Prepare, content_text
from agentv.model.result import TokenUsage


@dataclass(frozen=True)
class Asked:
    """A request: how it came, and what its format understood. `turn` counts answers since the user's last message.

    `reply` answers a request that asks the model nothing, such as one that counts tokens: no script, no fault.
    """

    number: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    raw: bytes
    body: dict[str, Any] = field(default_factory=dict)
    prompt: str = ""
    turn: int = 0
    model: str = ""
    stream: bool = False
    words: int = 0
    reply: dict[str, Any] | None = None


class NotUnderstood(Exception):
    """A body that the format's own server would refuse."""


def json_object(raw: bytes) -> dict[str, Any]:
    """A body that must be a JSON object. Raises NotUnderstood."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise NotUnderstood("The body is no JSON") from None
    if not isinstance(body, dict):
        raise NotUnderstood("The body is no JSON object")
    return body


def json_or_text(text: str) -> Any:
    """The value of a text that is JSON, else the text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


class WireFormat(Protocol):
    """One API's way of putting things. A new one is a class of these five methods, given to the server."""

    def serves(self, path: str) -> bool:
        """Whether requests to a path are in this format."""
        ...

    def read(self, asked: Asked) -> Asked:
        """The request with what its body says filled in. Raises NotUnderstood."""
        ...

    def whole(self, asked: Asked, answer: Answer) -> Any:
        """The body of a plain answer."""
        ...

    def pieces(self, asked: Asked, answer: Answer) -> Iterable[bytes]:
        """The events of a streamed answer."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body of an error."""
        ...


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


@dataclass
class SampleRequest:
    """What `agentv.model.response.Request` asks for: messages, or a text that becomes the user's message."""

    asked: str | tuple[Message, ...] = "Hello"
    case: EvalCase = field(default_factory=lambda: EvalCase("sample"))
    timeout_s: float = 10.0
    prompt_id: str | None = None
    turn: int = 0
    said: int = 0
    repeat: int = 0
    trial: int = 1
    attempt: int = 1
    workspace: str | None = None
    open_log: OpenLog | None = None
    prepare: Prepare | None = None
    guidelines: str = ""
    files: tuple[str, ...] = ()
    guideline_files: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages."""
        return (Message("user", self.asked),) if isinstance(self.asked, str) else self.asked

    @property
    def prompt(self) -> str:
        """The texts of the messages, one below the other."""
        return "\n\n".join(content_text(message.content) for message in self.messages if message.content is not None)

    @property
    def prompt_with_references(self) -> str:
        """The same: no files are looked up here."""
        return self.prompt
