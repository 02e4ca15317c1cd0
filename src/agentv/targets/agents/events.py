"""Puts an answer together from an agent's events: turns, tool calls with what came of them, usage. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Response, StreamLog, TargetFailure
from agentv.model.result import ErrorClass, TokenUsage
from agentv.support.json_values import json_or
from agentv.targets.apis.api_errors import error_class_of, standard_status
from agentv.targets.apis.model_api import UsageFields, amount, read_usage

_STATUS = re.compile(r"(?:status|HTTP|Error|code)\W{0,4}\b([45]\d\d)\b|^\W*([45]\d\d)\b", re.IGNORECASE)
_WORDS_BEFORE_A_STATUS: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    ("refused", re.compile(r"(?:usage|content|content filtering) policy|content.?filter", re.IGNORECASE)),
    ("auth", re.compile(r"credit balance|insufficient.quota", re.IGNORECASE)),
)
"""What vendors send under the status of something else, as `agentv.targets.apis.api_errors` has it for their APIs."""

_WORDS: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    ("rate_limit", re.compile(r"rate.?limit|too many requests|quota|usage limit|resource_exhausted", re.IGNORECASE)),
    (
        "auth",
        re.compile(r"unauthori[sz]ed|authenticat|api.?key|not logged in|log ?in|credential|forbidden", re.IGNORECASE),
    ),
    ("timeout", re.compile(r"timed? ?out", re.IGNORECASE)),
    ("server", re.compile(r"overloaded|internal server error|bad gateway|service unavailable", re.IGNORECASE)),
    ("network", re.compile(r"connect|network|fetch failed|ENOTFOUND|socket|disconnected|error sending", re.IGNORECASE)),
)


class NoAnswer(TargetFailure):
    """Events that end without an answer and without a reason: how the process ended may say more."""

    def __init__(self, message: str = "The agent ended without an answer") -> None:
        super().__init__("invalid_response", message)


class Event(NamedTuple):
    """One event that an agent printed, and when it came, in milliseconds since the agent was started."""

    data: dict[str, Any]
    at_ms: float


class Transcript:
    """What an agent did so far. A turn of the model is one assistant message: what it said and the tools it called."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._calls: dict[str, _Call] = {}
        self._failed = 0

    def turn(self, key: object = None) -> None:
        """A new turn, unless `key` names the one that is going on. Agents that number theirs say so here."""
        if not self._turns or key is None or self._turns[-1].key != key:
            self._turns.append(_Turn(key))

    def say(self, text: str) -> None:
        """Text of the model. After a tool call it belongs to the next turn, where the agent does not number them."""
        if not self._turns or (self._turns[-1].key is None and self._turns[-1].calls):
            self.turn()
        self._turns[-1].text += text

    def call(self, id: str, tool: str, input: Any, at_ms: float, timestamp: str | None = None) -> None:
        """A tool is called. When every call before it has ended, the model must have been asked again in between."""
        if id in self._calls:
            return
        last = self._turns[-1] if self._turns else None
        if last is None or (last.key is None and last.calls and all(call.ended for call in last.calls)):
            self.turn()
        call = self._calls[id] = _Call(str(id), str(tool), input, at_ms, text_or_none(timestamp))
        self._turns[-1].calls.append(call)

    def add_parts(self, parts: Any, at_ms: float) -> None:
        """Text and tool calls of one message, in the form of Anthropic's API or of pi."""
        for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts or ():
            if part.get("type") == "text":
                self.say(part.get("text", ""))
            elif part.get("type") in ("tool_use", "toolCall"):
                self.call(part.get("id", ""), part.get("name", ""), part.get("input", part.get("arguments")), at_ms)

    def output(
        self, id: str, output: Any, at_ms: float, *, failed: bool = False, duration_ms: float | None = None
    ) -> None:
        """What came of a call; how long it took, where the agent says so, else from its events."""
        call = self._calls.get(id)
        if call is None or call.ended:
            return
        call.output, call.ended = output, True
        call.duration_ms = round(max(0.0, at_ms - call.at_ms if duration_ms is None else duration_ms), 3)
        self._failed += failed

    def response(self, *, usage: TokenUsage | None = None, cost_usd: Any = None, **known: Any) -> Response:
        """The answer; `known` are the texts `id`, `model` and `stop_reason`. Raises NoAnswer if there is nothing.

        What an agent says around it in another form than it used to is left out: it must not cost the answer.
        """
        if not any(turn.text.strip() or turn.calls for turn in self._turns):
            raise NoAnswer
        return Response(
            messages=tuple(turn.message for turn in self._turns if turn.text or turn.calls),
            usage=usage,
            cost_usd=amount(cost_usd),
            tool_errors=self._failed,
            id=text_or_none(known.get("id")),
            model=text_or_none(known.get("model")),
            stop_reason=text_or_none(known.get("stop_reason")),
        )


@dataclass(slots=True)
class _Call:
    id: str
    tool: str
    input: Any
    at_ms: float
    timestamp: str | None
    output: Any = None
    ended: bool = False
    duration_ms: float | None = None


@dataclass(slots=True)
class _Turn:
    key: object
    text: str = ""
    calls: list[_Call] = field(default_factory=list)

    @property
    def message(self) -> Message:
        calls = (ToolCall(e.tool, e.input, e.output, e.id, e.timestamp, e.duration_ms) for e in self.calls)
        return Message("assistant", self.text or None, tuple(calls))


def text_of(content: Any) -> str:
    """The text in a list of parts, or a text as it is."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def number(data: Any, key: str) -> int:
    """A count in an event; 0 where there is none."""
    value = data.get(key) if isinstance(data, dict) else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else 0


def text_or_none(value: Any) -> str | None:
    """A name in an event; None for anything that is none."""
    return value if isinstance(value, str) else None


def usage(reported: Any, fields: UsageFields) -> TokenUsage | None:
    """Token usage; None where nothing was counted."""
    found = read_usage(reported, fields)
    if found is None or not (found.input or found.output):
        return None
    return msgspec.structs.replace(found, cached=found.cached or None)


def sum_usage(usages: Iterable[TokenUsage | None]) -> TokenUsage | None:
    """The usage of several calls of a model together."""
    found = [msgspec.structs.astuple(each) for each in usages if each is not None]
    sums = [sum(count or 0 for count in counts) for counts in zip(*found, strict=True)]
    return TokenUsage(*sums[:2], *(count or None for count in sums[2:])) if found else None


def milliseconds(timestamp: Any, otherwise: float) -> float:
    """An ISO time as milliseconds, for differences; the time of arrival where there is none."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() * 1000
    except (TypeError, ValueError):
        return otherwise


def classify_failure(message: str, status: int | None = None) -> TargetFailure:
    """The failure that an agent reports, with its class: by the status it names, else by its words."""
    if (telling := _class_by(_WORDS_BEFORE_A_STATUS, message)) is not None:
        return TargetFailure(telling, message)
    if status is None and (found := _STATUS.search(message)):
        status = int(found[1] or found[2])
    if status is not None and status >= 400:
        status = standard_status(status)
        return TargetFailure(error_class_of(status), message, status=status)
    return TargetFailure(_class_by(_WORDS, message) or "process", message)


def _class_by(table: tuple[tuple[ErrorClass, re.Pattern[str]], ...], message: str) -> ErrorClass | None:
    return next((error_class for error_class, words in table if words.search(message)), None)


MAX_BYTES = 64 * 1024 * 1024
"""How much an agent may print, lines that are passed over apart. An honest one stays far below."""

_LONGEST_SUMMARY = 300
_TELLING = ("type", "subtype", "role", "name", "tool_name", "toolName", "tool", "text", "content", "message", "command")
_TELLING_TOO = ("input", "parameters", "arguments", "args", "output", "aggregated_output", "result", "error", "status")
_MESSAGE_KEYS = (*_TELLING, *_TELLING_TOO)
_NESTED = ("message", "item", "part", "data", "state", "content", "error", "result", "input", "parameters", "arguments")


class EventStream:
    """The lines of one call. Lines that begin as `passed_over` says are neither kept nor logged."""

    def __init__(
        self, ignored_prefixes: tuple[bytes, ...], log: StreamLog | None, log_format: Literal["summary", "json"]
    ) -> None:
        self._passed_over = ignored_prefixes
        self._log = log
        self._summarised = log_format == "summary"
        self._started = time.perf_counter()
        self._lines: list[tuple[bytes, float]] = []
        self._rest = bytearray()
        self._bytes = 0

    def take(self, data: bytes) -> bool:
        """More output. False when it is more than any agent has to say."""
        self._rest += data
        if b"\n" in data:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                self._keep(line)
        return self._bytes + len(self._rest) <= MAX_BYTES

    def add(self, line: bytes) -> None:
        """One more line, after everything that was printed."""
        rest, self._rest = bytes(self._rest), bytearray()
        self._keep(rest)
        self._keep(line.replace(b"\n", b" "))

    def events(self) -> Iterator[Event]:
        """The lines that are JSON objects; agents print a warning now and then, too."""
        self.add(b"")
        for line, at_ms in self._lines:
            data = _object(line)
            if data is not None:
                yield Event(data, at_ms)

    def _keep(self, line: bytes) -> None:
        if not line.strip() or line.startswith(self._passed_over):
            return
        at_ms = (time.perf_counter() - self._started) * 1000
        self._lines.append((line, at_ms))
        self._bytes += len(line)
        if self._log is not None:
            self._log.write(summary_of(line, at_ms).encode() if self._summarised else line)


def summary_of(line: bytes, at_ms: float) -> str:
    """An event as a line for people: when it came, and the words in it that say most, cut short."""
    data = _object(line)
    words = line.decode(errors="replace") if data is None else " · ".join(_telling(data))
    words = " ".join(words.split())
    if len(words) > _LONGEST_SUMMARY:
        words = words[: _LONGEST_SUMMARY - 1] + "…"
    return f"{at_ms / 1000:8.2f} s  {words}"


def _telling(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _telling(item, depth + 1)
    elif isinstance(value, dict) and depth < 6:
        yield from (text for key in _MESSAGE_KEYS if isinstance(text := value.get(key), str) and text)
        for key in _NESTED:
            if isinstance(value.get(key), dict | list):
                yield from _telling(value[key], depth + 1)


def _object(line: bytes) -> dict[str, Any] | None:
    data = json_or(line, None)
    return data if isinstance(data, dict) else None
