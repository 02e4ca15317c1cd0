"""Record every call as a line: the request, and the response as JSON that can be read back without loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentv.model.job import NO_OVERRIDES, OverrideKey
from agentv.model.message import Message, Part, Role, ToolCall, message_to_data
from agentv.model.response import Request, Responder, Response, TargetFailure, answer
from agentv.model.result import ErrorClass, TokenUsage
from agentv.model.values import digest


class StoredMessage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A message whose parts stand apart from its content: a list that is data must come back as data."""

    role: Role
    content: Any = None
    parts: tuple[Part, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None


class StoredResponse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A response. That it came out of a cache is no part of it, nor how full the endpoint was."""

    messages: tuple[StoredMessage, ...]
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    logprobs: Any = None
    tool_errors: int = 0


_AS_THEY_ARE = tuple(name for name in StoredResponse.__struct_fields__ if name != "messages")


def stored(response: Response) -> StoredResponse:
    """What is kept of a response."""
    messages = tuple(_stored_message(message) for message in response.messages)
    return StoredResponse(messages=messages, **{name: getattr(response, name) for name in _AS_THEY_ARE})


def restored(kept: StoredResponse, *, cached: bool = False) -> Response:
    """The response that was kept."""
    messages = tuple(
        Message(each.role, each.content if each.parts is None else each.parts, each.tool_calls, each.name)
        for each in kept.messages
    )
    return Response(messages=messages, cached=cached, **{name: getattr(kept, name) for name in _AS_THEY_ARE})


def text_only(response: Response) -> Response:
    """The answer as its text, for one whose data no JSON can hold."""
    said = response.text.encode("utf-8", "replace").decode()
    return msgspec.structs.replace(response, messages=answer(said).messages)


def _stored_message(message: Message) -> StoredMessage:
    has_parts = isinstance(message.content, tuple)
    content, parts = (None, message.content) if has_parts else (message.content, None)
    return StoredMessage(message.role, content, parts, message.tool_calls, message.name)


def preview_request(responder: Any, request: Request) -> dict[str, Any] | None:
    """The request as a responder sends it, where it says so with `sends(request)`; None for one that sends nothing."""
    sends = getattr(responder, "sends", None)
    made: dict[str, Any] | None = None if sends is None else sends(request)
    return made


def request_digest_of(request: Request) -> str:
    """A hash of the messages, contents of files included; the same whatever target is asked."""
    return digest([message_to_data(message) for message in request.messages])


SCHEMA_VERSION = 2

Write = Callable[[bytes], None]
"""Takes a line that ends in a newline; what it returns from is on disk."""


class RecordedFailure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename={"error_class": "class"}):
    """A call that was not answered."""

    error_class: ErrorClass
    message: str
    status: int | None = None


class RecordedCall(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A line: which call it was, what was asked with its hash, and the answer or the failure.

    A judge's call has the case id `judge:ID`, a simulated user's `user:ID`; `prompt` then says for whom and which job.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    dataset: str
    dataset_path: str
    eval_id: str
    target: str
    prompt: str | None
    trial: int
    attempt: int = 1
    repeat: int = 0
    variant: str = ""
    request_digest: str
    request: list[dict[str, Any]]
    response: StoredResponse | None = None
    failure: RecordedFailure | None = None
    cached: bool = False


class RecordingResponder:
    """A target whose calls are written down, those that fail too: a replay has to fail as they did."""

    def __init__(self, inner: Responder, target: str, write: Write, variant: OverrideKey = NO_OVERRIDES) -> None:
        self.endpoint = inner.endpoint
        self._inner = inner
        self._target = target
        self._write = write
        self._variant = variant.key

    async def respond(self, request: Request) -> Response:
        """The target's answer, on disk before it goes on."""
        try:
            response = await self._inner.respond(request)
        except TargetFailure as failure:
            failed = RecordedFailure(failure.error_class, failure.message, failure.status)
            self._write(_line(self._call(request, failure=failed)))
            raise
        self._write(self._answered(request, response))
        return response

    def sends(self, request: Request) -> dict[str, Any] | None:
        """What the target would send."""
        return preview_request(self._inner, request)

    async def aclose(self) -> None:
        """Closes the target; the file is its owner's to close."""
        await self._inner.aclose()

    def _answered(self, request: Request, response: Response) -> bytes:
        try:
            return _line(self._call(request, response=stored(response), cached=response.cached))
        except (TypeError, ValueError, OverflowError, RecursionError):
            # Data of a user's function that no JSON can hold must not cost the answer.
            return _line(self._call(request, response=stored(text_only(response))))

    def _call(self, request: Request, **known: Any) -> RecordedCall:
        return RecordedCall(
            dataset=request.case.dataset,
            dataset_path=request.case.path,
            eval_id=request.case.id,
            target=self._target,
            prompt=request.prompt_id,
            trial=request.trial,
            attempt=request.attempt,
            repeat=request.repeat,
            variant=self._variant,
            request_digest=request_digest_of(request),
            request=[message_to_data(message) for message in request.messages],
            **known,
        )


def _line(call: RecordedCall) -> bytes:
    return msgspec.json.encode(call) + b"\n"
