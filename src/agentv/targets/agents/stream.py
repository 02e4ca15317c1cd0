"""What an agent prints, taken line by line: logged as it comes, kept within a limit, read as events in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from agentv.model.response import StreamLog
from agentv.targets.agents.transcript import Event

MAX_BYTES = 64 * 1024 * 1024
"""How much an agent may print, lines that are passed over apart. An honest one stays far below."""

_LONGEST_SUMMARY = 300
_TELLING = ("type", "subtype", "role", "name", "tool_name", "toolName", "tool", "text", "content", "message", "command")
_TELLING_TOO = ("input", "parameters", "arguments", "args", "output", "aggregated_output", "result", "error", "status")
_WORDS = (*_TELLING, *_TELLING_TOO)
_NESTED = ("message", "item", "part", "data", "state", "content", "error", "result", "input", "parameters", "arguments")


class EventStream:
    """The lines of one call. Lines that begin as `passed_over` says are neither kept nor logged."""

    def __init__(
        self, passed_over: tuple[bytes, ...], log: StreamLog | None, log_format: Literal["summary", "json"]
    ) -> None:
        self._passed_over = passed_over
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
        yield from (text for key in _WORDS if isinstance(text := value.get(key), str) and text)
        for key in _NESTED:
            if isinstance(value.get(key), dict | list):
                yield from _telling(value[key], depth + 1)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        data = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
