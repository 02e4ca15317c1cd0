"""Export a run to a collector, while it executes or afterwards: what the service `run-export` offers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from agentv.errors import plural
from agentv.model.manifest import RunManifest
from agentv.model.result import Result
from agentv.registry import service
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore


class Delivery(NamedTuple):
    """How many spans a collector accepted, and how many were lost."""

    url: str
    sent: int
    lost: int

    def note(self) -> str:
        """Return what was exported, for the last lines of a run."""
        if not self.lost:
            return f"Exported {plural(self.sent, 'span')} to {self.url}."
        total = plural(self.sent + self.lost, "span")
        again = "Export the run later with: agentv report RUN --otel ENDPOINT"
        return f"{self.lost:,} of {total} could not be delivered to {self.url}. {again}"


class RunExport(Protocol):
    """Exports the records of a run as they are written."""

    def start(self, manifest: RunManifest, folder: RunFolder) -> None:
        """Take what the spans have in common from a run that is about to start."""

    def add(self, record: Result) -> None:
        """Export a record, without waiting."""

    def add_carried(self, run: RunStore) -> None:
        """Export the records that a run took over from an earlier one."""

    def add_stored(self, run: RunStore) -> str:
        """Export all records of a stored run; return how many spans were sent. Raises AgentvError if some were not."""

    def close(self) -> Delivery:
        """Send what is left, and return how many spans were exported."""


def open_export(endpoint: str) -> RunExport:
    """Return an export to an endpoint. Raises UsageError if that is not possible at all."""
    export: RunExport = service("run-export", "--otel")(endpoint)
    return export
