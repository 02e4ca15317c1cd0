"""The interface between the model server and wire formats: received requests, scripted answers, streams and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol

import msgspec

from agentv.model.message import ToolCall
from agentv.model.result import TokenUsage


@dataclass(frozen=True)
class ReceivedRequest:
    """A request and its parsed content. `turn` is the number of answers since the last user message.

    `reply` is the response to a request that does not call the model, such as counting tokens.
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
    reply: dict[str, Any] | RawReply | None = None

    def json(self) -> dict[str, Any]:
        """Decode the body, which must be a JSON object. Raises NotUnderstood."""
        try:
            return msgspec.json.decode(self.raw, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotUnderstood(f"The body is not a JSON object: {error}") from None

    def understood(self, body: dict[str, Any], turns: Sequence[tuple[str, str]], **known: Any) -> ReceivedRequest:
        """Fill in the fields that follow from a conversation of roles and texts."""
        last = max((index for index, (role, _) in enumerate(turns) if role == "user"), default=-1)
        found = {
            "prompt": turns[last][1] if last >= 0 else "",
            "turn": sum(role == "assistant" for role, _ in turns[last + 1 :]),
            "model": str(body.get("model", "")),
            "stream": bool(body.get("stream")),
            "words": sum(len(text.split()) for _, text in turns),
        }
        return replace(self, body=body, **{**found, **known})

    def id_of(self, call: ToolCall, index: int, prefix: str = "call") -> str:
        """Return the scripted id of a call, or a unique one."""
        return call.id or f"{prefix}_{self.number}_{index}"


class NotUnderstood(Exception):
    """A body that the real API would reject, and the status of its response."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class WireFormat(Protocol):
    """An API's format. To add one, pass an object with these five methods to the server."""

    def serves(self, path: str) -> bool:
        """Return whether requests to a path are in this format."""

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Return the request with its parsed body. Raises NotUnderstood."""

    def whole(self, received: ReceivedRequest, answer: Answer) -> Any:
        """Return the body of a response."""

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Return the events of a streamed response."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return the body of an error."""


@dataclass(frozen=True)
class Answer:
    """A scripted answer. Without `usage`, words are counted as tokens; with `wrong_usage`, the counts are invalid.

    `stop_reason` is one of OpenAI's (`stop`, `tool_calls`, `length`, `content_filter`); each format translates it.
    `model` is the model in the response, if it is not the requested one.
    """

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    stop_reason: str | None = None
    refusal: str | None = None
    thinking: str | None = None
    model: str | None = None
    wrong_usage: bool = False

    def stop(self, names: Mapping[str, str]) -> str:
        """Return the stop reason, translated by `names`; unknown reasons are sent unchanged."""
        reason = self.stop_reason or ("tool_calls" if self.tool_calls else "stop")
        return names.get(reason, reason)

    def tokens(self, received: ReceivedRequest) -> TokenUsage:
        """Return the scripted token counts, or count words."""
        if self.usage is not None:
            return self.usage
        thought = len((self.thinking or "").split())
        return TokenUsage(received.words, len((self.text or "").split()) + thought, reasoning=thought)


@dataclass(frozen=True)
class RawReply:
    """A raw HTTP response: body, status and headers."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


ScriptStep = str | Answer | RawReply
Steps = ScriptStep | Sequence[ScriptStep]
Answers = Steps | Mapping[str, Steps] | Callable[[ReceivedRequest], Steps] | None
"""None echoes the user. A sequence has one step per turn, e.g. a tool call and then, after its result, the text. A
mapping selects by globs over the last user message; the first match wins, and without a match the message is echoed."""


def answer_to(received: ReceivedRequest, answers: Answers) -> Answer | RawReply:
    """Return the scripted answer. The turn selects the step, so that conversations are independent."""
    steps: Any = answers
    if callable(steps):
        steps = steps(received)
    if isinstance(steps, Mapping):
        steps = next((found for pattern, found in steps.items() if fnmatchcase(received.prompt, pattern)), None)
    if steps is None:
        steps = received.prompt
    if isinstance(steps, Sequence) and not isinstance(steps, str):
        steps = steps[min(received.turn, len(steps) - 1)]
    return Answer(steps) if isinstance(steps, str) else steps


def text_of(content: Any) -> str:
    """Return the text of a string or a list of parts; other parts are ignored."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in parts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def pieces_of(text: str | None) -> list[str]:
    """Split a text after each space; joined, the pieces are the text."""
    words = text.split(" ") if text else []
    return [f"{word} " for word in words[:-1]] + words[-1:]


def halves_of(text: str) -> tuple[str, str]:
    """Split a text in two."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def arguments_of(call: ToolCall) -> str:
    """Return the arguments of a call as JSON; strings are returned unchanged."""
    return call.input if isinstance(call.input, str) else msgspec.json.encode(call.input or {}).decode()


def arguments_value(call: ToolCall) -> Any:
    """Return the arguments of a call as data; text that is not JSON is returned unchanged."""
    try:
        return msgspec.json.decode(arguments_of(call))
    except msgspec.DecodeError:
        return call.input


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """Return a server-sent event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"
