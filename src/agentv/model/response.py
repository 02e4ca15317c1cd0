"""A request to a target, and its response or failure. A failure is never a score."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec

from agentv.model.case import EvalCase
from agentv.model.message import Message, TextPart
from agentv.model.result import ErrorClass, Stage, TokenUsage
from agentv.model.values import to_json


class StreamLog(Protocol):
    """Where a target writes what happens while it works, line by line; secrets are taken out there."""

    def write(self, line: bytes) -> None: ...

    def close(self) -> None: ...


Prepare = Callable[[int, float], Awaitable[None]]
"""Makes ready what an attempt needs, told its number and its limit of time, once it has its place at the endpoint."""

OpenLog = Callable[[str | None, str], StreamLog]
"""Opens the log of one attempt: in the folder that is named, else in the run's, with this extension."""


class Request(Protocol):
    """One question to a target, in every form that targets take it; each form is made when it is asked for.

    `messages` are chat messages with the contents of files put in and images as data URIs; `prompt` is the same as one
    text; `prompt_with_references` names files instead of holding them, for agents that open them. Guidelines come
    first in all three. `files` are the paths of file parts, guidelines not among them. `workspace` is the folder to
    work in, where there is one; `open_log` opens a log, where logs are kept. `turn` and `said` count the replies and
    the user's messages before this call in a conversation; `repeat` tells apart calls that ask the same.
    """

    case: EvalCase
    prompt_id: str | None
    turn: int
    said: int
    repeat: int
    trial: int
    attempt: int
    timeout_s: float
    open_log: OpenLog | None

    @property
    def messages(self) -> tuple[Message, ...]: ...

    @property
    def prompt(self) -> str: ...

    @property
    def prompt_with_references(self) -> str: ...

    @property
    def guidelines(self) -> str: ...

    @property
    def files(self) -> tuple[str, ...]: ...

    @property
    def guideline_files(self) -> tuple[str, ...]: ...

    @property
    def workspace(self) -> str | None: ...

    @property
    def prepare(self) -> Prepare | None: ...


class Response(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a target answered: messages with their tool calls, and what the answer took as far as the target said.

    `stop_reason` is `stop`, `tool_calls`, `length`, or a word of the API's own. `logprobs` are those of the tokens, as
    the API gave them. `wait_s` is how long the endpoint has no room for another such call. A `cached` one was answered
    in an earlier run: its cost and duration are those of then. `tool_errors` are calls of tools that failed.
    """

    messages: tuple[Message, ...]
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    logprobs: Any = None
    wait_s: float | None = None
    tool_errors: int = 0
    cached: bool = False

    @property
    def text(self) -> str:
        """The text of the last assistant message that has any; data as compact JSON; empty when there is none.

        An empty reply is not made up for by what was said before the user spoke.
        """
        replied = False
        for message in reversed(self.messages):
            if message.role == "assistant":
                replied = True
                if message.content not in (None, (), ""):
                    return content_text(message.content)
            elif replied and message.role == "user":
                break
        return ""


class TargetFailure(Exception):
    """A target that did not answer. Its class decides whether trying again makes sense; it is never a score."""

    def __init__(
        self,
        error_class: ErrorClass,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        stage: Stage = "target",
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s
        self.stage = stage

    def __reduce__(self) -> tuple[Callable[..., TargetFailure], tuple[object, ...]]:
        build = partial(TargetFailure, status=self.status, retry_after_s=self.retry_after_s, stage=self.stage)
        return build, (self.error_class, self.message)


class Responder(Protocol):
    """A target that is alive: built from its settings where the jobs run, closed when they are done.

    `endpoint` names what its calls compete for: targets and judges with the same endpoint share one limit.
    """

    endpoint: str

    def respond(self, request: Request) -> Awaitable[Response]:
        """Answer, or raise TargetFailure."""
        ...

    async def aclose(self) -> None: ...


class ResponderWrapper:
    """A responder around another one. Whatever it does not change is passed on."""

    def __init__(self, inner: Responder) -> None:
        self.endpoint = inner.endpoint
        self._inner = inner

    def respond(self, request: Request) -> Awaitable[Response]:
        """Answer, or raise TargetFailure."""
        return self._inner.respond(request)

    def sends(self, request: Request) -> dict[str, Any] | None:
        """Return what the target would send; None where it sends nothing that could be shown."""
        sends = getattr(self._inner, "sends", None)
        made: dict[str, Any] | None = None if sends is None else sends(request)
        return made

    async def aclose(self) -> None:
        """Close the target."""
        await self._inner.aclose()


class BatchResponder(Responder, Protocol):
    """A target that may answer many questions with one call (`batching`). No id of a case is twice in a call."""

    batching: bool

    async def respond_many(self, requests: Sequence[Request]) -> dict[str, Response | TargetFailure]:
        """What became of each, by the id of its case."""
        ...


def content_text(content: Any) -> str:
    """The content of a message as text: parts joined by lines, data as compact JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, tuple):
        return "\n".join(part.value for part in content if isinstance(part, TextPart))
    return to_json(content).decode()


def answer(text: str, **known: Any) -> Response:
    """A response that is one text."""
    return Response(messages=(Message("assistant", text),), **known)


@dataclass
class SampleRequest:
    """An `agentv.model.response.Request`: messages, or a text that becomes the user's message."""

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
        """The texts of the messages, separated by blank lines."""
        return "\n\n".join(content_text(message.content) for message in self.messages if message.content is not None)

    @property
    def prompt_with_references(self) -> str:
        """The same: no files are looked up here."""
        return self.prompt
