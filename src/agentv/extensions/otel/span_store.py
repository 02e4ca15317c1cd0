"""The spans that arrived and were not collected yet, by trace. Used in one event loop."""

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict

import msgspec

from agentv.extensions.otel.spans import Span
from agentv.model.call_trace import own_span_id
from agentv.model.manifest import SpanCounts

QUIET_S = 0.25
"""How long no span may arrive before a trace counts as complete: exporters send spans in several parts."""
_AFTER_ROOT_NS = 500_000_000
"""How long before the answer the outermost span may have ended. Later work would have a span of its own."""
_MOST_SPANS = 10_000
_MOST_BYTES, _MOST_BYTES_OF_TRACE = 256 * 2**20, 32 * 2**20
_MOST_REMEMBERED = 200_000
"""Calls that ended, and their spans, whose repeated spans are recognized: about 30 MB."""
_NAMED = 5

_encode = msgspec.json.Encoder().encode


class Collection(msgspec.Struct, frozen=True):
    """A request for the spans of a call, which has been answered.

    After a command, which `is_ended`, more spans are not expected once some have arrived.
    """

    trace_id: str
    case: str
    wait_s: float
    is_ended: bool = False


class CollectedSpans(msgspec.Struct, frozen=True):
    """The spans of a call, and how many more were rejected."""

    spans: list[Span] = []
    rejected: int = 0


class _OpenTrace:
    """The spans of one call so far, encoded as JSON."""

    def __init__(self, trace_id: str) -> None:
        self.changed = asyncio.Event()
        self.spans: dict[bytes, bytes] = {}
        self.size = 0
        self.rejected = 0
        self.changed_at = 0.0
        self._parent = own_span_id(trace_id)
        self._has_server = False
        self._last_root_end = 0

    def add(self, key: bytes, span: Span, line: bytes) -> None:
        self.spans[key] = line
        self.size += len(line)
        self.changed_at = asyncio.get_running_loop().time()
        if span.parent.lower() == self._parent and not span.is_log:
            self._has_server = self._has_server or span.is_server
            if span.kind not in ("llm", "tool"):
                self._last_root_end = max(self._last_root_end, span.end)
        self.changed.set()

    def is_complete(self, answered_ns: int, *, is_ended: bool) -> bool:
        """Whether the outermost span has arrived: exporters send it after those inside it."""
        is_over = self._has_server or self._last_root_end > answered_ns - _AFTER_ROOT_NS
        return is_over or (is_ended and bool(self.spans))


class SpanStore:
    """Assigns spans to calls by their trace. Trace ids of the run begin with `prefix`.

    A trace is open from the start of its call until its spans are collected. Spans of the run that belong to no open
    trace are late, so the memory depends on the calls in progress, and not on all calls or on ids that others made up.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._open: dict[str, _OpenTrace] = {}
        self._recent: OrderedDict[str, tuple[str, set[bytes]]] = OrderedDict()
        self._remembered = 0
        self._size = 0
        self._counts: Counter[str] = Counter()
        self._late_cases: dict[str, None] = {}

    def open(self, trace_id: str) -> None:
        """Accept the spans of a call that is about to start."""
        self._open[trace_id] = _OpenTrace(trace_id)

    def add(self, span: Span) -> bool:
        """Add a span; return False if it was rejected, because there are too many."""
        outcome = self._added(span)
        self._counts["received"] += 1
        if outcome is not None:
            self._counts[outcome] += 1
        return outcome != "rejected"

    def _added(self, span: Span) -> str | None:
        """Add a span to its trace; return why it is not part of an answer, if that is known."""
        trace_id = span.trace.lower()
        if not trace_id.startswith(self._prefix):
            return "unmatched"
        line = _encode(span)
        key = _key(span, line)
        if (trace := self._open.get(trace_id)) is None:
            return self._late(trace_id, key)
        if key in trace.spans:
            return "repeated"
        is_full = len(trace.spans) >= _MOST_SPANS or trace.size + len(line) > _MOST_BYTES_OF_TRACE
        if is_full or self._size + len(line) > _MOST_BYTES:
            trace.rejected += 1
            return "rejected"
        trace.add(key, span, line)
        self._size += len(line)
        return None

    def _late(self, trace_id: str, key: bytes) -> str:
        if trace_id not in self._recent:
            return "late"
        case, keys = self._recent[trace_id]
        if key in keys:
            return "repeated"
        keys.add(key)
        self._remember(1)
        if not case:
            return "discarded"
        if len(self._late_cases) < _NAMED:
            self._late_cases[case] = None
        return "late"

    def add_unreadable(self, is_grpc: bool) -> None:
        """Count a request that cannot be read, or the connection of an exporter that uses gRPC."""
        self._counts["grpc_connections" if is_grpc else "unreadable_requests"] += 1

    async def collect(self, collection: Collection) -> bytes:
        """Wait for the spans of a call and return CollectedSpans as JSON. Spans that arrive afterwards are late."""
        trace = self._open.setdefault(collection.trace_id, _OpenTrace(collection.trace_id))
        loop, answered_ns = asyncio.get_running_loop(), time.time_ns()
        deadline = loop.time() + collection.wait_s
        while True:
            is_complete = trace.is_complete(answered_ns, is_ended=collection.is_ended)
            until = min(deadline, trace.changed_at + QUIET_S) if is_complete else deadline
            trace.changed.clear()
            if until <= loop.time():
                break
            try:
                async with asyncio.timeout_at(until):
                    await trace.changed.wait()
            except TimeoutError:
                break
        self._close(collection.trace_id, collection.case)
        lines = list(trace.spans.values())
        self._counts["discarded" if trace.rejected else "used"] += len(lines)
        self._counts["calls"] += 1
        self._counts["calls_without_spans"] += not lines
        return b'{"rejected":%d,"spans":[%b]}' % (trace.rejected, b",".join(lines))

    def discard(self, trace_id: str) -> None:
        """Drop the spans of a call that failed, now and later."""
        self._counts["discarded"] += len(self._close(trace_id, "").spans)

    def counts(self) -> SpanCounts:
        """Return the counts. Spans that were not collected count as discarded."""
        open_count = sum(len(trace.spans) for trace in self._open.values())
        counts = {**self._counts, "discarded": self._counts["discarded"] + open_count}
        return SpanCounts(**counts, late_cases=tuple(self._late_cases))

    def _close(self, trace_id: str, case: str) -> _OpenTrace:
        trace = self._open.pop(trace_id, None) or _OpenTrace(trace_id)
        self._size -= trace.size
        _, span_ids = self._recent.pop(trace_id, ("", None))
        self._recent[trace_id] = case, set(trace.spans)
        self._remember(1 + len(trace.spans) - (0 if span_ids is None else 1 + len(span_ids)))
        return trace

    def _remember(self, more: int) -> None:
        """Count what is remembered about calls that ended, and forget the oldest of them if it is too much."""
        self._remembered += more
        while self._remembered > _MOST_REMEMBERED:
            _, (_, keys) = self._recent.popitem(last=False)
            self._remembered -= 1 + len(keys)


def _key(span: Span, line: bytes) -> bytes:
    """Return what identifies a span; a log record has no id, so its content does."""
    text = line if span.is_log else span.id.lower().encode("utf-8", "replace")
    return hashlib.blake2b(text, digest_size=12).digest()
