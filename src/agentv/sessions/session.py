"""A recorded session, the interface of session formats, and the log of what could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby, islice, pairwise, repeat
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from agentv.errors import plural
from agentv.model.message import ImagePart, Message, TextPart, tool_calls_in
from agentv.model.response import Response, content_text
from agentv.model.result import TokenUsage, sum_usage
from agentv.sessions.turns import ModelTurn, Turns, milliseconds, sum_costs, text_or_none
from agentv.settings.format_choice import DEFAULT_STRENGTH
from agentv.support.json_values import json_or

if TYPE_CHECKING:
    from agentv.sessions.session_file import SessionFile

_SHOWN = 5


class SessionFigures(NamedTuple):
    """The recorded tokens, cost, time and failed tool calls of a session or of the answer to one request."""

    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    tool_errors: int = 0


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded session of an agent, as far as it is known. `started` is an ISO timestamp.

    `figures` has one entry for each of the `exchanges`.
    """

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
    figures: tuple[SessionFigures, ...] = ()

    @property
    def exchanges(self) -> list[Exchange]:
        """The user's requests, each with the messages before it and the messages that answer it."""
        exchanges: list[Exchange] = []
        start = 0
        for is_user, group in groupby(self.messages, lambda message: message.role == "user"):
            size = len(tuple(group))
            if is_user:
                figures = self.figures[len(exchanges)] if self.figures else SessionFigures()
                exchanges.append(Exchange(self.messages[:start], self.messages[start : start + size], (), figures))
            elif exchanges:
                exchanges[-1] = exchanges[-1]._replace(response=self.messages[start : start + size])
            start += size
        return exchanges

    def response(self, exchange: Exchange | None = None) -> Response:
        """Return the recorded answer: everything after the first request, or the answer to one request."""
        if exchange is not None:
            messages, figures = exchange.response, exchange.figures
        else:
            first = self.exchanges[0]
            messages = self.messages[len(first.history) + len(first.request) :]
            figures = SessionFigures(self.usage, self.cost_usd, self.duration_ms, self.tool_errors)
        return Response(messages=messages, id=self.id, model=self.model, **figures._asdict())


class Exchange(NamedTuple):
    """A request of the user and the response to it. `history` are the messages before."""

    history: tuple[Message, ...]
    request: tuple[Message, ...]
    response: tuple[Message, ...]
    figures: SessionFigures = SessionFigures()

    @property
    def text(self) -> str:
        """The text of the request."""
        return "\n\n".join(content_text(message.content) for message in self.request if message.content)

    @property
    def answer(self) -> str:
        """The last text of the agent; empty if there is none."""
        return Response(messages=self.response).text

    @property
    def has_attachments(self) -> bool:
        """Whether the request has images or files."""
        return any(not isinstance(part, TextPart) for message in self.request for part in message.parts)

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
            names = ", ".join(f"{name} ({count:,})" for name, count in self.unknown.most_common(2 * _SHOWN))
            more = len(self.unknown) - 2 * _SHOWN
            yield f"Unknown types of records ignored: {names}" + (f" and {more:,} more" if more > 0 else "")


class SessionFormat:
    """Base class of session formats. Each is one module and one row of `SESSION_FORMATS`, which names an instance."""

    agent: ClassVar[str]
    """The name of the agent, as in sessions and tags."""

    title: ClassVar[str]
    """What a file in this format is, for messages."""

    marks: ClassVar[tuple[bytes, ...]] = ()
    """A file without one of these byte strings near its start is not in this format."""

    strength: ClassVar[float] = DEFAULT_STRENGTH
    """How specific the format is, from 0 to 1. If several recognize a file, the strongest reads it."""

    def fits(self, file: SessionFile) -> float:
        """Return how well the format fits, as a fraction of its `strength`. Only called if the file has a mark."""
        raise NotImplementedError

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        """Yield the sessions in a file, one at a time."""
        raise NotImplementedError


class SessionBuilder(Turns):
    """Collects the messages and figures of one session from its records.

    `usages` and `costs` have an entry per call of a model, added after the request that it answers. `total_usage` and
    `total_cost` replace their sums.
    """

    def __init__(self, agent: str) -> None:
        super().__init__()
        self.agent = agent
        self.known: dict[str, Any] = {}
        self.usages: dict[object, TokenUsage | None] = {}
        self.costs: dict[object, Any] = {}
        self.total_usage: TokenUsage | None = None
        self.total_cost: Any = None
        self._requests: list[_RequestStart] = []
        self._places: dict[int, int] = {}
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
            self.now_ms = at_ms
            self._first_ms = at_ms if self._first_ms is None else min(self._first_ms, at_ms)
            self._last_ms = at_ms if self._last_ms is None else max(self._last_ms, at_ms)
        return at_ms

    def see_total(self, total: TokenUsage | None) -> None:
        """Note the usage of the session so far. The increase since the last total belongs to the current request."""
        if total is None:
            return
        before = self.total_usage or TokenUsage(0, 0)
        pairs = zip(msgspec.structs.astuple(total), msgspec.structs.astuple(before), strict=True)
        increase: list[Any] = [None if count is None else count - (earlier or 0) for count, earlier in pairs]
        is_reset = min(count or 0 for count in increase) < 0
        self.usages[len(self.usages)] = total if is_reset else TokenUsage(*increase)
        self.total_usage = total

    def add_request(self, text: str, attachments: int = 0) -> None:
        """Add a message of the user. Attachments are noted, not kept."""
        if text.strip() or attachments:
            self._places[self.position] = len(self._requests)
            self._requests.append(_RequestStart(self.now_ms, len(self.usages), len(self.costs)))
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
    def has_request(self) -> bool:
        """Whether the user wrote a message."""
        return any(map(_is_request, self._entries))

    @property
    def position(self) -> int:
        """The number of entries so far, for `rewind`."""
        return len(self._entries)

    def rewind(self, position: int) -> None:
        """Drop everything after a position: the user went back to it."""
        del self._entries[position:]

    def drop_requests(self, count: int) -> None:
        """Drop the last requests and everything after them."""
        places = [place for place, entry in enumerate(self._entries) if _is_request(entry)]
        if places and count > 0:
            self.rewind(places[max(0, len(places) - count)])

    def finish(self, path: str, log: ReadLog) -> Iterator[Session]:
        """Yield the session, unless it is empty."""
        messages = self.messages
        if not self.has_request:
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
            usage=self.total_usage or sum_usage(self.usages.values()),
            cost_usd=sum_costs(self.costs.values() if self.total_cost is None else [self.total_cost]),
            duration_ms=None if first is None or last is None else round(last - first, 3),
            tool_errors=self.failed_calls,
            figures=tuple(self._figures()),
        )

    def _figures(self) -> Iterator[SessionFigures]:
        """Yield the figures of each request. Those of dropped requests are only part of the session's."""
        groups = [(is_request, list(group)) for is_request, group in groupby(self._kept(), lambda e: _is_request(e[1]))]
        for (is_request, requests), (_, answer) in pairwise([*groups, (False, [])]):
            if is_request:
                turns = [entry for _, entry in answer if isinstance(entry, ModelTurn)]
                yield self._figures_of([self._places[position] for position, _ in requests], turns)

    def _figures_of(self, requests: list[int], turns: list[ModelTurn]) -> SessionFigures:
        """Return the figures of requests that were answered together, from the turns of their answer."""
        starts = [*self._requests, _RequestStart(None, len(self.usages), len(self.costs))]
        ranges = [(starts[number], starts[number + 1]) for number in requests]
        usages = (value for start, end in ranges for value in islice(self.usages.values(), start.usages, end.usages))
        costs = (value for start, end in ranges for value in islice(self.costs.values(), start.costs, end.costs))
        started = ranges[-1][0].at_ms
        ended = max((turn.last_ms for turn in turns if turn.last_ms is not None), default=None)
        return SessionFigures(
            sum_usage(usages),
            sum_costs(costs),
            None if started is None or ended is None else round(max(0.0, ended - started), 3),
            sum(call.failed for turn in turns for call in turn.calls),
        )


class _RequestStart(NamedTuple):
    """The time of a request, and how many usages and costs were known before it."""

    at_ms: float | None
    usages: int
    costs: int


def _is_request(entry: Message | ModelTurn) -> bool:
    return isinstance(entry, Message) and entry.role == "user"


def iso_time(at_ms: float) -> str | None:
    """Return a time in milliseconds as ISO text; None if it is out of range."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return None


def attachments_in(parts: Any) -> int:
    """Count the images and files in a list of parts."""
    kinds = ("image", "document", "file", "input_image", "input_file", "inlineData", "inline_data", "fileData")
    objects = (part for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ()
    return sum(part.get("type") in kinds or not part.keys().isdisjoint(kinds[-3:]) for part in objects)


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; empty for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_in(data: Any, key: str) -> dict[str, Any]:
    """Return the object under a key; an empty one if there is none."""
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def decoded(value: Any) -> Any:
    """Return the value of a JSON text; any other value unchanged."""
    return json_or(value, value) if isinstance(value, str) else value


def kind_of(record: dict[str, Any], key: str = "type") -> str:
    """Return the type of a record; empty if it has none."""
    kind = record.get(key)
    return kind if isinstance(kind, str) else ""
