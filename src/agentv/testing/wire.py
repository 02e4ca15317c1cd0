"""What a wire format is to the model server: how it reads a question and writes answers, whole, streamed and wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from agentv.testing.script import Answer


@dataclass(frozen=True)
class Asked:
    """A request as the server understood it. `turn` counts the answers since the last message of the user."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    prompt: str = ""
    turn: int = 0
    model: str = ""
    stream: bool = False
    words: int = field(default=0, compare=False)


class NotUnderstood(Exception):
    """A body that the format's own server would refuse."""


class WireFormat(Protocol):
    """One API's way of putting things. A new one is a class of these five methods, given to the server."""

    def serves(self, path: str) -> bool:
        """Whether requests to a path are in this format."""
        ...

    def read(self, asked: Asked) -> Asked:
        """The request with what its body says filled in. Raises NotUnderstood."""
        ...

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        """The body of a plain answer."""
        ...

    def pieces(self, asked: Asked, answer: Answer) -> Iterable[bytes]:
        """The events of a streamed answer."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body of an error."""
        ...
