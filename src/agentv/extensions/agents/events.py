"""Build an answer from an agent's events: turns, tool calls with their results, and usage."""

import re
import time
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from agentv.errors import start_of
from agentv.model.response import Response, StreamLog, TargetFailure
from agentv.model.result import ErrorClass, TokenUsage, sum_usage
from agentv.sessions.turns import Turns, sum_costs, text_or_none
from agentv.support.json_values import json_or
from agentv.targets.apis.api_errors import error_class_of, standard_status

_STATUS = re.compile(r"(?:status|HTTP|Error|code)\W{0,4}\b([45]\d\d)\b|^\W*([45]\d\d)\b", re.IGNORECASE)
_PHRASES_OVER_STATUS: dict[ErrorClass, str] = {
    "refused": r"(?:usage|content|content filtering) policy|content.?filter",
    "auth": r"credit balance|insufficient.quota",
}
"""Phrases that take precedence over a status, as in `agentv.targets.apis.api_errors` for the vendors' APIs."""

_PHRASES: dict[ErrorClass, str] = {
    "rate_limit": r"rate.?limit|too many requests|quota|usage limit|resource_exhausted",
    "auth": r"unauthori[sz]ed|authenticat|api.?key|not logged in|log ?in|credential|forbidden",
    "timeout": r"timed? ?out",
    "server": r"overloaded|internal server error|bad gateway|service unavailable",
    "network": r"connect|network|fetch failed|ENOTFOUND|socket|disconnected|error sending",
}


class NoAnswer(TargetFailure):
    """Events without an answer or an error; the process's exit may explain more."""

    def __init__(self, message: str = "The agent ended without an answer") -> None:
        super().__init__("invalid_response", message)


class Event(NamedTuple):
    """An event of an agent, and when it arrived, in milliseconds since the agent's start."""

    data: dict[str, Any]
    at_ms: float


class Transcript(Turns):
    """The work of an agent so far. `known` are its `id`, `model` and `stop_reason`; `usages` and `costs` are summed."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Any] = {}
        self.usages: list[TokenUsage | None] = []
        self.costs: list[Any] = []

    def response(self) -> Response:
        """Return the answer, without malformed metadata. Raises NoAnswer if there is no text and no call."""
        if self.is_empty:
            raise NoAnswer
        return Response(
            messages=self.messages,
            usage=sum_usage(self.usages),
            cost_usd=sum_costs(self.costs),
            tool_errors=self.failed_calls,
            id=text_or_none(self.known.get("id")),
            model=text_or_none(self.known.get("model")),
            stop_reason=text_or_none(self.known.get("stop_reason")),
        )

    def failed(self, failure: TargetFailure) -> TargetFailure:
        """Return the failure of an agent with what its work so far used, which was paid for."""
        failure.usage, failure.cost_usd = sum_usage(self.usages), sum_costs(self.costs)
        return failure


def classify_failure(message: str, status: int | None = None) -> TargetFailure:
    """Return the failure that an agent reports, classified by the status in its message, else by phrases."""
    if (error_class := _class_by(_PHRASES_OVER_STATUS, message)) is not None:
        return TargetFailure(error_class, message)
    if status is None and (match := _STATUS.search(message)):
        status = int(match[1] or match[2])
    if status is not None and status >= 400:
        status = standard_status(status)
        return TargetFailure(error_class_of(status), message, status=status)
    return TargetFailure(_class_by(_PHRASES, message) or "process", message)


def _class_by(phrases: dict[ErrorClass, str], message: str) -> ErrorClass | None:
    return next((kind for kind, pattern in phrases.items() if re.search(pattern, message, re.IGNORECASE)), None)


MAX_BYTES = 64 * 1024 * 1024
"""The maximum output of an agent, without ignored lines. Normal output is far smaller."""

LogFormat = Literal["summary", "json", "raw"]
_LONGEST_SUMMARY = 300
_SUMMARY_KEYS = (
    *("type", "subtype", "role", "name", "tool_name", "toolName", "tool", "text", "content", "message", "command"),
    *("input", "parameters", "arguments", "args", "output", "aggregated_output", "result", "error", "status"),
)
_NESTED = ("message", "item", "part", "data", "state", "content", "error", "result", "input", "parameters", "arguments")


class EventStream:
    """The output lines of one call. Lines with an ignored prefix are neither kept nor logged."""

    def __init__(self, ignored_prefixes: tuple[bytes, ...], log: StreamLog | None, *, summary: bool) -> None:
        self._ignored_prefixes = ignored_prefixes
        self._log = log
        self._is_summary = summary
        self._started = time.perf_counter()
        self._lines: list[tuple[bytes, float]] = []
        self._rest = bytearray()
        self._bytes = 0

    def take(self, data: bytes) -> bool:
        """Add output. Return False if there is too much."""
        self._rest += data
        if b"\n" in data:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                self._keep(line)
        return self._bytes + len(self._rest) <= MAX_BYTES

    def add(self, line: bytes) -> None:
        """Add a line after all output."""
        rest, self._rest = bytes(self._rest), bytearray()
        self._keep(rest)
        self._keep(line.replace(b"\n", b" "))

    def events(self) -> Iterator[Event]:
        """Yield the lines that are JSON objects; agents may also print warnings."""
        self.add(b"")
        for line, at_ms in self._lines:
            if (data := _object(line)) is not None:
                yield Event(data, at_ms)

    def _keep(self, line: bytes) -> None:
        if not line.strip() or line.startswith(self._ignored_prefixes):
            return
        at_ms = (time.perf_counter() - self._started) * 1000
        self._lines.append((line, at_ms))
        self._bytes += len(line)
        if self._log is not None:
            self._log.write(summary_of(line, at_ms).encode() if self._is_summary else line)


def summary_of(line: bytes, at_ms: float) -> str:
    """Return a short readable line for an event: its time and its most informative texts."""
    data = _object(line)
    words = line.decode(errors="replace") if data is None else " · ".join(_summary_texts(data))
    words = " ".join(words.split())
    words = start_of(words, _LONGEST_SUMMARY)
    return f"{at_ms / 1000:8.2f} s  {words}"


def _summary_texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _summary_texts(item, depth + 1)
    elif isinstance(value, dict) and depth < 6:
        yield from (text for key in _SUMMARY_KEYS if isinstance(text := value.get(key), str) and text)
        for key in _NESTED:
            if isinstance(value.get(key), dict | list):
                yield from _summary_texts(value[key], depth + 1)


def _object(line: bytes) -> dict[str, Any] | None:
    data = json_or(line, None)
    return data if isinstance(data, dict) else None
