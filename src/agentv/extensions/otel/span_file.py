"""Write spans to a file in OTLP's JSON, which backends of OpenTelemetry import."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, BinaryIO

from agentv.errors import file_errors
from agentv.extensions.otel.otlp_body import export_of_message
from agentv.model.values import to_json

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

SUFFIX = ".json"


class FileResult(Enum):
    """The result of writing spans, named as in OpenTelemetry's SDK."""

    SUCCESS = 0


class SpanFile:
    """An exporter of spans to a file, which becomes one document."""

    rejected = 0

    def __init__(self, path: str) -> None:
        with file_errors(f"Cannot write {path}"):
            self._stream: BinaryIO = open(path, "wb")  # noqa: SIM115  # closed by shutdown
        self._stream.write(b'{"resourceSpans":[')
        self._is_first = True

    def export(self, spans: Sequence[ReadableSpan]) -> FileResult:
        """Add spans to the document."""
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans  # late: an extra

        for resource in export_of_message(encode_spans(spans)).get("resourceSpans", ()):
            self._stream.write((b"" if self._is_first else b",\n") + to_json(resource))
            self._is_first = False
        return FileResult.SUCCESS

    def shutdown(self) -> None:
        """Complete the document. Doing so again has no effect."""
        if not self._stream.closed:
            self._stream.write(b"]}\n")
            self._stream.close()
