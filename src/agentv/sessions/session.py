"""A recorded session, the interface of session formats, and the log of what could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from agentv.errors import plural
from agentv.model.message import ImagePart, Message, TextPart, tool_calls_in
from agentv.model.response import Response, content_text
from agentv.model.result import TokenUsage, sum_usage
from agentv.sessions.turns import Turns, milliseconds, sum_costs, text_or_none
from agentv.support.json_values import json_or

if TYPE_CHECKING:
    from agentv.sessions.session_file import SessionFile

_SHOWN = 5


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded session of an agent, as far as it is known. `started` is an ISO timestamp."""

    id: str
    agent: str
    messages: tuple[Message, ...]
    path: str
    model: str | None = None
    started: str | None = None
    cwd: str | None = None
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    tool_errors: int = 0

    @property
    def exchanges(self) -> list[Exchange]:
        """The user's requests, each with the messages before it and the messages that answer it."""
        found: list[Exchange] = []
        start = 0
        for is_user, group in groupby(self.messages, lambda message: message.role == "user"):
            size = len(tuple(group))
            if is_user:
                found.append(Exchange(self.messages[:start], self.messages[start : start + size], ()))
            elif found:
                found[-1] = found[-1]._replace(response=self.messages[start : start + size])
            start += size
        return found

    def response(self, messages: tuple[Message, ...] | None = None) -> Response:
        """Return the recorded answer: of the whole session, or only these messages of it.

        Usage, cost and time are those of the session, so they are only known for all of its messages.
        """
        if messages is not None and messages != tuple(each for each in self.messages if each.role != "user"):
            return Response(messages=messages, id=self.id, model=self.model)
        return Response(
            messages=self.messages if messages is None else messages,
            usage=self.usage,
            cost_usd=self.cost_usd,
            duration_ms=self.duration_ms,
            tool_errors=self.tool_errors,
            id=self.id,
            model=self.model,
        )


class Exchange(NamedTuple):
    """A request of the user and the response to it. `history` are the messages before."""

    history: tuple[Message, ...]
    request: tuple[Message, ...]
    response: tuple[Message, ...]

    @property
    def text(self) -> str:
        """The text of the request."""
        return "\n\n".join(content_text(each.content) for each in self.request if each.content)

    @property
    def answer(self) -> str:
        """The last text of the agent; empty if there is none."""
        return Response(messages=self.response).text

    @property
    def has_attachments(self) -> bool:
        """Whether the request has images or files."""
        return any(not isinstance(part, TextPart) for each in self.request for part in each.parts)

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were called, in order."""
        return [call.tool for call in tool_calls_in(self.response)]


class ReadLog:
    """Counts what was read, and what was not and why."""

    def __init__(self) -> None:
        self.files = 0
        self.sessions: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self._places: dict[str, str] = {}

    def skip(self, why: str, place: str) -> None:
        """Count a session or a file that is left out."""
        self.skipped[why] += 1
        self._places.setdefault(why, place)

    def meet_unknown(self, agent: str, kind: Any) -> None:
        """Count a record of an unknown type, which is ignored."""
        self.unknown[f"{agent} '{str(kind)[:60]}'"] += 1

    def meet_broken(self, path: str, line: int) -> None:
        """Count a line or a document that cannot be parsed."""
        self.broken[path] += 1
        self._places.setdefault(path, f"{path}:{line}")

    def losses(self) -> Iterator[str]:
        """Yield what was left out, once for each occurrence."""
        kinds = (
            *((f"a session or file: {why}", count) for why, count in self.skipped.items()),
            *((f"a broken line of {path}", count) for path, count in self.broken.items()),
            *((f"a record of the unknown type {name}", count) for name, count in self.unknown.items()),
        )
        for what, count in kinds:
            yield from repeat(what, count)

    def lines(self) -> Iterator[str]:
        """Yield what was left out, one line per reason."""
        for why, count in self.skipped.most_common():
            yield f"Skipped {count:,}: {why} (first: {self._places[why]})"
        for path, count in self.broken.most_common(_SHOWN):
            yield f"{path}: {plural(count, 'broken line')} ignored (first: {self._places[path]})"
        if len(self.broken) > _SHOWN:
            yield f"{len(self.broken) - _SHOWN:,} more files have broken lines"
        if self.unknown:
            named = ", ".join(f"{name} ({count:,})" for name, count in self.unknown.most_common(2 * _SHOWN))
            more = len(self.unknown) - 2 * _SHOWN
            yield f"Unknown types of records ignored: {named}" + (f" and {more:,} more" if more > 0 else "")


class SessionFormat:
    """Base class of session formats. Each is one module and one row of `SESSION_FORMATS`, which names an instance."""

    agent: ClassVar[str]
    """The name of the agent, as in sessions and tags."""

    title: ClassVar[str]
    """What a file in this format is, for messages."""

    marks: ClassVar[tuple[bytes, ...]] = ()
    """A file without one of these byte strings near its start is not in this format."""

    def fits(self, file: SessionFile) -> bool:
        """Whether a file is in this format. Only called if one of the `marks` was found."""
        raise NotImplementedError

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        """Yield the sessions in a file, one at a time."""
        raise NotImplementedError


class SessionBuilder(Turns):
    """Collects the messages and figures of one session from its records."""

    def __init__(self, agent: str) -> None:
        super().__init__()
        self.agent = agent
        self.known: dict[str, Any] = {}
        self.usages: dict[object, TokenUsage | None] = {}
        self.costs: dict[object, Any] = {}
        self._first_ms: float | None = None
        self._last_ms: float | None = None

    def learn(self, **values: Any) -> None:
        """Keep the first value of each name that is not empty: `id`, `model`, `started`, `cwd`."""
        for name, value in values.items():
            if value and isinstance(value, str):
                self.known.setdefault(name, value)

    def see_time(self, value: Any) -> float | None:
        """Note the time of a record, as text or in milliseconds; return it in milliseconds, None if it is unknown."""
        at_ms = float(value) if isinstance(value, int | float) and value > 0 else milliseconds(value, 0.0) or None
        if at_ms is not None:
            self._first_ms = at_ms if self._first_ms is None else min(self._first_ms, at_ms)
            self._last_ms = at_ms if self._last_ms is None else max(self._last_ms, at_ms)
        return at_ms

    def add_request(self, text: str, attachments: int = 0) -> None:
        """Add a message of the user. Attachments are noted, not kept."""
        if text.strip() or attachments:
            parts = (TextPart(text), *(ImagePart("attachment") for _ in range(attachments)))
            self.add_message(Message("user", parts if attachments else text))

    def pop_answer(self) -> str:
        """Remove the last turn if it has only text, and return its text."""
        last = self._last
        if last is None or last.calls:
            return ""
        self._entries.pop()
        return last.text

    @property
    def position(self) -> int:
        """The number of entries so far, for `rewind`."""
        return len(self._entries)

    def rewind(self, position: int) -> None:
        """Drop everything after a position: the user went back to it."""
        del self._entries[position:]

    def drop_requests(self, count: int) -> None:
        """Drop the last requests and everything after them."""
        places = [
            place for place, entry in enumerate(self._entries) if isinstance(entry, Message) and entry.role == "user"
        ]
        if places and count > 0:
            self.rewind(places[max(0, len(places) - count)])

    def finish(self, path: str, log: ReadLog) -> Iterator[Session]:
        """Yield the session, unless it is empty."""
        messages = self.messages
        if not any(message.role == "user" for message in messages):
            log.skip("no request of the user", path)
            return
        if self.is_empty:
            log.skip("no answer of the agent", path)
            return
        started = self.known.get("started") or (None if self._first_ms is None else iso_time(self._first_ms))
        first, last = self._first_ms, self._last_ms
        log.sessions[self.agent] += 1
        yield Session(
            id=self.known.get("id") or path,
            agent=self.agent,
            messages=messages,
            path=path,
            model=text_or_none(self.known.get("model")),
            started=started,
            cwd=text_or_none(self.known.get("cwd")),
            usage=sum_usage(self.usages.values()),
            cost_usd=sum_costs(self.costs.values()),
            duration_ms=None if first is None or last is None else round(last - first, 3),
            tool_errors=self.failed_calls,
        )


def iso_time(at_ms: float) -> str | None:
    """Return a time in milliseconds as ISO text; None if it is out of range."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return None


def attachments_in(parts: Any) -> int:
    """Count the images and files in a list of parts."""
    kinds = ("image", "document", "file", "input_image", "input_file", "inlineData", "inline_data", "fileData")
    found = (part for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ()
    return sum(part.get("type") in kinds or not part.keys().isdisjoint(kinds[-3:]) for part in found)


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; empty for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_in(data: Any, key: str) -> dict[str, Any]:
    """Return the object under a key; an empty one if there is none."""
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def decoded(value: Any) -> Any:
    """Return the value of a JSON text; any other value unchanged."""
    return json_or(value, value) if isinstance(value, str) else value


def kind_of(record: dict[str, Any], key: str = "type") -> str:
    """Return the type of a record; empty if it has none."""
    kind = record.get(key)
    return kind if isinstance(kind, str) else ""
