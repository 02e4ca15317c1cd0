"""Read the body of an OTLP/HTTP export: JSON or Protocol Buffers."""

import base64
import binascii
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.errors import UsageError, import_extra
from agentv.extensions.otel.spans import Span, spans_in
from agentv.support.json_values import repair_json

INSTALL = "pip install 'agentv[otel]'"
JSON, PROTOBUF = "application/json", "application/x-protobuf"
MAX_BODY_BYTES = 32 * 2**20
_MOST_VALUES = 500_000
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_IDS = ("traceId", "spanId", "parentSpanId")


class UnreadableBody(ValueError):
    """A body that is not an OTLP export, and the HTTP status of the reply."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def check_installed() -> None:
    """Raise UsageError if the package that decodes Protocol Buffers is missing."""
    message = "Targets with `traces` need the package opentelemetry-proto"
    missing = UsageError(message, hint=f"Install it with: {INSTALL}")
    import_extra("opentelemetry.proto.collector.trace.v1.trace_service_pb2", missing)


def decompressed(body: bytes, coding: str) -> bytes:
    """Return a body without its Content-Encoding. Raises UnreadableBody."""
    if coding in ("", "identity"):
        return body
    if coding not in ("gzip", "deflate"):
        raise UnreadableBody(f"The content encoding must be gzip or deflate, not {coding[:40]}", 415)
    stream = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        data = stream.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise UnreadableBody(f"The body is not valid {coding} data: {error}") from None
    if len(data) > MAX_BODY_BYTES:
        raise UnreadableBody(f"The body is larger than {MAX_BODY_BYTES} bytes", 413)
    if not stream.eof or stream.unused_data:
        raise UnreadableBody(f"The body is not valid {coding} data: it ends too early or too late")
    return data


def spans_of_body(body: bytes, content_type: str, signal: str) -> list[Span]:
    """Return the spans of an export, or its log records if `signal` is `logs`. Raises UnreadableBody."""
    try:
        export = _parsed(body, signal) if content_type == PROTOBUF else _decoded(body)
        if not isinstance(export, dict):
            raise UnreadableBody("The body is not a JSON object")
        return list(spans_in(export))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableBody(f"The body is not valid JSON: {error}") from None
    except RecursionError:
        raise UnreadableBody("The body is nested too deeply") from None


def _decoded(body: bytes) -> Any:
    _check_values(body.count(b"{") + body.count(b"["))  # those inside strings included
    return msgspec.json.decode(repair_json(body))


def _check_values(count: int) -> None:
    """Refuse a body whose number of objects and lists would take seconds to read."""
    if count > _MOST_VALUES:
        raise UnreadableBody(f"The body has more than {_MOST_VALUES} objects and lists: send fewer spans at once", 413)


def _parsed(body: bytes, signal: str) -> Any:
    try:
        from google.protobuf.message import DecodeError  # late: an optional extra
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        raise UnreadableBody(f"Protocol Buffers need a package that is not installed: {INSTALL}", 415) from None

    message = ExportLogsServiceRequest() if signal == "logs" else ExportTraceServiceRequest()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise UnreadableBody(f"The body is not a valid Protocol Buffers message: {error}") from None
    _check_messages(message)
    return export_of_message(message)


def export_of_message(message: Any) -> dict[str, Any]:
    """Return an export in Protocol Buffers as that in JSON, whose ids are hexadecimal."""
    from google.protobuf.json_format import MessageToDict  # late: an optional extra

    export: dict[str, Any] = MessageToDict(message)
    for item in _identified(export):
        for name in _IDS:
            if name in item:
                item[name] = _hexadecimal(item[name])
    return export


def _check_messages(message: Any) -> None:
    """Refuse a message that has too many others, at all depths."""
    count, pending = 0, [message]
    while pending:
        for field, value in pending.pop().ListFields():
            if field.message_type is not None:
                inner = [value] if hasattr(value, "ListFields") else value
                count += len(inner)
                _check_values(count)
                pending += inner


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
