"""Read the body of an OTLP/HTTP export: JSON or Protocol Buffers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.errors import UsageError
from agentv.sessions.formats.spans import Span, spans_in
from agentv.support.json_values import repair_json

INSTALL = "pip install 'agentv[otel]'"
JSON, PROTOBUF = "application/json", "application/x-protobuf"
_IDS = ("traceId", "spanId", "parentSpanId")


class UnreadableBody(ValueError):
    """A body that is not an OTLP export."""


def check_installed() -> None:
    """Raise UsageError if the package that decodes Protocol Buffers is missing."""
    try:
        import opentelemetry.proto.collector.trace.v1.trace_service_pb2  # noqa: F401  # late: an optional extra
    except ImportError:
        message = "Targets with `traces` need the package opentelemetry-proto"
        raise UsageError(message, hint=f"Install it with: {INSTALL}") from None


def spans_of_body(body: bytes, content_type: str, signal: str) -> list[Span]:
    """Return the spans of an export, or its log records if `signal` is `logs`. Raises UnreadableBody."""
    try:
        export = _parsed(body, signal) if content_type == PROTOBUF else msgspec.json.decode(repair_json(body))
        if not isinstance(export, dict):
            raise UnreadableBody("The body is not a JSON object")
        return list(spans_in(export))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableBody(f"The body is not valid JSON: {error}") from None
    except RecursionError:
        raise UnreadableBody("The body is nested too deeply") from None


def _parsed(body: bytes, signal: str) -> Any:
    from google.protobuf.json_format import MessageToDict  # late: an optional extra
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportLogsServiceRequest() if signal == "logs" else ExportTraceServiceRequest()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise UnreadableBody(f"The body is not a valid Protocol Buffers message: {error}") from None
    export = MessageToDict(message)
    for item in _identified(export):
        for name in _IDS:
            if name in item:
                item[name] = _hexadecimal(item[name])
    return export


def _identified(export: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the spans and log records of an export, whose ids Protocol Buffers writes as base64."""
    for resources, scopes, items in (
        ("resourceSpans", "scopeSpans", "spans"),
        ("resourceLogs", "scopeLogs", "logRecords"),
    ):
        for resource in export.get(resources, ()):
            for scope in resource.get(scopes, ()):
                yield from scope.get(items, ())


def _hexadecimal(id: str) -> str:
    try:
        return base64.b64decode(id).hex()
    except binascii.Error:
        return id
