"""Traces in OTLP JSON: one export, or one export per line; and lists of spans. Spans may be in any order."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from agentv.extensions.otel.span_messages import SpanMessage, messages_of_span
from agentv.extensions.otel.spans import Span, is_observation, spans_in
from agentv.model.message import Message
from agentv.model.result import TokenUsage
from agentv.model.token_counts import UsageFields, usage
from agentv.sessions.session import ReadLog, Session, SessionBuilder, SessionFormat, decoded, objects_in
from agentv.sessions.session_file import SessionFile
from agentv.sessions.turns import Turns

_SPOOL_BYTES = 32 * 1024 * 1024
_USAGES = (
    UsageFields(
        ("gen_ai.usage.input_tokens",),
        ("gen_ai.usage.output_tokens",),
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.reasoning.output_tokens",
    ),
    UsageFields(("gen_ai.usage.prompt_tokens",), ("gen_ai.usage.completion_tokens",)),
    UsageFields(
        ("llm.token_count.prompt",),
        ("llm.token_count.completion",),
        "llm.token_count.prompt_details.cache_read",
        "llm.token_count.completion_details.reasoning",
    ),
    UsageFields(("ai.usage.promptTokens",), ("ai.usage.completionTokens",)),
)
_ARGUMENTS = (
    *("gen_ai.tool.call.arguments", "input.value", "ai.toolCall.args", "traceloop.entity.input"),
    "tool.parameters",  # a schema of the arguments, but some instrumentations write the arguments themselves
)
COSTS = ("llm.cost.total", "gen_ai.usage.cost", "operation.cost", "gen_ai.usage.total_cost")
_NOT_RECORDED = (
    "a trace without the texts of messages (set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true to record them)"
)

_NO_SPANS = "a trace without spans of a model or an agent"


class _Otlp(SessionFormat):
    agent = "otlp"
    title = "a trace (OTLP JSON)"
    marks = (
        b"resourceSpans",
        b"resource_spans",
        b"resourceLogs",
        b"resource_logs",
        b'"trace_id"',
        b'"observations"',
        b'"traceId"',
    )

    def fits(self, file: SessionFile) -> bool:
        exports = file.first if file.is_lines else _exports(file.document)[:1]
        return any(isinstance(item, dict) and _is_export(item) for item in exports)

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        exports: Iterable[Any] = file.records(log) if file.is_lines else _exports(file.document)
        with closing(_TraceSpool()) as spool:
            for export in exports:
                for span in spans_in(export):
                    spool.add(span)
            conversations = list(spool.conversations())
            if not conversations:
                log.skip(_NO_SPANS, file.path)
            for conversation, traces in conversations:
                yield from session_of_traces(conversation, traces, file.path, log)


OTLP = _Otlp()


def _is_export(item: dict[str, Any]) -> bool:
    """Whether a record has spans, is a span, or is a trace or an observation of Langfuse's API."""
    keys = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
    is_span = {"context", "start_time"} <= item.keys() or is_observation(item)
    observations = objects_in(item.get("observations"))
    return is_span or not item.keys().isdisjoint(keys) or any("startTime" in data for data in observations)


def _exports(document: Any) -> list[Any]:
    """Return the exports in a document: itself, or the spans of a list or of a page of Phoenix's API."""
    spans = document.get("data") if isinstance(document, dict) else document
    return spans if isinstance(spans, list) else [document]


class _TraceSpool:
    """Keeps spans by trace, on disk if there are many, because the spans of a trace may be anywhere in a file."""

    def __init__(self) -> None:
        self._stream = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115  # closed by `close`
        self._places: dict[str, list[int]] = {}
        self._conversations: dict[str, str] = {}
        self._starts: dict[str, int] = {}

    def close(self) -> None:
        self._stream.close()

    def add(self, span: Span) -> None:
        if not span.attributes and not span.events:
            return
        self._places.setdefault(span.trace, []).append(self._stream.tell())
        if span.conversation:
            self._conversations.setdefault(span.trace, span.conversation)
        if span.start:
            self._starts[span.trace] = min(span.start, self._starts.get(span.trace, span.start))
        self._stream.write(msgspec.json.encode(span) + b"\n")

    def conversations(self) -> Iterator[tuple[str, Iterator[list[Span]]]]:
        """Yield each conversation with its traces in order of time. A trace without one is its own conversation."""
        groups: dict[str, list[str]] = {}
        for trace in sorted(self._places, key=lambda trace: self._starts.get(trace, 0)):
            groups.setdefault(self._conversations.get(trace) or trace, []).append(trace)
        for conversation, traces in groups.items():
            yield conversation, map(self._spans, traces)

    def _spans(self, trace: str) -> list[Span]:
        spans = []
        for place in self._places[trace]:
            self._stream.seek(place)
            spans.append(msgspec.json.decode(self._stream.readline(), type=Span))
        return spans


def session_of_traces(conversation: str, traces: Iterable[list[Span]], path: str, log: ReadLog) -> Iterator[Session]:
    """Yield the session of a conversation, given the spans of each of its traces, in any order."""
    reader = TraceReader()
    for spans in traces:
        reader.take(spans)
    reader.builder.learn(id=conversation)
    reader.finish()
    if not any(entry.message.text for entry in reader.merged):
        log.skip(_NOT_RECORDED if reader.spans else _NO_SPANS, path)
        return
    yield from reader.builder.finish(path, log)


class MergedMessage(NamedTuple):
    """A message, the span that has it, and whether the model wrote it in that span.

    One that `is_history` was sent before the last message of the user.
    """

    message: SpanMessage
    span: Span
    is_received: bool
    is_history: bool


class TraceReader:
    """Merges the messages of spans: each call of a model repeats the messages before it."""

    def __init__(self) -> None:
        self.builder = SessionBuilder("otlp")
        self.spans = 0
        self.merged: list[MergedMessage] = []
        self.results: dict[str, Any] = {}
        self.tools: list[Span] = []
        self._models: list[Span] = []

    def take(self, spans: list[Span]) -> None:
        """Add the spans of one trace."""
        spans = _with_logs(spans)
        by_id = {span.id: span for span in spans}
        below = ids_below(spans, "tool")
        main = [span for span in spans if span.id not in below]
        models = [span for span in main if span.kind == "llm"]
        self.tools += [span for span in main if span.kind == "tool"]
        self.spans += len([span for span in main if span.kind])
        for span in spans:
            self._learn(span)
        with_text = [span for span in models if any(messages_of_span(span))]
        others = [span for span in main if span.kind == "agent" or not span.parent or span.parent not in by_id]
        counts: Counter[Any] | None = None
        for span in with_text or [span for span in others if any(messages_of_span(span))][:1]:
            counts = self._merge(span, counts)

    def _learn(self, span: Span) -> None:
        builder = self.builder
        builder.see_time(span.start / 1e6)
        builder.see_time(span.end / 1e6)
        builder.learn(agent=span.first("gen_ai.agent.name", "agent.name"), service=span.first("service.name"))
        if span.kind == "llm":
            builder.learn(
                model=span.first("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id")
            )
            self._models.append(span)

    def _merge(self, span: Span, counts_before: Counter[Any] | None) -> Counter[Any]:
        """Add the messages of a span that are new. `counts_before` counts the messages so far that it may repeat."""
        inputs, outputs = messages_of_span(span)
        if counts_before is None:
            first = next((item.signature for item in inputs if item.role != "system"), None)
            messages = [item.message for item in self.merged]
            before = next((item.signature for item in messages if item.role != "system"), None)
            repeats = first is not None and first == before
            counts_before = Counter(item.signature for item in messages) if repeats else Counter()
        last_request = max((place for place, item in enumerate(inputs) if item.role == "user"), default=-1)
        counts: Counter[Any] = Counter()
        for place, message in enumerate((*inputs, *outputs)):
            self.results |= {id: output for id, output in message.results if id}
            counts[message.signature] += 1
            if counts[message.signature] > counts_before[message.signature]:
                counts_before[message.signature] += 1
                self.merged.append(MergedMessage(message, span, place >= len(inputs), place < last_request))
        return counts_before

    def finish(self) -> None:
        """Build the messages. Results come from later messages, or from the spans of tools."""
        facts = self.builder.known
        self.builder.agent = facts.get("agent") or facts.get("service") or self.builder.agent
        spans = self._tool_spans()
        for place, (message, span, is_received, _) in enumerate(self.merged):
            if message.role == "user":
                self._use_models(span.start)
                self.builder.now_ms = span.start / 1e6 or None
                self.builder.add_request(message.text)
            elif message.role == "assistant":
                self.builder.now_ms = (span.end / 1e6 or None) if is_received else None
                self.builder.start_turn(place)
                self.builder.add_text(message.text)
                for number, (id, tool, input) in enumerate(message.calls):
                    self._add_call((id or f"{place}.{number}", tool, input), spans)
            elif message.text:
                self.builder.add_message(Message("system", message.text))
        self._use_models()
        if not any(entry.message.calls for entry in self.merged):
            self._add_tool_spans()

    def _tool_spans(self) -> dict[str, Span]:
        """Return the spans of tool calls by the id of the call.

        Spans without an id belong to the other calls of their tool in order, if there are as many.
        """
        spans = {call_id_of(span): span for span in self.tools if call_id_of(span)}
        groups: dict[str, list[str]] = {}
        for message in (entry.message for entry in self.merged):
            for id, tool, _ in message.calls:
                if id and id not in spans:
                    groups.setdefault(tool, []).append(id)
        for tool, ids in groups.items():
            own = [span for span in self.tools if not call_id_of(span) and tool_of(span) == tool]
            if len(own) == len(ids):
                spans |= zip(ids, sorted(own, key=lambda span: span.start), strict=True)
        return spans

    def _use_models(self, before: int | None = None) -> None:
        """Add the usage and cost of the calls of models that started before a request, and were not added yet."""
        later = []
        for span in self._models:
            if before is not None and span.start >= before:
                later.append(span)
                continue
            self.builder.usages[span.trace, span.id] = usage_of(span)
            self.builder.costs[span.trace, span.id] = span.first(*COSTS)
        self._models = later

    def _add_call(self, call: tuple[str, str, Any], spans: dict[str, Span]) -> None:
        id, tool, input = call
        span = spans.get(id)
        self.builder.add_call(id, tool, input, None)
        output = self.results.get(id)
        if output is None and span is not None:
            output = output_of(span)
        if output is not None or span is not None:
            times = None if span is None else duration_of(span)
            self.builder.add_result(id, output, None, failed=span is not None and span.failed, duration_ms=times)

    def _add_tool_spans(self) -> None:
        """Add calls that only spans describe, before the last answer."""
        if not self.tools:
            return
        last = self.builder.pop_answer()
        for place, span in enumerate(sorted(self.tools, key=lambda span: span.start)):
            add_tool_span(self.builder, span, span.id or str(place))
        self.builder.start_turn()
        self.builder.add_text(last)


def call_id_of(span: Span) -> str:
    """Return the id of the tool call that a span describes; empty if it has none."""
    return str(span.first("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id") or "")


def tool_of(span: Span) -> str:
    """Return the name of the tool that a span describes."""
    return str(span.first("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name") or span.name)


def add_tool_span(turns: Turns, span: Span, id: str) -> None:
    """Add a tool call that only a span describes."""
    arguments = span.first(*_ARGUMENTS)
    turns.add_call(id, tool_of(span), decoded(arguments), None)
    turns.add_result(id, output_of(span), None, failed=span.failed, duration_ms=duration_of(span))


def duration_of(span: Span) -> float:
    """Return the duration of a span in milliseconds."""
    return (span.end - span.start) / 1e6


def output_of(span: Span) -> Any:
    """Return the result of the tool call that a span describes; None if it was not recorded."""
    return span.first(
        *("gen_ai.tool.call.result", "output.value", "tool.result", "ai.toolCall.result", "traceloop.entity.output"),
        "tool_response",
    )


def usage_of(span: Span) -> TokenUsage | None:
    """Return the tokens of a span. Keys have dots, so each is looked up as a whole."""
    for fields in _USAGES:
        paths = {path for field in fields for path in ((field,) if isinstance(field, str) else field) if path}
        short = {path: path.replace(".", "/") for path in paths}
        reported = {short[path]: span.attributes[path] for path in paths if path in span.attributes}
        renamed = UsageFields(
            tuple(short[path] for path in fields.input),
            tuple(short[path] for path in fields.output),
            *(short.get(path, "") for path in fields[2:]),
        )
        if (tokens := usage(reported, renamed)) is not None:
            return tokens
    return None


def _with_logs(spans: list[Span]) -> list[Span]:
    """Return the spans in order of time, each with the events that were exported as log records."""
    logs: dict[str, list[Span]] = {}
    for span in spans:
        if span.is_log:
            logs.setdefault(span.id, []).append(span)
    result = []
    for span in sorted((item for item in spans if not item.is_log), key=lambda span: span.start):
        own = sorted(logs.pop(span.id, ()), key=lambda each: each.start)
        events = (*span.events, *(event for item in own for event in item.events))
        result.append(msgspec.structs.replace(span, events=events))
    for id, own in logs.items():  # the spans of these events were not exported
        own.sort(key=lambda each: each.start)
        events = tuple(event for item in own for event in item.events)
        about = {"gen_ai.operation.name": "chat"}
        result.append(msgspec.structs.replace(own[0], id=id, events=events, attributes=about, is_log=False))
    return result


def ids_below(spans: Iterable[Span], kind: str) -> set[str]:
    """Return the ids of spans that are part of a span of some kind, such as the work of a sub-agent in a tool call.

    Spans whose parents form a circle are not part of each other.
    """
    by_id = {span.id: span for span in spans}
    is_inside: dict[str, bool] = {}  # whether the children of a span are part of one of this kind
    below = set()
    for span in by_id.values():
        path, at = {}, span
        while at.id not in is_inside and at.id not in path:
            path[at.id] = at
            at = by_id.get(at.parent, at)
        chain = list(path.values())
        outer = chain[list(path).index(at.id) :] if at.id in path else []  # the outermost span, or a circle
        inside = any(node.kind == kind for node in outer) or is_inside.get(at.id, False)
        is_inside |= dict.fromkeys((node.id for node in outer), inside)
        for node in reversed(chain[: len(chain) - len(outer)]):
            if inside:
                below.add(node.id)
            inside = is_inside[node.id] = inside or node.kind == kind
    return below
