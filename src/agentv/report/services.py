"""The services of extensions for reports: `run-export` sends a run to a collector, `page-labels` stores labels."""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agentv.errors import plural
from agentv.model.manifest import RunManifest
from agentv.model.result import Result
from agentv.registry import service
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore


class Delivery(msgspec.Struct, frozen=True):
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


class LabelError(ValueError):
    """A label that the page should not have sent."""


class LabelledRun(Protocol):
    """A served run whose answers are labelled."""

    @property
    def store(self) -> RunStore:
        """The run."""

    def record(self, row: int) -> Result:
        """Return the record of a row."""

    def case(self, row: int) -> Mapping[str, Any] | None:
        """Return the case of a row."""


class RankedAnswers(Protocol):
    """The answers of a run by their rank in the random order, and the rows that have them."""

    @property
    def count(self) -> int:
        """The number of different answers."""

    def __contains__(self, rank: object) -> bool: ...

    def next(self, done: Container[int]) -> tuple[int, int] | None:
        """Return the rank and the row of the first answer that is not done; None if all are."""

    def unanswered(self) -> list[int]:
        """Return the rows without an answer."""

    def rows(self, ranks: Container[int]) -> dict[int, list[int]]:
        """Return the rows of answers by rank."""


class PageLabels(Protocol):
    """A label file, and the labels of one person in it."""

    path: Path
    labeller: str

    def rank(self, dataset: str, eval_id: str, answer: str) -> int:
        """Return the rank of an answer in the random order; never 0."""

    def overview(self, answers: RankedAnswers) -> dict[str, Any]:
        """Return the labels of this person in a run, and the next answer to label."""

    def agreement(self, run: LabelledRun) -> dict[str, Any]:
        """Return how often labellers agree with each other, and this one with the judge."""

    def add(self, run: LabelledRun, answers: RankedAnswers, body: bytes) -> dict[str, Any]:
        """Add a label, and return it with the next answer to label. Raises LabelError."""
