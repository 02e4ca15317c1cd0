"""Read one dataset: open its files, check its settings, and build its cases in batches with unique ids."""

import os
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, Protocol

import msgspec

from agentv.datasets.case.builder import CaseBuilder
from agentv.datasets.case.header import Header, guideline_patterns, read_header
from agentv.datasets.case.keys import CASE_LIST_KEYS, is_header
from agentv.datasets.case.shorthand import AGENTMARK, NO_INPUT, MessageReader
from agentv.datasets.files import FileError, FileFinder, check_not_linked_outside
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.formats.dataset_format import BadRow, Batch, Document, PlainRow, ReadOptions, Source
from agentv.datasets.stamps import files_of
from agentv.datasets.variables import MARK
from agentv.errors import (
    DatasetError,
    DatasetWarning,
    InvalidCaseError,
    InvalidDatasetError,
    MissingSidecarWarning,
    RefusedCaseWarning,
)
from agentv.model.case import EvalCase
from agentv.model.diagnostics import Problem, Problems, field_name, type_word
from agentv.model.origin import Origin, Place
from agentv.settings.environment import references
from agentv.settings.evaluator_reader import ListsTests
from agentv.settings.project import project_root
from agentv.support.hash_table import IdSet, PackedIds
from agentv.support.lines import MAX_LINE_BYTES
from agentv.support.yaml.yaml_file import parse_yaml_file
from agentv.support.yaml.yaml_parser import Map, locate
from agentv.trust.roots import is_trusted, noted_variables

_MOST_EXPECTED = 1 << 20
"""Upper limit of the estimated number of ids: a file may begin with short lines and continue with long ones."""

_REFUSED_KEYS = (
    *("id", "input", "execution", "conversation_id", "cluster", "description", "metadata", "tags", "prompt"),
)
"""What is kept of a case that cannot be run."""


class ProblemSink(Protocol):
    """Receives the warnings and errors of a dataset: loading raises them, validation collects them.

    `wants_all`: repeat a warning for every case. `stops_at_first`: stop reading a batch at its first error.
    """

    wants_all: bool
    stops_at_first: bool

    def warning(self, warning: DatasetWarning) -> None: ...

    def bad_dataset(self, errors: list[DatasetError]) -> None: ...

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:
        """Receive the errors of a case, and the incomplete case if it could be built."""
        ...


BadCase = tuple[list[DatasetError], EvalCase | None]


class Options(msgspec.Struct, frozen=True):
    """Options for reading any dataset."""

    allow_outside_files: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    on_error: str = "stop"
    fields: str = ""
    """A field map, as text, for records of any shape."""

    strict: bool = False
    """Whether a difference from another tool's reading of its file is an error."""


class Dataset:
    """An open dataset with validated settings. Its cases can be read any number of times."""

    def __init__(self, source: Source, options: Options, sink: ProblemSink) -> None:
        self.source = source
        self.options = options
        self._sink = sink
        self._warned: set[str] = set()
        self._first_uses: dict[str, tuple[int, str, int]] | None = None
        self._first_refusal: DatasetError | None = None
        self._refused = 0
        if not options.allow_outside_files:
            _check_links(source)
        self.document: Document = open_document(source)
        is_foreign = source.format.refuses_cases or self._lists_tests == "agentv-4"
        self._refuses_cases = is_foreign and options.on_error == "stop" and not options.strict
        self.root = project_root(source.folder)
        self.finder = FileFinder(source.folder, self.root, allow_outside=options.allow_outside_files)
        self.header = self._read_header()
        self.is_agentmark = (self.header.format or (AGENTMARK if self.document.is_agentmark else "")) == AGENTMARK
        for warning in self.document.warnings:
            sink.warning(warning)

    @property
    def is_trusted(self) -> bool:
        """Whether the dataset is in the project of the working directory, or in another trusted folder."""
        return all(map(is_trusted, files_of(self.source)))

    @property
    def read_options(self) -> ReadOptions:
        """Options for the format's `read`."""
        header = self.header
        plain = not (self.is_agentmark or header.prompts or header.workspace) and header.input is NO_INPUT
        return ReadOptions(plain, self.options.max_line_bytes)

    def batches(self, ids: IdSet | PackedIds | None) -> Iterator[list[EvalCase]]:
        """Yield all cases in batches. With `ids`, a repeated id is an error."""
        return filter(None, map(itemgetter(1), self.rows_and_cases(ids, self.read_options)))

    def rows_and_cases(
        self, ids: IdSet | PackedIds | None, options: ReadOptions
    ) -> Iterator[tuple[Batch, list[EvalCase]]]:
        """Yield all rows in batches, each with the cases that were built from it."""
        builder = CaseBuilder(
            self.header,
            MessageReader(self.finder),
            is_agentmark=self.is_agentmark,
            outcome_optional=self._lists_tests,
            is_jsonl=self.source.kind == "jsonl",
            settings_file=(not self.document.mapped and self.document.header_path)
            or self.source.base + formats.SIDECAR_SUFFIXES[0],
        )
        patterns = guideline_patterns(self.source.folder, self.root)
        folder = os.path.realpath(self.source.folder)
        away = "" if self.is_trusted else os.path.realpath(os.getcwd())
        name, files = self.header.dataset, self.source.files
        origins = {file: Origin(file, name, folder, self.root, patterns, away, self._refuses_cases) for file in files}
        count = bad = self._refused = 0
        for batch in self.source.format.read(self.document, options):
            if batch.file not in origins:  # the name of the file has a variable, so that it was not known before
                what, hint = f"'{batch.file}' is named by a variable", "Write the name of the file"
                raise InvalidDatasetError(f"Invalid dataset: {self.source.path}", what, hint, path=self.source.path)
            for warning in batch.warnings:
                self._sink.warning(warning)
            cases, bad_ones = self._build(builder, batch, Place(origins[batch.file], batch.line))
            # Repeated ids are reported first: they are on earlier lines than the errors of this batch.
            if ids is not None and not count:
                ids.expect(self._estimated_cases(batch))
            unique_cases = cases if ids is None else self._unique(cases, ids, count)
            count += len(cases)
            bad += len(bad_ones)
            for errors, case in bad_ones:
                self._sink.bad_case(errors, case)
            yield batch, unique_cases
        if self.document.mapped is not None:
            for warning in self.document.mapped.warnings(self.source.path):
                self._sink.warning(warning)
        self._warn_about_variables()
        if self._first_refusal is not None and self._refused == count:
            self._sink.bad_dataset([self._first_refusal])  # the file is wrong, and not one of its cases
        # A sink that wants all problems has already received every bad case.
        if not count and not (bad and self._sink.wants_all):
            self._sink.bad_dataset([self._no_cases(bad)])

    def _warn_about_variables(self) -> None:
        """Warn about variables that were not inserted, because the dataset is not trusted."""
        for file in files_of(self.source):
            names = noted_variables(file)
            if names and not is_trusted(file) and file not in self._warned:
                self._warned.add(file)
                variables = ", ".join(f"${{{{ {name} }}}}" for name in names)
                message = f"{file} is outside your project and not trusted: {variables} is left as it is"
                self._sink.warning(DatasetWarning(message, path=file))

    def _estimated_cases(self, first: Batch) -> int:
        """Estimate the number of cases from the first batch; the estimate is low for compressed files."""
        size = sum(len(line) for line in first.lines if isinstance(line, bytes))
        estimate = sum(map(os.path.getsize, self.source.files)) * len(first.rows) // size if size else 0
        return min(estimate, _MOST_EXPECTED)

    def _build(self, builder: CaseBuilder, batch: Batch, place: Place) -> tuple[list[EvalCase], list[BadCase]]:
        cases: list[EvalCase] = []
        bad: list[BadCase] = []
        rows, offset, refused = batch.rows, 0, -1
        while offset < len(rows):
            row = rows[offset]
            if isinstance(row, PlainRow):
                if (offset := builder.add_plain(rows, place, offset, cases)) == len(rows):
                    break
                row = rows[offset]
                if isinstance(row, PlainRow):  # it needs more than its types checked
                    row = msgspec.json.decode(batch.lines[offset])
            if row is not None:
                problems = Problems()
                case = None if isinstance(row, BadRow) else builder.build(row, place, offset, problems)
                if offset == refused:
                    errors = self._errors(problems, row, batch.file, batch.line + offset)
                else:
                    errors = self._row_errors(row, problems, batch, offset)
                    if errors and self._refuses_cases:
                        rows[offset], refused = self._refused_row(row, errors[0]), offset
                        continue  # build what can be read of it
                if errors:
                    bad.append((errors, case))
                    if self._sink.stops_at_first:
                        break
                elif case is not None:
                    cases.append(case)
                    if case.details.case_error is not None:
                        self._refused += 1
                        message = f"{case.path}, line {case.line}: refused case '{case.id}': {case.case_error}"
                        self._sink.warning(RefusedCaseWarning(message, path=case.path, line=case.line))
            offset += 1
        return cases, bad

    def _refused_row(self, row: dict[str, Any] | BadRow, error: DatasetError) -> dict[str, Any]:
        """Return the row of a case that cannot be run, and remember the first error."""
        self._first_refusal = self._first_refusal or error
        reason = f"{error.detail or error.headline}. {error.hint}".rstrip(". ")
        own = row.row if isinstance(row, BadRow) else row
        return {"input": "", **{key: own[key] for key in _REFUSED_KEYS if key in own}, "case_error": reason}

    def _row_errors(
        self, row: dict[str, Any] | BadRow, problems: Problems, batch: Batch, offset: int
    ) -> list[DatasetError]:
        """Return the errors of a row, and of variables in it that were not inserted."""
        path, line = batch.file, batch.line + offset
        if isinstance(row, BadRow):
            return [self.source.format.row_error(row, path, line)]
        errors = self._errors(problems, row, path, line)
        if not errors and batch.lines and _has_variables(row, batch.lines[offset]):
            return self._errors(_unreplaced(row), row, path, line)
        return errors

    def _errors(self, problems: Problems, data: Any, path: str, line: int) -> list[DatasetError]:
        """Return the errors of a row or of the settings with their positions, and pass on the warnings."""
        errors: list[DatasetError] = []
        for problem in problems:
            mark = locate(data, problem.path)
            at, column = (line, None) if mark is None else mark
            place: dict[str, Any] = {"path": path, "line": at, "column": column, "field": problem.field}
            if problem.severity == "warning":
                self._warn(problem, place)
                continue
            in_header = data is self.document.header
            kind, noun = (InvalidDatasetError, "dataset") if in_header else (InvalidCaseError, "eval case")
            errors.append(kind(f"Invalid {noun} at line {at} in {path}", problem.message, problem.hint, **place))
        return errors

    def _unique(self, cases: list[EvalCase], ids: IdSet | PackedIds, before: int) -> list[EvalCase]:
        """Return the cases with new ids, after `before` others. Repeats are verified, because hashes may collide."""
        if not (repeats := ids.repeats([case.id for case in cases])):
            return cases
        dropped = set()
        for position in repeats:
            if (first := self._first_use(cases[position].id, before + position)) is not None:
                dropped.add(position)
                self._sink.bad_case([_duplicate(cases[position], *first)], None)
        return [case for position, case in enumerate(cases) if position not in dropped]

    def _first_use(self, id: str, before: int) -> tuple[str, int] | None:
        """Return file and line of the first of `before` cases with this id, by reading them again."""
        if self._sink.stops_at_first:
            return next(((case.path, case.line) for case in islice(self._again(), before) if case.id == id), None)
        if self._first_uses is None:
            self._first_uses = self._find_first_uses()
        number, path, line = self._first_uses[id]
        return (path, line) if number < before else None

    def _find_first_uses(self) -> dict[str, tuple[int, str, int]]:
        """Return number, file and line of the first case of every repeated id. Reads the dataset twice."""
        ids = PackedIds()
        repeated = {case.id for case in self._again() if ids.repeats((case.id,))}
        first: dict[str, tuple[int, str, int]] = {}
        for number, case in enumerate(self._again()):
            if case.id in repeated:
                first.setdefault(case.id, (number, case.path, case.line))
        return first

    def _again(self) -> Iterator[EvalCase]:
        """Read all cases again, including those with repeated ids, without reporting problems again."""
        for cases in Dataset(self.source, self.options, SilentSink()).batches(None):
            yield from cases

    @property
    def _lists_tests(self) -> ListsTests:
        return self.document.lists_tests and (self.document.mapped is not None or "agentv-4")

    def _read_header(self) -> Header:
        problems = Problems()
        settings, lists_tests = self.document.header, self._lists_tests
        header = read_header(settings, self.source.name, self.finder, problems, lists_tests=lists_tests)
        errors = self._errors(problems, self.document.header, self.document.header_path or self.source.path, 1)
        if errors:
            self._sink.bad_dataset(errors)
        return header

    def _warn(self, problem: Problem, place: dict[str, Any]) -> None:
        """Pass on a warning once per dataset, unless the sink wants all of them."""
        topic = problem.topic or ("" if self._sink.wants_all else problem.kind)
        if topic in self._warned:
            return
        if topic:
            self._warned.add(topic)
        hint = f" ({problem.hint})" if problem.hint else ""
        message = f"{place['path']}, line {place['line']}: {problem.message}{hint}"
        self._sink.warning(DatasetWarning(message, hint=problem.hint, **place))

    def _no_cases(self, bad: int) -> DatasetError:
        path = self.source.path
        empty = all(os.path.getsize(file) == 0 for file in self.source.files)
        what = "The file is empty" if empty else "All of its cases have errors" if bad else "It contains no cases"
        return InvalidDatasetError(f"No cases in {path}", what, "A dataset needs at least one case", path=path)


class SilentSink:
    """Ignores all problems, for reading a dataset again."""

    wants_all = False
    stops_at_first = False

    def warning(self, *_: object) -> None:
        """Ignore the problem."""

    bad_dataset = bad_case = warning


def _has_variables(row: Any, line: bytes) -> bool:
    """Whether a row of AgentV (TypeScript) 4.x may refer to variables of the environment."""
    return type(row) is dict and "criteria" in row and MARK in line


def _unreplaced(row: Any) -> Problems:
    problems = Problems()
    for ref in references(row):
        reference = f"${{{{ {ref.variable} }}}}"
        message = f"Field '{field_name(ref.path)}' uses {reference}, which is not replaced in a JSONL file"
        problems.error(ref.path, message, "Write the value, or name this file under 'tests' in a YAML file")
    return problems


def _duplicate(case: EvalCase, path: str, line: int) -> DatasetError:
    headline = f"Invalid eval case at line {case.line} in {case.path}"
    what = f"Duplicate id '{case.id}': first used at line {line}" + ("" if path == case.path else f" of {path}")
    hint = "Ids must be unique within a dataset"
    return InvalidCaseError(headline, what, hint, path=case.path, line=case.line, field="id")


def _check_links(source: Source) -> None:
    """Refuse files that are links out of the project: a stranger's repository must not choose what is read."""
    for path in filter(None, (*source.files, source.sidecar)):
        try:
            check_not_linked_outside(path)
        except FileError as error:
            raise InvalidDatasetError(f"Dataset {path} was not read", error.message, error.hint, path=path) from None


def open_document(source: Source) -> Document:
    """Open a dataset, and read its sidecar if the format has one."""
    document = source.format.open(source)
    if not source.format.has_sidecar:
        return document
    if (path := source.sidecar) is None:
        if document.is_agentmark or document.mapped is not None:
            return document
        missing = source.base + formats.SIDECAR_SUFFIXES[0]
        message = f"Sidecar metadata file not found: {missing}\n  Using defaults: target=default, evaluator=llm_judge"
        return msgspec.structs.replace(document, warnings=(MissingSidecarWarning(message, path=missing),))
    data = parse_yaml_file(path)
    if isinstance(data, Map) and document.mapped is not None:
        data = data.without(("fields",))
    header: dict[str, Any] = data if isinstance(data, Map) else {}
    message = ""
    if data is not None and not isinstance(data, Map):
        what = f"Expected a mapping of settings, got {type_word(data)}"
        raise InvalidDatasetError(f"Invalid sidecar: {path}", what, path=path, line=1)
    if isinstance(data, Map) and any(key in data for key in CASE_LIST_KEYS):
        message = f"{path}: the list of cases in this sidecar is ignored; the cases are in {source.path}"
        header = data.without(CASE_LIST_KEYS)
    elif not is_header(header) and document.mapped is None:
        message = f"{path} has the name of a sidecar, but none of its keys"
        header = {}  # probably a file of another tool: one warning is enough
    warnings = (DatasetWarning(message, path=path),) if message else ()
    return msgspec.structs.replace(document, header=header, header_path=path, warnings=warnings)
