"""`--otel`: export a run as traces, while it executes or afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agentv.errors import AgentvError
from agentv.model.manifest import RunManifest
from agentv.model.result import Result
from agentv.report.traces.message_parts import CaseInputs
from agentv.report.traces.record_spans import RunFacts, SpanRecord, facts_of, spans_of_record
from agentv.report.traces.span_sender import Delivery, SpanSender, captures_content
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore


class RunExport:
    """Exports the records of a run as they are written. Raises UsageError if that is not possible at all."""

    def __init__(self, endpoint: str) -> None:
        self._sender = SpanSender(endpoint, self._describe)
        self._describe_record = partial(_spans, RunFacts("", None, {}), None)

    def start(self, manifest: RunManifest, folder: RunFolder) -> None:
        """Take what the spans have in common from a run that is about to start."""
        facts = facts_of(manifest, manifest.run_id, has_content=captures_content())
        inputs = CaseInputs(folder.cases_path) if facts.has_content else None
        self._describe_record = partial(_spans, facts, inputs)

    def add(self, record: Result) -> None:
        """Export a record, without waiting."""
        self._sender.add(record)

    def add_carried(self, run: RunStore) -> None:
        """Export the records that a run took over from an earlier one."""
        for record in run.records():
            if record.carried_from is not None and not self._sender.add_patiently(record):
                return

    def close(self) -> Delivery:
        """Send what is left, and return how many spans were exported."""
        return self._sender.close()

    def _describe(self, record: Result) -> Sequence[SpanRecord]:
        return self._describe_record(record)


def export_run(run: RunStore, endpoint: str) -> str:
    """Export all records of a stored run; return how many spans were sent. Raises AgentvError if some were not."""
    facts = facts_of(run.manifest, run.run_id, has_content=captures_content())
    inputs = CaseInputs(run.folder.cases_path) if facts.has_content else None
    sender = SpanSender(endpoint, partial(_spans, facts, inputs))
    for record in run.records():
        if not sender.add_patiently(record):
            break
    delivery = sender.close_patiently()
    if delivery.lost:
        hint = "Check the address, and the headers in OTEL_EXPORTER_OTLP_HEADERS; then run the command again"
        raise AgentvError(f"Cannot export the run to {sender.url}", f"{delivery.sent:,} spans were delivered", hint)
    return delivery.note()


def _spans(facts: RunFacts, inputs: CaseInputs | None, record: Result) -> Sequence[SpanRecord]:
    return spans_of_record(record, facts, None if inputs is None else inputs.find(record))
