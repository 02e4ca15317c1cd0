"""`--otel`: export a run as traces, while it executes or afterwards."""

from collections.abc import Sequence

from agentv.errors import AgentvError
from agentv.extensions.otel.message_parts import CaseInputs
from agentv.extensions.otel.record_spans import RunFacts, SpanRecord, facts_of, spans_of_record
from agentv.extensions.otel.span_sender import SpanSender, captures_content
from agentv.model.manifest import RunManifest
from agentv.model.result import Result
from agentv.report.services import Delivery
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore


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
