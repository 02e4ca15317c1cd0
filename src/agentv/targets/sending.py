"""What goes out for a request: the body that a target makes of it, and a digest of the question itself."""

from __future__ import annotations

from typing import Any

from agentv.model.message import message_to_data
from agentv.model.response import Request
from agentv.model.values import digest


def sent_by(responder: Any, request: Request) -> dict[str, Any] | None:
    """The request as a responder sends it, where it says so with `sends(request)`; None for one that sends nothing."""
    sends = getattr(responder, "sends", None)
    made: dict[str, Any] | None = None if sends is None else sends(request)
    return made


def question_digest(request: Request) -> str:
    """A hash of the messages, contents of files included; the same whatever target is asked."""
    return digest([message_to_data(message) for message in request.messages])
