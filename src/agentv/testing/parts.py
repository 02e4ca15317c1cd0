"""What the model server's formats share: texts in pieces, arguments, token counts, server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from agentv.model.message import ToolCall
from agentv.testing.script import Answer
from agentv.testing.wire import Asked


class Tokens(NamedTuple):
    """Token counts of an answer. `input` holds `cached` and `cache_write`, `output` holds `reasoning`."""

    input: int
    output: int
    cached: int
    cache_write: int
    reasoning: int


def tokens_of(asked: Asked, answer: Answer) -> Tokens:
    """The counts that the script gives; without any, words are counted."""
    given = answer.usage
    if given is not None:
        return Tokens(given.input, given.output, given.cached or 0, given.cache_write or 0, given.reasoning or 0)
    thought = len((answer.thinking or "").split())
    return Tokens(asked.words, len((answer.text or "").split()) + thought, 0, 0, thought)


def text_of(content: Any) -> str:
    """The text of a content that is a string or a list of parts; other parts are passed over."""
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


def last_asked(texts: Sequence[str], are_questions: Sequence[bool]) -> tuple[str, int]:
    """The last text of a conversation that is a question of the user's own, and where what came after it begins."""
    last = max((index for index, is_question in enumerate(are_questions) if is_question), default=-1)
    return texts[last] if last >= 0 else "", last + 1


def words_in(texts: Iterable[str]) -> int:
    """The words of texts, which are counted as tokens."""
    return sum(len(text.split()) for text in texts)


def pieces_of(text: str) -> list[str]:
    """A text cut after its spaces: nothing is lost when the pieces are put together."""
    words = text.split(" ")
    return [f"{word} " for word in words[:-1]] + words[-1:] if text else []


def halves_of(text: str) -> tuple[str, str]:
    """A text in two pieces."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def arguments_of(call: ToolCall) -> str:
    """The arguments of a call as JSON; a text is taken for JSON, or for whatever the script wants it to be."""
    return call.input if isinstance(call.input, str) else msgspec.json.encode(call.input or {}).decode()


def id_of(call: ToolCall, asked: Asked, index: int, prefix: str = "call") -> str:
    """The id that the script gives a call, else one that no other call of the server has."""
    return call.id or f"{prefix}_{asked.number}_{index}"


def stop_reason_of(answer: Answer, names: Mapping[str, str]) -> str:
    """Why the answer ends: OpenAI's words (`stop`, `tool_calls`, `length`, `content_filter`) in those of a format.

    A word that has no counterpart goes out as it is.
    """
    reason = answer.stop_reason or ("tool_calls" if answer.tool_calls else "stop")
    return names.get(reason, reason)


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """A server-sent event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"
