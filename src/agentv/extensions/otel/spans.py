"""Spans and log records of OpenTelemetry, decoded from the JSON of OTLP or of a console exporter."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from agentv.sessions.session import object_in, objects_in

_LLM_OPERATIONS = ("chat", "text_completion", "generate_content", "completion", "responses")
_AGENT_OPERATIONS = ("invoke_agent", "create_agent", "invoke_workflow")
_RELEVANT = re.compile(
    r"gen_ai\.|llm\.|openinference\.|input\.|output\.|tool\.|tool_call|session\.id|ai\.|traceloop\.|agent|events$"
    r"|all_messages|pydantic_ai\.|message|langfuse\.|metadata|operation\.cost|final_result|tools?$|service\.name"
)
_TOOL_NAMES = ("gen_ai.tool.name", "ai.toolCall.name")
_OBSERVATIONS = {"GENERATION": "llm", "TOOL": "tool", "AGENT": "agent", "CHAIN": "chain", "SPAN": "", "EVENT": ""}
"""The types of observations of Langfuse, and what they are about."""

_SERVER_KINDS = (2, 5, "SPAN_KIND_SERVER", "SPAN_KIND_CONSUMER")
_LARGEST = 2**63 - 1
_CONVERSATIONS = (
    *("gen_ai.conversation.id", "session.id", "langfuse.session.id", "conversation.id", "thread.id"),
    "traceloop.association.properties.session_id",
)


class SpanEvent(NamedTuple):
    """An event of a span: its name, and its attributes or body."""

    name: str
    data: dict[str, Any]


class Span(msgspec.Struct, frozen=True):
    """One span, reduced to what describes a conversation. Times are nanoseconds. A log record has `is_log`.

    The span of a request that a server or a consumer of messages handled has `is_server`.
    """

    trace: str
    id: str
    parent: str = ""
    name: str = ""
    start: int = 0
    end: int = 0
    attributes: dict[str, Any] = {}
    events: tuple[SpanEvent, ...] = ()
    is_log: bool = False
    failed: bool = False
    is_server: bool = False

    def first(self, *keys: str) -> Any:
        """Return the first attribute that is set."""
        return next((self.attributes[key] for key in keys if self.attributes.get(key) not in (None, "")), None)

    @property
    def kind(self) -> str:
        """What the span is about: `llm`, `tool`, `agent`, or empty."""
        operation = self.first("gen_ai.operation.name")
        label = self.first("openinference.span.kind", "traceloop.span.kind", "llm.request.type")
        label = str(label or "").lower()
        if operation == "execute_tool" or label == "tool" or (not operation and self.first(*_TOOL_NAMES)):
            return "tool"
        if operation in _AGENT_OPERATIONS or label in ("agent", "chain", "workflow"):
            return "agent"
        is_model = operation in _LLM_OPERATIONS or label in ("llm", "chat", "completion", "generation")
        return "llm" if is_model or self.first("ai.prompt.messages", "gen_ai.request.model") else ""

    @property
    def conversation(self) -> str:
        """The id of the conversation that the span belongs to; empty if it has none."""
        return str(self.first(*_CONVERSATIONS) or "")


def spans_in(export: Any) -> Iterator[Span]:
    """Yield the spans and log records of one OTLP export, or the span that a console exporter wrote."""
    if not isinstance(export, dict):
        return
    if isinstance(export.get("context"), dict) and "start_time" in export:
        yield _console_span(export)
    observations = [export] if is_observation(export) else objects_in(export.get("observations"))
    yield from (_observation(item, export) for item in observations)
    for resource in _items(export, "resourceSpans", "resource_spans"):
        about = _attributes(object_in(resource, "resource").get("attributes"))
        for scope in _items(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            yield from (_span(item, about) for item in objects_in(scope.get("spans")))
    for resource in _items(export, "resourceLogs", "resource_logs"):
        for scope in _items(resource, "scopeLogs", "scope_logs"):
            records = _items(scope, "logRecords", "log_records")
            yield from (_log(item) for item in records if item.get("traceId") or item.get("trace_id"))


def _items(data: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    return next((objects_in(data[key]) for key in keys if key in data), [])


def key_of(data: dict[str, Any], *keys: str) -> Any:
    """Return the first value that is set under one of these keys."""
    return next((data[key] for key in keys if data.get(key) is not None), None)


def _span(data: dict[str, Any], resource: dict[str, Any]) -> Span:
    attributes = {"service.name": resource.get("service.name"), **_attributes(data.get("attributes"))}
    events = (
        SpanEvent(str(item.get("name", "")), _attributes(item.get("attributes")))
        for item in objects_in(data.get("events"))
    )
    return Span(
        trace=str(key_of(data, "traceId", "trace_id") or ""),
        id=str(key_of(data, "spanId", "span_id") or ""),
        parent=str(key_of(data, "parentSpanId", "parent_span_id") or ""),
        name=str(data.get("name", "")),
        start=_nanoseconds(key_of(data, "startTimeUnixNano", "start_time_unix_nano")),
        end=_nanoseconds(key_of(data, "endTimeUnixNano", "end_time_unix_nano")),
        attributes={key: value for key, value in attributes.items() if _RELEVANT.match(key)},
        events=tuple(event for event in events if event.name.startswith("gen_ai.")),
        failed=object_in(data, "status").get("code") in (2, "STATUS_CODE_ERROR"),
        is_server=data.get("kind") in _SERVER_KINDS,
    )


def _console_span(data: dict[str, Any]) -> Span:
    """Return a span as the console exporter of the Python SDK writes it, or the API of Phoenix."""
    context = object_in(data, "context")
    start, end = _time(data.get("start_time")), _time(data.get("end_time"))
    attributes = object_in(object_in(data, "resource"), "attributes") | object_in(data, "attributes")
    if isinstance(data.get("span_kind"), str):
        attributes = {"openinference.span.kind": data["span_kind"], **attributes}
    return Span(
        trace=str(context.get("trace_id")).removeprefix("0x"),
        id=str(context.get("span_id")).removeprefix("0x"),
        parent=str(data.get("parent_id") or "").removeprefix("0x"),
        name=str(data.get("name", "")),
        start=start,
        end=end,
        attributes={key: value for key, value in _numbered(attributes) if _RELEVANT.match(key)},
        events=tuple(
            SpanEvent(str(event.get("name", "")), object_in(event, "attributes"))
            for event in objects_in(data.get("events"))
        ),
        failed="ERROR" in (object_in(data, "status").get("status_code"), data.get("status_code")),
    )


def is_observation(data: dict[str, Any]) -> bool:
    """Whether a record is an observation of Langfuse's API."""
    return data.get("type") in _OBSERVATIONS and {"traceId", "startTime"} <= data.keys()


def _observation(data: dict[str, Any], trace: dict[str, Any]) -> Span:
    """Return an observation of Langfuse's API as a span. `trace` is the trace that lists it, or the same record."""
    tokens = object_in(data, "usageDetails") or object_in(data, "usage")
    session, costs = key_of(trace, "sessionId", "session_id"), object_in(data, "costDetails")
    attributes = {
        "openinference.span.kind": _OBSERVATIONS.get(str(data.get("type")), ""),
        "session.id": session,
        "input.value": data.get("input"),
        "output.value": data.get("output"),
        "llm.model_name": data.get("model"),
        "llm.token_count.prompt": _total(tokens, "input") or tokens.get("promptTokens"),
        "llm.token_count.completion": _total(tokens, "output") or tokens.get("completionTokens"),
        "llm.token_count.prompt_details.cache_read": key_of(tokens, "input_cached_tokens", "cache_read_input_tokens"),
        "llm.cost.total": key_of(data, "calculatedTotalCost", "totalCost") or costs.get("total"),
    }
    return Span(
        trace=str(key_of(data, "traceId") or trace.get("id") or ""),
        id=str(data.get("id") or ""),
        parent=str(data.get("parentObservationId") or ""),
        name=str(data.get("name") or ""),
        start=_time(data.get("startTime")),
        end=_time(data.get("endTime")),
        attributes=attributes,
        failed=data.get("level") == "ERROR",
    )


def _total(counts: dict[str, Any], part: str) -> int:
    """Return the sum of the counts with a part in their name: cached and reasoning tokens are counted apart."""
    return sum(count for name, count in counts.items() if part in name and isinstance(count, int))


def _numbered(attributes: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield attributes; those of a list of objects have its name and their number, as in OTLP."""
    for key, value in attributes.items():
        items = value if key.startswith(("llm.", "message.")) and isinstance(value, list) else []
        if items and all(isinstance(item, dict) for item in items):
            for number, item in enumerate(items):
                yield from _numbered(item, f"{prefix}{key}.{number}.")
        else:
            yield prefix + key, value


def _log(data: dict[str, Any]) -> Span:
    attributes, body = _attributes(data.get("attributes")), _value(data.get("body"))
    name = str(key_of(data, "eventName", "event_name") or attributes.get("event.name") or "")
    event = SpanEvent(name, {**attributes, **(body if isinstance(body, dict) else {})})
    return Span(
        trace=str(key_of(data, "traceId", "trace_id")),
        id=str(key_of(data, "spanId", "span_id") or ""),
        start=_nanoseconds(key_of(data, "timeUnixNano", "time_unix_nano", "observedTimeUnixNano")),
        events=(event,),
        is_log=True,
    )


def _nanoseconds(value: Any) -> int:
    return max(0, _integer(value) or 0)


def _integer(value: Any) -> int | None:
    """Return a 64-bit integer, which OTLP writes as text; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > len(str(_LARGEST)) + 1:
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if abs(number) <= _LARGEST else None


def _time(value: Any) -> int:
    try:
        return int(datetime.fromisoformat(value).timestamp() * 1e9)
    except (TypeError, ValueError):
        return 0


def _attributes(items: Any) -> dict[str, Any]:
    """Return attributes as a dict: of OTLP's list of keys and values, or of a plain object."""
    if isinstance(items, dict):
        return items
    return {str(item.get("key")): _value(item.get("value")) for item in objects_in(items)}


def _value(value: Any) -> Any:
    """Return the value of an attribute, which OTLP wraps in an object that names its type."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    [(kind, inner)] = value.items()
    if (kind := kind.replace("_v", "V")) == "arrayValue":
        return [_value(item) for item in _listed(inner)]
    if kind == "kvlistValue":
        return _attributes(_listed(inner))
    if kind == "intValue":
        return _integer(inner)
    return inner if kind in ("stringValue", "doubleValue", "boolValue", "bytesValue") else value


def _listed(value: Any) -> list[Any]:
    values = object_in({"value": value}, "value").get("values")
    return values if isinstance(values, list) else []
