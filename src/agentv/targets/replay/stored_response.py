"""A response as JSON and back without loss: what the cache and recordings hold of an answer."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.message import Message, Part, Role, ToolCall, message_to_data
from agentv.model.response import Request, Response, answer
from agentv.model.result import TokenUsage
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
    messages = tuple(_message(message) for message in kept.messages)
    return Response(messages=messages, cached=cached, **{name: getattr(kept, name) for name in _AS_THEY_ARE})


def text_only(response: Response) -> Response:
    """The answer as its text, for one whose data no JSON can hold."""
    said = response.text.encode("utf-8", "replace").decode()
    return msgspec.structs.replace(response, messages=answer(said).messages)


def _stored_message(message: Message) -> StoredMessage:
    if isinstance(message.content, tuple):
        return StoredMessage(message.role, None, message.content, message.tool_calls, message.name)
    return StoredMessage(message.role, message.content, None, message.tool_calls, message.name)


def _message(kept: StoredMessage) -> Message:
    content = kept.content if kept.parts is None else kept.parts
    return Message(kept.role, content, kept.tool_calls, kept.name)


def sent_by(responder: Any, request: Request) -> dict[str, Any] | None:
    """The request as a responder sends it, where it says so with `sends(request)`; None for one that sends nothing."""
    sends = getattr(responder, "sends", None)
    made: dict[str, Any] | None = None if sends is None else sends(request)
    return made


def question_digest(request: Request) -> str:
    """A hash of the messages, contents of files included; the same whatever target is asked."""
    return digest([message_to_data(message) for message in request.messages])
