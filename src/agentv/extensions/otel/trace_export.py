"""`--otel`: export a run as traces, while it executes or afterwards."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from agentv.errors import AgentvError, UsageError, file_errors
from agentv.extensions.otel.message_parts import CaseInputs
from agentv.extensions.otel.otlp_body import export_of_message
from agentv.extensions.otel.record_spans import RunFacts, SpanRecord, facts_of, spans_of_record
from agentv.model.manifest import RunManifest
from agentv.model.result import Result
from agentv.model.values import to_json
from agentv.report.services import Delivery
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore
from agentv.trust.policy import load_policy
from agentv.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.trace import SpanContext


class TraceExport:
    """Exports the records of a run as traces. Raises UsageError if that is not possible at all."""

    def __init__(self, endpoint: str) -> None:
        self._sender = SpanSender(endpoint, self._describe)
        self._facts = RunFacts("", None, {})
        self._inputs: CaseInputs | None = None

    def start(self, manifest: RunManifest, folder: RunFolder) -> None:
        """Take what the spans have in common from a run that is about to start."""
        self._start(manifest, manifest.run_id, folder)

    def add(self, record: Result) -> None:
        """Export a record, without waiting."""
        self._sender.add(record)

    def add_carried(self, run: RunStore) -> None:
        """Export the records that a run took over from an earlier one."""
        for record in run.records():
            if record.carried_from is not None and not self._sender.add_patiently(record):
                return

    def add_stored(self, run: RunStore) -> str:
        """Export all records of a stored run; return how many spans were sent. Raises AgentvError if some were not."""
        self._start(run.manifest, run.run_id, run.folder)
        for record in run.records():
            if not self._sender.add_patiently(record):
                break
        delivery = self._sender.close_patiently()
        if delivery.lost:
            hint = "Check the address, and the headers in OTEL_EXPORTER_OTLP_HEADERS; then run the command again"
            detail = f"{delivery.sent:,} spans were delivered"
            raise AgentvError(f"Cannot export the run to {self._sender.url}", detail, hint)
        return delivery.note()

    def close(self) -> Delivery:
        """Send what is left, and return how many spans were exported."""
        return self._sender.close()

    def _start(self, manifest: RunManifest | None, run_id: str, folder: RunFolder) -> None:
        self._facts = facts_of(manifest, run_id, has_content=captures_content())
        self._inputs = CaseInputs(folder.cases_path) if self._facts.has_content else None

    def _describe(self, record: Result) -> Sequence[SpanRecord]:
        return spans_of_record(record, self._facts, None if self._inputs is None else self._inputs.find(record))


INSTALL = "pip install 'agentv[otel]'"
CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_PATH = "/v1/traces"
_SUFFIX = ".json"
_MOST_WAITING = 2_048
_BATCH = 512
_END_S, _FIRST_S, _INTERRUPT_S = 10.0, 1.5, 0.5
"""How long the end of a run waits for the spans that are left; if none was accepted so far; and for a last request."""
_STUCK_S = 60.0
"""Longer than the timeouts of a request, which start again with each part of a reply."""


def traces_url(endpoint: str) -> str:
    """Return the address that traces are sent to. Raises UsageError for an invalid endpoint."""
    try:
        parts = urlsplit(endpoint)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if is_valid and "@" in parts.netloc:
        hint = 'Set OTEL_EXPORTER_OTLP_HEADERS="authorization=Basic …" instead'
        raise UsageError(f"--otel must not contain a password: the address of {parts.hostname} is printed", hint=hint)
    is_valid = is_valid and endpoint.isprintable() and " " not in endpoint
    if not is_valid or parts.query or parts.fragment:
        hint = "For example: --otel http://localhost:4318. Headers are read from OTEL_EXPORTER_OTLP_HEADERS"
        message = "--otel must be an address that starts with http:// or https://, or a file that ends in .json"
        raise UsageError(f"{message}, got {endpoint!r}", hint=hint)
    url = endpoint.rstrip("/")
    url = url if url.endswith(_PATH) else url + _PATH
    load_policy().check_host(url)
    return url


def captures_content() -> bool:
    """Whether the environment asks for the texts of messages in spans."""
    return os.environ.get(CONTENT_VARIABLE, "").strip().lower() in ("true", "1", "span_only", "span_and_event")


class SpanSender:
    """Sends the spans that `describe` returns for records, in a thread: a collector that is down does not slow a run.

    Raises UsageError if the extra `otel` is missing.
    """

    def __init__(self, endpoint: str, describe: Callable[[Result], Sequence[SpanRecord]]) -> None:
        is_file = "://" not in endpoint and endpoint.endswith(_SUFFIX)
        self.url = endpoint if is_file else traces_url(endpoint)
        self._describe = describe
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # late: an extra

            from agentv.extensions.otel.collector_session import CollectorSession  # late: after the extra it needs
        except ImportError:
            message = "--otel needs the SDK of OpenTelemetry"
            raise UsageError(message, hint=f"Install it with: {INSTALL}") from None
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(logging.NullHandler())  # failures are counted, and reported once
        self._convert = _Converter()
        session: Any = SpanFile(endpoint) if is_file else CollectorSession()
        self._session, self._exporter = session, session
        if not is_file:
            self._exporter = OTLPSpanExporter(endpoint=self.url, session=session)
        self._waiting: queue.Queue[Result | None] = queue.Queue(_MOST_WAITING)
        self._sent = self._lost = self._in_flight = 0  # changed by the thread only
        self._dropped = 0
        self._is_failing = self._is_over = False
        self._sending_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="agentv-otel", daemon=True)
        self._thread.start()

    def add(self, record: Result) -> None:
        """Send a record without waiting. If too many wait already, its spans are lost."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._dropped += len(self._describe(record))

    def add_patiently(self, record: Result) -> bool:
        """Send a record as soon as there is room; return False if the collector does not accept spans."""
        while not (self._is_failing or self._is_stuck):
            try:
                self._waiting.put(record, timeout=0.1)
                return True
            except queue.Full:
                continue
        self._dropped += len(self._describe(record))
        return False

    @property
    def _is_stuck(self) -> bool:
        """Whether a request takes longer than any timeout allows: a collector may send its reply very slowly."""
        return self._sending_since is not None and monotonic() - self._sending_since > _STUCK_S

    def close(self) -> Delivery:
        """Send what is left, within a few seconds; then nothing else is sent."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_FIRST_S)
            self._thread.join(_FIRST_S)
            if self._sent and not self._is_failing:
                self._thread.join(_END_S - _FIRST_S)
        return self._end()

    def close_patiently(self) -> Delivery:
        """Send what is left, unless a request does not end; then nothing else is sent."""
        is_told = False
        while self._thread.is_alive() and not self._is_stuck:
            with suppress(queue.Full):
                if not is_told:
                    self._waiting.put(None, timeout=_FIRST_S)
                    is_told = True
                self._thread.join(_FIRST_S)
        return self._end()

    def _end(self) -> Delivery:
        self._is_over = True
        self._exporter.shutdown()
        self._thread.join(_INTERRUPT_S)
        pending = 0
        while not self._waiting.empty():
            record = self._waiting.get_nowait()
            pending += 0 if record is None else len(self._describe(record))
        return Delivery(self.url, self._sent, self._dropped + self._lost + pending + self._in_flight)

    def _run(self) -> None:
        is_last = False
        while not is_last and not self._is_over:
            spans: list[SpanRecord] = []
            while len(spans) < _BATCH:
                try:
                    record = self._waiting.get(block=not spans)
                except queue.Empty:
                    break
                is_last = record is None
                if record is None:
                    break
                spans += self._describe(record)
                self._in_flight = len(spans)
            if spans:
                self._send(spans)

    def _send(self, spans: list[SpanRecord]) -> None:
        self._sending_since = monotonic()
        try:
            is_sent = self._exporter.export([self._convert(span) for span in spans]).name == "SUCCESS"
        except Exception:  # of the exporter's libraries: a lost span is counted, and never ends a run
            is_sent = False
        self._sending_since = None
        self._is_failing = not is_sent
        self._in_flight = 0
        lost = min(len(spans), self._session.rejected) if is_sent else len(spans)
        self._sent += len(spans) - lost
        self._lost += lost


class SpanFile:
    """An exporter of spans to a file, which becomes one document."""

    rejected = 0

    def __init__(self, path: str) -> None:
        with file_errors(f"Cannot write {path}"):
            self._stream: BinaryIO = open(path, "wb")  # noqa: SIM115  # closed by shutdown
        self._stream.write(b'{"resourceSpans":[')
        self._is_first = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Add spans to the document."""
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans  # late: an extra
        from opentelemetry.sdk.trace.export import SpanExportResult

        for resource in export_of_message(encode_spans(spans)).get("resourceSpans", ()):
            self._stream.write((b"" if self._is_first else b",\n") + to_json(resource))
            self._is_first = False
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Complete the document. Doing so again has no effect."""
        if not self._stream.closed:
            self._stream.write(b"]}\n")
            self._stream.close()


class _Converter:
    """Converts spans to those of the SDK."""

    def __init__(self) -> None:
        from opentelemetry.sdk.resources import Resource  # late: an extra
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        name = os.environ.get("OTEL_SERVICE_NAME") or "agentv"
        self._resource = Resource.create({"service.name": name, "service.version": __version__})
        self._scope = InstrumentationScope("agentv", __version__)

    def __call__(self, span: SpanRecord) -> ReadableSpan:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanKind, Status, StatusCode

        events = [Event("gen_ai.evaluation.result", dict(event), span.end) for event in span.events]
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.id),
            parent=None if span.parent is None else _context(span.trace_id, span.parent),
            resource=self._resource,
            attributes=span.attributes,
            events=events,
            kind=SpanKind.CLIENT if span.is_client else SpanKind.INTERNAL,
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    sampled: Any = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=sampled)
