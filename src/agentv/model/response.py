"""A request to a target, and its response or failure. A failure is never a score."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, Self

import msgspec

from agentv.model.call_trace import CallTrace
from agentv.model.case import EvalCase
from agentv.model.message import Message, TextPart
from agentv.model.result import ErrorClass, Stage, TokenUsage, sum_usage
from agentv.model.values import to_json


class StreamLog(Protocol):
    """A log that a target writes line by line while it works. Secrets are removed from it."""

    def write(self, line: bytes) -> None: ...

    def close(self) -> None: ...


Prepare = Callable[[int, float], Awaitable[None]]
"""Prepares an attempt, given its number and timeout. Called once the endpoint has a free slot."""

OpenLog = Callable[[str | None, str], StreamLog]
"""Opens the log of one attempt, given a folder (default: the run's) and a file extension."""


class Hold(Protocol):
    """Keeps new jobs waiting while it is closed."""

    @property
    def is_closed(self) -> bool: ...

    async def wait(self) -> None: ...


class Request(Protocol):
    """A request to a target, in every form that targets accept. Each form is built on first use.

    `messages` are chat messages with files inlined and images as data URIs; `prompt` is the same as one text.
    `prompt_with_references` names files instead of including them, for agents that open files themselves. Guidelines
    come first in all three. `files` are the paths of file parts, without guidelines. `workspace` is the folder to work
    in, if any.
    """

    case: EvalCase
    prompt_id: str | None
    turn: int
    """In a conversation, the number of responses before this call."""

    user_turn: int
    """In a conversation, the number of the user's messages before this call."""

    repeat: int
    """Numbers otherwise identical calls."""

    trial: int
    attempt: int
    timeout_s: float
    opens_job: bool
    """Whether its job has made no call yet, so that the job can be dropped when the run stops."""

    ticket: Any
    """Its state at the endpoint's limit, once it has waited or failed."""

    hold: Hold | None
    """While it is closed, a call that opens its job waits."""

    open_log: OpenLog | None
    """Opens a log, if logs are kept."""

    trace: CallTrace | None
    """The trace of the call, for targets with `traces`."""

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
    """A target's response: messages with their tool calls, and usage, cost and duration as far as they are known."""

    messages: tuple[Message, ...]
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    """`stop`, `tool_calls`, `length`, or a value specific to the API."""

    logprobs: Any = None
    """Token log probabilities as the API returned them."""

    provider_data: dict[str, Any] | None = None
    """Other fields that a provider of promptfoo returned with its answer, such as `metadata`."""

    wait_s: float | None = None
    """How long the endpoint cannot take another such call."""

    tool_errors: int = 0
    """The number of failed tool calls."""

    answered_by: str | None = None
    """The fallback target that answered."""

    calls_unknown: bool = False
    """Whether the target reports only text, which may have taken any number of calls."""

    cached: bool = False
    """Whether it comes from an earlier run. It keeps the cost and duration of that run."""

    estimated_usd: float = 0.0
    """The part of the cost that is estimated, for failed calls before it."""

    trace_id: str | None = None
    """The trace whose spans describe the answer."""

    @property
    def text(self) -> str:
        """The text of the answer; data as compact JSON; empty if there is no answer."""
        message = self.answer_message
        return "" if message is None else content_text(message.content)

    @property
    def value(self) -> Any:
        """The answer as data if the target returned data, otherwise its text."""
        if len(messages := self.messages) == 1 and type(text := (only := messages[0]).content) is str and text:
            return text if only.role == "assistant" else ""  # the common case
        message = _last_answer(self.messages)
        content = "" if message is None else message.content
        return content_text(content) if isinstance(content, tuple) else content

    @property
    def metadata(self) -> Any:
        """The metadata that a provider of promptfoo returned with its answer; None if there is none."""
        return (self.provider_data or {}).get("metadata")

    @property
    def answer_message(self) -> Message | None:
        """The last assistant message that is not empty. Messages before the last user message do not count."""
        return _last_answer(self.messages)


def _last_answer(messages: tuple[Message, ...]) -> Message | None:
    replied = False
    for message in reversed(messages):
        if message.role == "assistant":
            replied = True
            if message.content not in (None, (), ""):
                return message
        elif replied and message.role == "user":
            break
    return None


class TargetFailure(Exception):
    """A failed call to a target. Its class decides whether to retry; it is never a score.

    A reply that cannot be used may have been paid for.
    """

    duration_ms: float | None = None
    usage: TokenUsage | None = None
    """Tokens of replies that cannot be used, also in earlier attempts."""

    cost_usd: float | None = None
    """The cost of these replies."""

    model: str | None = None
    is_billed: bool = False
    """Whether a reply arrived whose cost is unknown."""

    estimated_usd: float = 0.0
    """The part of the cost that is estimated for such replies."""

    is_unreachable: bool = False
    """Whether no server is at the address."""

    is_page: bool = False
    """Whether something other than the API replied, such as a proxy with a page or an empty body."""

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

    def __reduce__(self) -> tuple[Any, ...]:
        build = partial(TargetFailure, status=self.status, retry_after_s=self.retry_after_s, stage=self.stage)
        return build, (self.error_class, self.message), self.__dict__

    def add_use(self, other: TargetFailure | Response | None) -> Self:
        """Add what another call of the same job used, so that nothing that was paid for is lost."""
        if other is not None:
            self.usage = add_usage(self.usage, other.usage)
            self.cost_usd = add_cost(self.cost_usd, other.cost_usd)
            self.estimated_usd += other.estimated_usd
        return self

    def added_to(self, response: Response) -> Response:
        """Return a response with what the failed calls before it used. An unknown cost stays unknown."""
        if self.usage is None and self.cost_usd is None:
            return response
        usage = None if response.usage is None else add_usage(response.usage, self.usage)
        if response.cost_usd is None:
            return msgspec.structs.replace(response, usage=usage)
        cost_usd, estimated_usd = (
            add_cost(response.cost_usd, self.cost_usd),
            response.estimated_usd + self.estimated_usd,
        )
        return msgspec.structs.replace(response, usage=usage, cost_usd=cost_usd, estimated_usd=estimated_usd)


def add_usage(first: TokenUsage | None, second: TokenUsage | None) -> TokenUsage | None:
    """Add up token counts, of which either may be missing."""
    return sum_usage((first, second))


def add_cost(first: float | None, second: float | None) -> float | None:
    """Add up costs, of which either may be missing."""
    return second if first is None else first if second is None else first + second


class Responder(Protocol):
    """A live target: built from its settings in the process that runs the jobs, and closed after them.

    `endpoint` identifies the service: targets and judges with the same endpoint share one rate limit.
    """

    endpoint: str

    def respond(self, request: Request) -> Awaitable[Response]:
        """Answer, or raise TargetFailure."""
        ...

    async def aclose(self) -> None: ...


class ResponderWrapper:
    """Base of responders that wrap another one. Everything is passed on by default."""

    def __init__(self, inner: Responder) -> None:
        self.endpoint = inner.endpoint
        self._inner = inner

    def respond(self, request: Request) -> Awaitable[Response]:
        """Answer, or raise TargetFailure."""
        return self._inner.respond(request)

    def sends(self, request: Request) -> dict[str, Any] | None:
        """Return the body that the target would send, or None if there is none to show."""
        sends = getattr(self._inner, "sends", None)
        body: dict[str, Any] | None = None if sends is None else sends(request)
        return body

    async def aclose(self) -> None:
        """Close the target."""
        await self._inner.aclose()


Arrived = Callable[[str, Response], None]
"""Receives the case id and the answer of a request, before it is known whether the whole call succeeds."""


class BatchResponder(Responder, Protocol):
    """A target that answers several requests with one call if `batching` is set. Case ids in a call are unique."""

    batching: bool

    async def respond_many(
        self, requests: Sequence[Request], arrived: Arrived = ...
    ) -> dict[str, Response | TargetFailure]:
        """Return the response or failure of each request, by case id. `arrived` receives answers before the end."""
        ...


def content_text(content: Any) -> str:
    """Return the content of a message as text: text parts on separate lines, data as compact JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, tuple):
        return "\n".join(part.value for part in content if isinstance(part, TextPart))
    return to_json(content).decode()


def answer(text: str, **fields: Any) -> Response:
    """Build a response with one text message."""
    return Response(messages=(Message("assistant", text),), **fields)


class SampleRequest(msgspec.Struct):
    """A request without a dataset, to call a target with: messages, or the text of one user message."""

    content: str | tuple[Message, ...] = "Hello"
    case: EvalCase = msgspec.field(default_factory=lambda: EvalCase("sample"))
    timeout_s: float = 10.0
    prompt_id: str | None = None
    turn: int = 0
    user_turn: int = 0
    repeat: int = 0
    trial: int = 1
    attempt: int = 1
    opens_job: bool = False
    ticket: Any = None
    hold: Hold | None = None
    workspace: str | None = None
    open_log: OpenLog | None = None
    trace: CallTrace | None = None
    prepare: Prepare | None = None
    guidelines: str = ""
    files: tuple[str, ...] = ()
    guideline_files: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return (Message("user", self.content),) if isinstance(self.content, str) else self.content

    @property
    def prompt(self) -> str:
        """The text of all messages, separated by blank lines."""
        return "\n\n".join(content_text(message.content) for message in self.messages if message.content is not None)

    @property
    def prompt_with_references(self) -> str:
        """The prompt; a sample request has no files."""
        return self.prompt
