"""One dataset, from its files to its cases: checked, read in batches, every id once, nothing dropped silently."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import Any, Protocol

import msgspec

from agentv.datasets.case.builder import CaseBuilder, Rules
from agentv.datasets.case.fast_path import PlainBuilder
from agentv.datasets.case.header import AGENTMARK, Header, guideline_patterns, is_header, read_header
from agentv.datasets.case.keys import CASE_LIST_KEYS
from agentv.datasets.case_ids import PackedIds, SeenIds, is_agentmark_row
from agentv.datasets.files import FileFinder, project_root
from agentv.datasets.formats.lines import MAX_LINE_BYTES
from agentv.datasets.formats.rows import BadRow, Batch, Document, PlainRow, Reader, Row
from agentv.datasets.formats.yaml_parser import locate
from agentv.datasets.source import Source
from agentv.errors import DatasetError, DatasetParseError, DatasetWarning, InvalidCaseError, InvalidDatasetError
from agentv.model.case import EvalCase, Origin, Place
from agentv.registry import READERS
from agentv.settings.diagnostics import Problem, Problems

_MOST_EXPECTED = 1 << 20
"""Ids to make room for at once: a file may begin with small lines and go on with large ones."""


class Sink(Protocol):
    """Is told what is wrong. Loading raises, skipping counts, validation collects.

    `wants_all`: the same warning about every case it is true of. `stops_at_first`: nothing after an error matters.
    """

    wants_all: bool
    stops_at_first: bool

    def warning(self, warning: DatasetWarning) -> None: ...

    def bad_dataset(self, errors: list[DatasetError]) -> None: ...

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:
        """A case with errors, and as much of it as could be built in spite of them."""
        ...


class MissingSidecarWarning(DatasetWarning):
    """A JSONL file without a sidecar: worth a line when it is loaded, and no fault of the file."""


BadCase = tuple[list[DatasetError], EvalCase | None]


class Options(msgspec.Struct, frozen=True):
    """How datasets are read, whichever they are."""

    allow_outside_files: bool = False
    max_line_bytes: int = MAX_LINE_BYTES


class OpenDataset:
    """A dataset whose header was read. Its cases can be read any number of times."""

    def __init__(self, source: Source, options: Options, sink: Sink) -> None:
        self.source = source
        self.options = options
        self._sink = sink
        self._told: set[str] = set()
        self._first_uses: dict[str, tuple[int, str, int]] | None = None
        self._reader: Reader = import_module(READERS[source.kind][1])
        self.document: Document = self._reader.open_document(source)
        self.root = project_root(source.folder)
        self.finder = FileFinder(source.folder, self.root, allow_outside=options.allow_outside_files)
        self.header = self._read_header()
        self.agentmark = self._is_agentmark()
        self._plain = PlainBuilder(self.header)
        self._warn_of_sidecar()

    def batches(self, seen: SeenIds | None) -> Iterator[list[EvalCase]]:
        """All cases, a batch at a time. With `seen`, an id that was there before is an error."""
        builder = CaseBuilder(self._rules())
        origins = {file: self._origin(file) for file in self.source.files}
        rows = self._reader.batches(
            self.document,
            plain=not self.agentmark and not self.header.prompts,
            max_line_bytes=self.options.max_line_bytes,
        )
        count = bad = 0
        for batch in rows:
            cases, bad_ones = self._build(builder, batch, Place(origins[batch.file], batch.line))
            # An id used twice on an earlier line comes before whatever is wrong on a later one.
            if seen is not None and not count:
                seen.expect(self._estimated_cases(batch))
            kept = cases if seen is None else self._unique(cases, seen, count)
            count += len(cases)
            bad += len(bad_ones)
            for errors, case in bad_ones:
                self._sink.bad_case(errors, case)
            if kept:
                yield kept
        # Whoever wants everything has been told of each bad case already.
        if not count and not (bad and self._sink.wants_all):
            self._sink.bad_dataset([self._no_cases(bad)])

    def _estimated_cases(self, first: Batch) -> int:
        """About how many cases there are, judging by the first batch; of a compressed file, too few."""
        size = sum(len(line) for line in first.lines if isinstance(line, bytes))
        estimate = sum(map(os.path.getsize, self.source.files)) * len(first.rows) // size if size else 0
        return min(estimate, _MOST_EXPECTED)

    def _build(self, builder: CaseBuilder, batch: Batch, place: Place) -> tuple[list[EvalCase], list[BadCase]]:
        whole = self._plain.cases(batch.rows, place)
        if whole is not None:
            return whole, []
        cases: list[EvalCase] = []
        bad: list[BadCase] = []
        for offset, row in enumerate(batch.rows):
            if type(row) is PlainRow:
                case = self._plain.case(row, place, offset)
                if case is not None:
                    cases.append(case)
                    continue
                row = msgspec.json.decode(batch.lines[offset])
            if row is None:
                continue
            case, errors = self._build_one(builder, row, place, offset)
            if errors:
                bad.append((errors, case))
                if self._sink.stops_at_first:
                    break
            elif case is not None:
                cases.append(case)
        return cases, bad

    def _build_one(
        self, builder: CaseBuilder, row: Row, place: Place, offset: int
    ) -> tuple[EvalCase | None, list[DatasetError]]:
        if isinstance(row, BadRow):
            return None, [self._unparsable(row, place, offset)]
        assert isinstance(row, dict)
        problems = Problems()
        case = builder.build(row, place, offset, problems)
        errors: list[DatasetError] = []
        for problem in problems:
            line, column = _position(row, problem, place.line + offset)
            if problem.severity == "warning":
                self._warn(problem, place.origin.path, line, column)
            else:
                errors.append(_case_error(problem, place.origin.path, line, column))
        return case, errors

    def _unique(self, cases: list[EvalCase], seen: SeenIds, before: int) -> list[EvalCase]:
        """The cases whose id is new, after `before` others. A repeat is looked up first: hashes may collide."""
        repeats = seen.repeats([case.id for case in cases])
        if not repeats:
            return cases
        dropped = set()
        for position in repeats:
            first = self._first_use(cases[position].id, before + position)
            if first is not None:
                dropped.add(position)
                self._sink.bad_case([_duplicate(cases[position], *first)], None)
        return [case for position, case in enumerate(cases) if position not in dropped]

    def _first_use(self, id: str, before: int) -> tuple[str, int] | None:
        """File and line of the first case with this id among so many, by reading them again; None: there is none."""
        if self._sink.stops_at_first:
            return next(((case.path, case.line) for case in islice(self._again(), before) if case.id == id), None)
        if self._first_uses is None:
            self._first_uses = self._find_first_uses()
        number, path, line = self._first_uses[id]
        return (path, line) if number < before else None

    def _find_first_uses(self) -> dict[str, tuple[int, str, int]]:
        """For every id that is used again: number, file and line of its first case. Two readings, however many."""
        seen, repeated = PackedIds(), set()
        for case in self._again():
            if seen.repeats((case.id,)):
                repeated.add(case.id)
        first: dict[str, tuple[int, str, int]] = {}
        for number, case in enumerate(self._again()):
            if case.id in repeated:
                first.setdefault(case.id, (number, case.path, case.line))
        return first

    def _again(self) -> Iterator[EvalCase]:
        """All cases once more, those with repeated ids too; nothing is reported a second time."""
        for cases in OpenDataset(self.source, self.options, Quiet()).batches(None):
            yield from cases

    def _read_header(self) -> Header:
        problems = Problems()
        data = self.document.header
        if self.source.kind == "jsonl":
            data = {key: value for key, value in data.items() if key not in CASE_LIST_KEYS}
            # Of a file that is somebody else's one warning is enough; its keys are none of ours.
            data = data if is_header(data) else {}
        header = read_header(data, self.source.name, self.finder, problems)
        path = self.document.header_path or self.source.path
        errors: list[DatasetError] = []
        for problem in problems:
            line, column = _position(self.document.header, problem, 1)
            if problem.severity == "warning":
                self._warn(problem, path, line, column)
            else:
                errors.append(_header_error(problem, path, line, column))
        if errors:
            self._sink.bad_dataset(errors)
        return header

    def _is_agentmark(self) -> bool:
        if self.header.format is not None:
            return self.header.format == AGENTMARK
        return self.source.kind == "jsonl" and is_agentmark_row(self.document.first_row)

    def _warn_of_sidecar(self) -> None:
        if self.source.kind != "jsonl":
            return
        path = self.document.header_path
        if path is None:
            if not self.agentmark:
                missing = self.source.base + ".yaml"
                message = (
                    f"Sidecar metadata file not found: {missing}\n  Using defaults: target=default, evaluator=llm_judge"
                )
                self._sink.warning(MissingSidecarWarning(message, path=missing))
            return
        header = self.document.header
        if any(key in header for key in CASE_LIST_KEYS):
            message = f"{path}: its list of cases is not read, only its settings: the cases are in {self.source.path}"
            self._sink.warning(DatasetWarning(message, path=path))
        elif not is_header(header):
            message = f"{path} has none of the keys of a sidecar, and is taken as one for its name"
            self._sink.warning(DatasetWarning(message, path=path))

    def _rules(self) -> Rules:
        settings_file = self.document.header_path or self.source.base + ".yaml"
        return Rules(self.header, self.finder, self.agentmark, self.document.lists_tests, settings_file)

    def _origin(self, file: str) -> Origin:
        patterns = guideline_patterns(self.source.folder, self.root)
        folder = os.path.realpath(self.source.folder)
        return Origin(file, self.header.dataset, folder, self.root, patterns)

    def _warn(self, problem: Problem, path: str, line: int, column: int | None) -> None:
        """Says a thing once per file, however many cases it is true of, unless all of them are asked for."""
        topic = problem.topic or ("" if self._sink.wants_all else problem.kind)
        if topic in self._told:
            return
        if topic:
            self._told.add(topic)
        message = f"{path}, line {line}: {problem.message}" + (f" ({problem.hint})" if problem.hint else "")
        self._sink.warning(
            DatasetWarning(message, path=path, line=line, column=column, field=problem.field, hint=problem.hint)
        )

    def _unparsable(self, row: BadRow, place: Place, offset: int) -> DatasetError:
        line, path = place.line + offset, place.origin.path
        if self.source.kind == "yaml":
            return InvalidCaseError(
                f"Invalid eval case at line {line} in {path}",
                row.what,
                row.hint,
                path=path,
                line=line,
                column=row.column,
            )
        at = "" if row.column is None else f", at column {row.column}"
        return DatasetParseError(
            f"Failed to parse JSONL file: {path}",
            f"Line {line}: Invalid JSON - {row.what}{at}",
            row.hint or "Each line must be a complete JSON object",
            path=path,
            line=line,
            column=row.column,
        )

    def _no_cases(self, bad: int) -> DatasetError:
        path = self.source.path
        empty = all(os.path.getsize(file) == 0 for file in self.source.files)
        what = "it is empty" if empty else "no line of it is a case" if bad else "every line of it is blank"
        if self.source.kind == "yaml":
            what = "none of its cases can be used" if bad else "its list is empty"
        return InvalidDatasetError(
            f"No cases in {path}", f"The file holds no cases: {what}", "A dataset needs at least one case", path=path
        )


class Quiet:
    """Hears nothing: for reading again what was already reported."""

    wants_all = False
    stops_at_first = False

    def warning(self, warning: DatasetWarning) -> None:
        pass

    def bad_dataset(self, errors: list[DatasetError]) -> None:
        pass

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:
        pass


def _position(row: Any, problem: Problem, line: int) -> tuple[int, int | None]:
    mark = locate(row, problem.path)
    return (line, None) if mark is None else (mark.line, mark.column)


def _case_error(problem: Problem, path: str, line: int, column: int | None) -> DatasetError:
    return InvalidCaseError(
        f"Invalid eval case at line {line} in {path}",
        problem.message,
        problem.hint,
        path=path,
        line=line,
        column=column,
        field=problem.field,
    )


def _header_error(problem: Problem, path: str, line: int, column: int | None) -> DatasetError:
    return InvalidDatasetError(
        f"Invalid dataset at line {line} in {path}",
        problem.message,
        problem.hint,
        path=path,
        line=line,
        column=column,
        field=problem.field,
    )


def _duplicate(case: EvalCase, path: str, line: int) -> DatasetError:
    where = f"line {line}" if path == case.path else f"line {line} of {path}"
    return InvalidCaseError(
        f"Invalid eval case at line {case.line} in {case.path}",
        f"Duplicate id '{case.id}': first used at {where}",
        "Ids must be unique within a dataset",
        path=case.path,
        line=case.line,
        field="id",
    )
