"""Build messages from an agent's events or records: turns, and tool calls with their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agentv.model.message import Message, ToolCall
from agentv.model.token_counts import amount


class Turns:
    """The messages so far. A turn of the model becomes one assistant message with its text and tool calls.

    `now_ms` is the time of the current record, if it is known.
    """

    def __init__(self) -> None:
        self._entries: list[Message | ModelTurn] = []
        self._calls: dict[str, _Call] = {}
        self.failed_calls = 0
        self.now_ms: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the model has produced no text and no call."""
        turns = (entry for entry in self._entries if isinstance(entry, ModelTurn))
        return not any(turn.text.strip() or turn.calls for turn in turns)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, without empty turns."""
        return tuple(entry if isinstance(entry, Message) else entry.message for _, entry in self._kept())

    def _kept(self) -> Iterator[tuple[int, Message | ModelTurn]]:
        """Yield the entries that are not empty, each with its position."""
        for position, entry in enumerate(self._entries):
            if isinstance(entry, Message) or entry.text or entry.calls:
                yield position, entry

    def add_message(self, message: Message) -> None:
        """Add a message that is not part of a turn, such as the user's. What follows starts a turn."""
        self._entries.append(message)

    def start_turn(self, key: object = None) -> None:
        """Start a turn, unless `key` is that of the current one. Some agents have no keys."""
        last = self._last
        if last is None or key is None or last.key != key:
            self._entries.append(ModelTurn(key, ended_ms=self.now_ms))

    def add_text(self, text: str) -> None:
        """Add text of the model. Without turn keys, text after a tool call starts a turn."""
        last = self._last
        if last is None or (last.key is None and last.calls):
            self.start_turn()
        self._current.text += text
        self._current.ended_ms = self.now_ms

    def add_call(self, id: str, tool: str, input: Any, at_ms: float | None, timestamp: str | None = None) -> None:
        """Add a tool call. Without turn keys, a call after all others have ended starts a turn."""
        if id in self._calls:
            return
        last = self._last
        if last is None or (last.key is None and last.calls and all(call.ended for call in last.calls)):
            self.start_turn()
        call = self._calls[id] = _Call(str(id), str(tool), input, at_ms, text_or_none(timestamp))
        self._current.calls.append(call)

    def has_called(self, tool: str, value: Any) -> bool:
        """Whether a tool was called with a value as one of its arguments."""
        calls = (call for call in self._calls.values() if call.tool == tool and isinstance(call.input, dict))
        return any(value in call.input.values() for call in calls)

    def add_parts(self, parts: Any, at_ms: float | None) -> None:
        """Add the text and tool calls of a message in the format of Anthropic's API or of pi."""
        for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts or ():
            if part.get("type") == "text":
                self.add_text(text_of([part]))
            elif part.get("type") in ("tool_use", "toolCall"):
                id, tool = str(part.get("id", "")), str(part.get("name", ""))
                self.add_call(id, tool, part.get("input", part.get("arguments")), at_ms)

    def add_result(
        self, id: str, output: Any, at_ms: float | None, *, failed: bool = False, duration_ms: float | None = None
    ) -> None:
        """Add the result of a call. Its duration defaults to the time between the events, if their times are known."""
        call = self._calls.get(id)
        if call is None or call.ended:
            return
        call.output, call.ended, call.failed, call.ended_ms = output, True, failed, at_ms
        if duration_ms is None and at_ms is not None and call.at_ms is not None:
            duration_ms = at_ms - call.at_ms
        call.duration_ms = None if duration_ms is None else round(max(0.0, duration_ms), 3)
        self.failed_calls += failed

    @property
    def _last(self) -> ModelTurn | None:
        last = self._entries[-1] if self._entries else None
        return last if isinstance(last, ModelTurn) else None

    @property
    def _current(self) -> ModelTurn:
        last = self._last
        assert last is not None
        return last


@dataclass(slots=True)
class _Call:
    id: str
    tool: str
    input: Any
    at_ms: float | None
    timestamp: str | None
    output: Any = None
    ended: bool = False
    failed: bool = False
    ended_ms: float | None = None
    duration_ms: float | None = None


@dataclass(slots=True)
class ModelTurn:
    """A turn of the model: its text and its tool calls."""

    key: object
    text: str = ""
    calls: list[_Call] = field(default_factory=list)
    ended_ms: float | None = None

    @property
    def last_ms(self) -> float | None:
        """The time of the turn's last record, or of the last result of its calls; None if it is unknown."""
        times = (self.ended_ms, *(time for call in self.calls for time in (call.at_ms, call.ended_ms)))
        return max((time for time in times if time is not None), default=None)

    @property
    def message(self) -> Message:
        calls = (ToolCall(e.tool, e.input, e.output, e.id, e.timestamp, e.duration_ms) for e in self.calls)
        return Message("assistant", self.text or None, tuple(calls))


def text_of(content: Any) -> str:
    """Return the text of a list of parts, or of a string."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def number(data: Any, key: str) -> int:
    """Return a count in an event, or 0."""
    value = data.get(key) if isinstance(data, dict) else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else 0


def text_or_none(value: Any) -> str | None:
    """Return a string, or None for any other value."""
    return value if isinstance(value, str) else None


def milliseconds(timestamp: Any, otherwise: float) -> float:
    """Return an ISO timestamp in milliseconds, or `otherwise` if it is invalid."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() * 1000
    except (TypeError, ValueError):
        return otherwise


def sum_costs(costs: Iterable[Any]) -> float | None:
    """Sum the costs that are known; None if none is."""
    amounts = [cost for cost in map(amount, costs) if cost is not None]
    return sum(amounts) if amounts else None
