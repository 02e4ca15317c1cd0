"""What a wire format is to the model server: how it reads a question and writes answers, whole, streamed and wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from agentv.testing.script import Answer


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
