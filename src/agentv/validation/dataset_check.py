"""Validates one dataset: everything wrong in it, of good cases and bad ones, in the order of its lines."""

from __future__ import annotations

from collections.abc import Iterator

from agentv.datasets.case_ids import PackedIds
from agentv.datasets.dataset import Dataset, Options
from agentv.datasets.source import Source
from agentv.errors import DatasetError, DatasetWarning, MissingSidecarWarning
from agentv.model.case import EvalCase
from agentv.validation.finding import Finding, from_error, from_warning
from agentv.validation.references import References


class Collecting:
    """Keeps what a dataset is told, whatever it is, and lets the reading go on."""

    wants_all = True
    stops_at_first = False

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.bad: list[EvalCase] = []

    def warning(self, warning: DatasetWarning) -> None:
        if not isinstance(warning, MissingSidecarWarning):
            self.findings.append(from_warning(warning))

    def bad_dataset(self, errors: list[DatasetError]) -> None:
        self.findings += map(from_error, errors)

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:
        self.findings += map(from_error, errors)
        if case is not None and case.id:
            self.bad.append(case)

    def cases(self, dataset: Dataset) -> Iterator[tuple[EvalCase, bool]]:
        """Every case that has an id, and whether it is good: a bad one may have more wrong with it."""
        for batch in dataset.batches(None):
            yield from ((case, False) for case in self._taken())
            yield from ((case, True) for case in batch)
        yield from ((case, False) for case in self._taken())

    def _taken(self) -> list[EvalCase]:
        taken, self.bad = self.bad, []
        return taken


def check_dataset(source: Source, options: Options) -> tuple[int, list[Finding]]:
    """The number of good cases, and everything that is wrong."""
    sink = Collecting()
    count = 0
    try:
        dataset = Dataset(source, options, sink)
        references = References(dataset)
        seen, repeated = PackedIds(), set()
        for case, good in sink.cases(dataset):
            count += good
            sink.findings += references.check(case)
            if seen.repeats((case.id,)):
                repeated.add(case.id)
        sink.findings += references.unused_thresholds()
        if repeated:
            sink.findings += _duplicates(source, options, repeated)
        sink.findings += map(from_error, source.format.lint(dataset.document, dataset.read_options))
    except DatasetError as error:
        sink.bad_dataset([error])
    return count, sorted(sink.findings, key=lambda finding: (finding.path, finding.line or 0, finding.column or 0))


def _duplicates(source: Source, options: Options, ids: set[str]) -> Iterator[Finding]:
    """Every use of these ids but the first, found by reading the dataset once more."""
    sink = Collecting()
    order = {file: position for position, file in enumerate(source.files)}
    uses: dict[str, list[tuple[int, int, str]]] = {}
    for case, _ in sink.cases(Dataset(source, options, sink)):
        if case.id in ids:
            uses.setdefault(case.id, []).append((order[case.path], case.line, case.path))
    for id, places in uses.items():
        (_, first_line, first_path), *others = sorted(places)
        for _, line, path in others:
            where = f"line {first_line}" if path == first_path else f"line {first_line} of {first_path}"
            message = f"Duplicate id '{id}': first used at {where}"
            yield Finding("error", path, message, line, None, "id", "Ids must be unique within a dataset")
