"""Record every call as a JSON line with its request and its response."""

from collections.abc import Callable
from typing import Any

import msgspec

from agentv.model.job import NO_OVERRIDES, OverrideKey
from agentv.model.message import Message, Part, Role, ToolCall, message_to_data
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure, answer
from agentv.model.result import ErrorClass, TokenUsage
from agentv.model.values import digest


class StoredMessage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A message with parts in a separate field, to distinguish them from content that is a list."""

    role: Role
    content: Any = None
    parts: tuple[Part, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None


class StoredResponse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A response, without the fields that only matter during the run."""

    messages: tuple[StoredMessage, ...]
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    logprobs: Any = None
    provider_data: dict[str, Any] | None = None
    tool_errors: int = 0
    calls_unknown: bool = False
    estimated_usd: float = 0.0
    trace_id: str | None = None


_COPIED_FIELDS = tuple(name for name in StoredResponse.__struct_fields__ if name != "messages")


def stored(response: Response) -> StoredResponse:
    """Convert a response for storage."""
    messages = tuple(_stored_message(message) for message in response.messages)
    return StoredResponse(messages=messages, **{name: getattr(response, name) for name in _COPIED_FIELDS})


def restored(response: StoredResponse, *, cached: bool = False) -> Response:
    """Convert a stored response back."""
    messages = tuple(
        Message(entry.role, entry.content if entry.parts is None else entry.parts, entry.tool_calls, entry.name)
        for entry in response.messages
    )
    return Response(messages=messages, cached=cached, **{name: getattr(response, name) for name in _COPIED_FIELDS})


def text_only(response: Response) -> Response:
    """Reduce a response to its text, for data that JSON cannot represent."""
    text = response.text.encode("utf-8", "replace").decode()
    return msgspec.structs.replace(response, messages=answer(text).messages)


def _stored_message(message: Message) -> StoredMessage:
    has_parts = isinstance(message.content, tuple)
    content, parts = (None, message.content) if has_parts else (message.content, None)
    return StoredMessage(message.role, content, parts, message.tool_calls, message.name)


def request_digest_of(request: Request) -> str:
    """Return a hash of the messages, including file contents; it does not depend on the target."""
    return digest([message_to_data(message) for message in request.messages])


SCHEMA_VERSION = 2

Write = Callable[[bytes], None]
"""Writes a line, including its newline, to disk."""


class RecordedFailure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename={"error_class": "class"}):
    """A failed call."""

    error_class: ErrorClass
    message: str
    status: int | None = None
    duration_ms: float | None = None
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    estimated_usd: float = 0.0


class RecordedCall(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A recorded call: its identity, the request with its hash, and the response or the failure.

    Calls of judges have the case id `judge:ID`, those of simulated users `user:ID`; `prompt` then identifies the job.
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


class RecordingResponder(ResponderWrapper):
    """Records a target's calls, including failures, which a replay must reproduce."""

    def __init__(self, inner: Responder, target: str, write: Write, overrides: OverrideKey = NO_OVERRIDES) -> None:
        super().__init__(inner)
        self._target = target
        self._write = write
        self._overrides = overrides.key

    async def respond(self, request: Request) -> Response:
        """Call the target, and write the outcome to disk before it is used."""
        try:
            response = await self._inner.respond(request)
        except TargetFailure as failure:
            used = (failure.duration_ms, failure.usage, failure.cost_usd, failure.estimated_usd)
            failed = RecordedFailure(failure.error_class, failure.message, failure.status, *used)
            self._write(_line(self._call(request, failure=failed)))
            raise
        try:
            line = _line(self._call(request, response=stored(response), cached=response.cached))
        except (TypeError, ValueError, OverflowError, RecursionError):
            # Data that JSON cannot represent must not make the call fail.
            line = _line(self._call(request, response=stored(text_only(response))))
        self._write(line)
        return response

    def _call(self, request: Request, **fields: Any) -> RecordedCall:
        return RecordedCall(
            dataset=request.case.dataset,
            dataset_path=request.case.path,
            eval_id=request.case.id,
            target=self._target,
            prompt=request.prompt_id,
            trial=request.trial,
            attempt=request.attempt,
            repeat=request.repeat,
            variant=self._overrides,
            request_digest=request_digest_of(request),
            request=[message_to_data(message) for message in request.messages],
            **fields,
        )


def _line(call: RecordedCall) -> bytes:
    return msgspec.json.encode(call) + b"\n"
