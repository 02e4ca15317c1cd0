"""What a wire format is to the model server: how it reads a request and writes answers, whole, streamed and wrong."""

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
    """A request as it came, and what its format understood. `turn` counts answers since the user's last message.

    `reply` answers a request that does not call the model, such as one that counts tokens: no script, no fault.
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

    def json(self) -> dict[str, Any]:
        """Decode the body, which must be a JSON object. Raises NotUnderstood."""
        try:
            return msgspec.json.decode(self.raw, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotUnderstood(f"The body is not a JSON object: {error}") from None

    def understood(self, body: dict[str, Any], turns: Sequence[tuple[str, str]], **known: Any) -> ReceivedRequest:
        """Fill in a conversation: roles with texts, of which `user` asks and `assistant` answers."""
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
        """The scripted id of a call, else one that no other call of the server has."""
        return call.id or f"{prefix}_{self.number}_{index}"


class NotUnderstood(Exception):
    """A body that the format's own server would refuse."""


class WireFormat(Protocol):
    """One API's format. A new one is a class with these five methods, passed to the server."""

    def serves(self, path: str) -> bool:
        """Whether requests to a path are in this format."""

    def read(self, asked: ReceivedRequest) -> ReceivedRequest:
        """The request with what its body says filled in. Raises NotUnderstood."""

    def whole(self, asked: ReceivedRequest, answer: Answer) -> Any:
        """The body of a plain answer."""

    def pieces(self, asked: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """The events of a streamed answer."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body of an error."""


@dataclass(frozen=True)
class Answer:
    """What the model says. Without `usage`, words are counted as tokens; `wrong_usage` writes nonsense instead.

    `stop_reason` is one of OpenAI's (`stop`, `tool_calls`, `length`, `content_filter`); each format translates it.
    `model` is the model that claims to have answered, where it is not the requested one.
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
        """Why the answer ends, translated by `names`; a word without a translation is sent as it is."""
        reason = self.stop_reason or ("tool_calls" if self.tool_calls else "stop")
        return names.get(reason, reason)

    def tokens(self, asked: ReceivedRequest) -> TokenUsage:
        """The scripted counts; without any, words are counted."""
        if self.usage is not None:
            return self.usage
        thought = len((self.thinking or "").split())
        return TokenUsage(asked.words, len((self.text or "").split()) + thought, reasoning=thought)


@dataclass(frozen=True)
class RawReply:
    """An answer in no format at all: this body, this status, these headers."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


ScriptStep = str | Answer | RawReply
Steps = ScriptStep | Sequence[ScriptStep]
Answers = Steps | Mapping[str, Steps] | Callable[[ReceivedRequest], Steps] | None
"""None echoes the user. A sequence is played step by step: a tool call, then, once its result is there, the text. A
mapping goes by globs over the last message of the user, the first that matches; without a match it echoes."""


def answer_to(asked: ReceivedRequest, answers: Answers) -> Answer | RawReply:
    """The scripted answer to a request. The turn selects the step, so that conversations do not disturb each other."""
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


def text_of(content: Any) -> str:
    """The text of a content that is a string or a list of parts; other parts are ignored."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in parts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def pieces_of(text: str | None) -> list[str]:
    """Cut a text after its spaces: joined, the pieces are the text."""
    words = text.split(" ") if text else []
    return [f"{word} " for word in words[:-1]] + words[-1:]


def halves_of(text: str) -> tuple[str, str]:
    """Cut a text in two."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def arguments_of(call: ToolCall) -> str:
    """The arguments of a call as JSON; a text is sent as it is."""
    return call.input if isinstance(call.input, str) else msgspec.json.encode(call.input or {}).decode()


def arguments_value(call: ToolCall) -> Any:
    """The arguments of a call as data; a text that is not JSON stays a text."""
    try:
        return msgspec.json.decode(arguments_of(call))
    except msgspec.DecodeError:
        return call.input


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """A server-sent event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"
