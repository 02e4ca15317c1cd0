"""The base of formats that read other tools' datasets: recognize a file, map its records to rows, count the losses.

Each format is one module and one entry of `FORMATS`. It defines `fits` and `rows`, and `settings` or `items` if the
cases are part of a document. Keys without a counterpart go to `metadata`; what cannot be kept is a loss.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar

from msgspec.structs import replace

from agentv.datasets.case.shorthand import ItemIds
from agentv.datasets.foreign.records import SAMPLE, Record, RecordFile, items_of
from agentv.datasets.formats import dataset_format as formats
from agentv.errors import (
    DatasetNotFoundError,
    DatasetParseError,
    DatasetWarning,
    LossWarning,
    MappedNote,
    plural,
)
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import type_word
from agentv.model.values import to_json
from agentv.support.lines import BATCH
from agentv.support.yaml.yaml_parser import Map

_NOT_AS_WRITTEN = (ArithmeticError, AttributeError, TypeError, LookupError, RecursionError)
"""What a mapper raises if a value is missing, or has another type than the tool writes."""

_SCALARS = (str, int, float, bool)
_CHECK = lazy_regex(
    "(?i)(?:expect|must|forbid|should|unacceptable|assert|rubric|grader|criteria|check|eval(?:uation)?_"
    r"|ground_?truth|gold|truth|reference_traj|\w+_expected)"
)
_NO_CHECK = lazy_regex("(?i)(?:id|type|count|name|path|status|at)$")
"""How the names of checks begin, and how the names of ids, counts and the like end."""
NAMED_FILE = lazy_regex("(?i)(?:file_?names?|attachments?|images?|image_(?:path|file|url)|audio)$")
"""Names of fields with files for the target, such as `file_name` of GAIA."""

RECORD_LISTS = (
    *("cases", "tests", "test_cases", "testcases", "evals", "eval_cases", "examples", "questions", "queries", "items"),
    *("samples", "goldens", "scenarios", "conversations", "records", "rows", "entries", "dataset", "data"),
)
"""Keys of documents that people write their cases under."""

_PLAIN = frozenset({"id", "input", "expected_output", "expected_outcome", "metadata"})

Lose = Callable[[str], None]
"""Receives the name of something in a record that cannot be kept."""

Mapper = Callable[[Record, Lose], Iterable[dict[str, Any] | formats.BadRow]]
"""Returns the rows of a record; a BadRow for a case that cannot be read."""

_PlacedRow = tuple[str, int, formats.Row]
"""A row with the file that it is in, if it is another one, and its line."""

PlainMapper = Callable[[list[str]], formats.PlainRow | None]
"""Returns the row for the cells of a table, if it is a plain one."""


class MappedFile:
    """What was made of a file: the title of its format, what became what, and how often something was lost."""

    def __init__(self, title: str, fields: str) -> None:
        self.title = title
        self.fields = fields
        self.losses: Counter[str] = Counter()
        self.differences: Counter[str] = Counter()
        self.in_settings: Counter[str] = Counter()
        self.cases = 0
        self.field_map: Any = None

    def lose(self, what: str) -> None:
        """Count something that could not be kept."""
        self.losses[what] += 1

    def differ(self, what: str) -> None:
        """Count something that is read in another way than by its own tool."""
        self.differences[what] += 1

    def restart(self) -> None:
        """Count the cases and their losses from the start; those of the settings stay."""
        self.losses, self.differences, self.cases = Counter(self.in_settings), Counter(), 0

    def warnings(self, path: str) -> Iterator[DatasetWarning]:
        """Yield the note about what was mapped, and one warning per kind of loss or difference."""
        fields = f": {self.fields}" if self.fields else ""
        yield MappedNote(f"{path}: read {plural(self.cases, 'case')} as {self.title}{fields}", path=path)
        for what, count in self.losses.most_common():
            yield LossWarning(f"{path}: not kept: {what} ({plural(count, 'time')})", path=path)
        for what, count in self.differences.most_common():
            yield LossWarning(f"{path}: {what} ({plural(count, 'time')})", path=path)


class ForeignFormat(formats.DatasetFormat):
    """Base class of the formats of other tools."""

    title: ClassVar[str]
    """The name of the tool and of its file, for messages."""

    fields: ClassVar[str] = ""
    """What becomes what, such as `ideal → expected_output`."""

    known_metadata: ClassVar[frozenset[str]] = frozenset()
    """Fields that look like checks, and for which there is another message."""

    in_folders = False
    is_lossless = False
    refuses_cases = True
    names_unchecked = True

    def fits(self, file: RecordFile) -> float:
        """Return how well the format fits, as a fraction of its `strength`: False if the file is not of this tool."""
        raise NotImplementedError

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        """Return the rows of one record, with our keys. Raises ValueError with the reason if there is none."""
        raise NotImplementedError

    def mapper(self, document: formats.Document) -> Mapper:  # noqa: ARG002
        """Return the function that maps the records of a document."""
        return self.rows

    def items(self, file: RecordFile) -> Iterator[Record]:
        """Yield the records with cases."""
        return file.placed()

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:  # noqa: ARG002
        """Return the settings of the dataset, with our keys."""
        return {}

    def sniff(self, head: bytes, path: str) -> bool:
        return self.fit(head, path) > 0

    def fit(self, head: bytes, path: str) -> float:
        if self.is_folder:  # which `sniff` of the format recognizes
            return super().fit(head, path)
        try:
            return self.strength * self.fits(record_file(path))
        except _NOT_AS_WRITTEN:
            return 0.0

    def open(self, source: formats.Source) -> formats.Document:
        mapped = MappedFile(self.title, self.fields)
        with _expect_types(source.files[0], self.title):
            header = self.settings(record_file(source.files[0]), mapped.lose)
        mapped.in_settings = Counter(mapped.losses)
        return formats.Document(source, header, source.files[0], lists_tests=True, mapped=mapped)

    def read(self, document: formats.Document, options: formats.ReadOptions) -> Iterator[formats.Batch]:
        mapped = document.mapped
        assert mapped is not None
        mapped.restart()
        with _expect_types(document.source.files[0], self.title):
            rows = self.mapper(document)
        ids = ItemIds()
        for path in document.source.files:
            ids, file = ids if self.is_folder else ItemIds(), record_file(path)
            if options.plain and file.kind == "table":
                numbered = self._table(file, rows, document, ids)
            else:
                items = self._items(file)
                records = (row for record in items for row in self._numbered(record, rows, mapped, ids))
                numbered = map(_as_plain, records) if options.plain else records
            yield from _batches(path, numbered)

    def _items(self, file: RecordFile) -> Iterator[Record]:
        with _expect_types(file.path, self.title):
            yield from self.items(file)

    def _table(self, file: RecordFile, rows: Mapper, document: formats.Document, ids: ItemIds) -> Iterator[_PlacedRow]:
        """Yield the rows of a table; those with a few texts are mapped without the steps in between."""
        mapped = document.mapped
        assert mapped is not None
        table = file.table()
        names = next(table)[1]
        plain = self.plain_mapper(document, names, ids)
        for line, cells in table:
            if (row := plain(cells)) is not None:
                mapped.cases += 1
                yield "", line, row
                continue
            record = Record(line, dict(zip(names, cells, strict=False)))
            yield from map(_as_plain, self._numbered(record, rows, mapped, ids))

    def plain_mapper(self, document: formats.Document, names: list[str], ids: ItemIds) -> PlainMapper:  # noqa: ARG002
        """Return a function for the cells of a table with these names: a PlainRow, or None if `mapper` must map it."""
        return lambda _: None

    def _numbered(self, record: Record, rows: Mapper, mapped: MappedFile, ids: ItemIds) -> Iterator[_PlacedRow]:
        for row in self._checked(record, rows, mapped):
            mapped.cases += 1
            if isinstance(row, formats.BadRow):
                yield record.file, record.line, replace(row, row={**row.row, "id": self._id(row.row, ids, mapped)})
            else:
                numbered = {"id": self._id(row, ids, mapped), **{key: row[key] for key in row if key != "id"}}
                yield record.file, record.line, row.with_values(numbered) if isinstance(row, Map) else numbered

    def _checked(self, record: Record, rows: Mapper, mapped: MappedFile) -> Iterator[dict[str, Any] | formats.BadRow]:
        """Yield the rows of a record; if it cannot be read, or only in part, a bad row with its own id."""
        if isinstance(record.data, formats.BadRow):
            yield record.data
            return
        if not isinstance(record.data, dict):
            yield formats.BadRow(f"Expected an object, got {type_word(record.data)}", row=_own_parts(record.data))
            return
        hint = f"The file was read as {self.title}"
        try:
            for row in rows(record, mapped.lose):
                if self.names_unchecked:
                    self.name_unchecked(record.data, row, mapped)
                metadata = row.get("metadata") if isinstance(row, dict) else None
                for name in filter(NAMED_FILE.match, map(str, metadata if isinstance(metadata, dict) else ())):
                    if record.data.get(name):
                        mapped.differ(f"the target does not get the file in '{name}', which is in the metadata")
                yield row
        except (ValueError, *_NOT_AS_WRITTEN) as error:
            yield formats.BadRow(_problem(error), hint=hint, row=_own_parts(record.data))

    def name_unchecked(self, data: dict[str, Any], row: dict[str, Any] | formats.BadRow, mapped: MappedFile) -> None:
        """Name the fields of a record that look like checks, and are metadata only."""
        metadata = row.get("metadata") if isinstance(row, dict) else None
        for name, value in metadata.items() if isinstance(metadata, dict) else ():
            is_whole = name in data and data[name] == value
            if is_whole and name not in self.known_metadata and looks_like_check(name):
                mapped.differ(f"the field '{name}' looks like a check, and is not one here: it is in the metadata")

    def _id(self, row: dict[str, Any], ids: ItemIds, mapped: MappedFile) -> str:
        """Return the id of a row: its own, or one computed from its content. A repeated one gets a suffix."""
        id = row.get("id")
        if id is None or not str(id).strip():
            content = {key: row.get(key) for key in ("input", "expected_outcome", "turns", "vars") if key in row}
            return ids.id_for(content)
        name = id if isinstance(id, str) else str(id)
        distinct = ids.distinct(name) if self.refuses_cases else name
        if distinct != name:
            mapped.differ("several cases have the same id: the later ones got a suffix, such as -2")
        return distinct

    def why_not(self, path: str) -> str | None:  # noqa: ARG002
        return None if self.in_folders else f"{self.title}: name the file to use it"


@contextmanager
def _expect_types(path: str, title: str) -> Iterator[None]:
    """Report missing fields, and values of other types than the tool writes, as errors of the file."""
    try:
        yield
    except _NOT_AS_WRITTEN as error:
        hint = f"The file was read as {title}"
        raise DatasetParseError(f"Cannot read {path}", _problem(error), hint, path=path, line=1) from error


def _problem(error: Exception) -> str:
    if isinstance(error, KeyError):  # the first records have the field, this one does not
        return f"Missing field '{error.args[0]}'"
    if isinstance(error, RecursionError):
        return "It is nested too deeply, or refers to itself"
    return str(error) if isinstance(error, ValueError) else f"A value has an unexpected type: {error}"


def looks_like_check(name: str) -> bool:
    """Whether a field seems to say what an answer must be, by its name."""
    return bool(_CHECK.match(name)) and not _NO_CHECK.search(name)


def _as_plain(placed: _PlacedRow) -> _PlacedRow:
    """Return a row of two texts as a PlainRow, which becomes a case several times faster."""
    file, line, row = placed
    if type(row) is dict and row.keys() <= _PLAIN and type(row.get("input")) is str:
        expected, metadata = row.get("expected_output"), row.get("metadata")
        is_flat = metadata is None or all(type(value) in _SCALARS for value in metadata.values())
        if is_flat and (expected is None or type(expected) is str):
            outcome = row.get("expected_outcome", "")
            return file, line, formats.PlainRow(row["id"], outcome, row["input"], expected, None, metadata)
    return placed


def _batches(path: str, rows: Iterator[_PlacedRow]) -> Iterator[formats.Batch]:
    """Group rows on consecutive lines of a file."""
    batch: list[formats.Row] = []
    start, place = 1, ""
    for file, line, row in rows:
        if batch and (line != start + len(batch) or len(batch) == BATCH or file != place):
            yield formats.Batch(place or path, start, batch)
            batch = []
        if not batch:
            start, place = line, file
        batch.append(row)
    if batch:
        yield formats.Batch(place or path, start, batch)


def _own_parts(data: Any) -> dict[str, Any]:
    """Return the id of a record that cannot be read, if it has one, and its text."""
    own = {"id": data.get("id", data.get("name"))} if isinstance(data, dict) else {}
    return {**own, "input": to_json(data).decode()}


def record_file(path: str) -> RecordFile:
    """Return a file with its cached content. A file that changes is read again."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise DatasetNotFoundError(f"Cannot read {path}: {error.strerror or error}", path=path) from None
    return _record_file(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _record_file(path: str, modified: int, size: int) -> RecordFile:  # noqa: ARG001  # a changed file is read again
    return RecordFile(path)


def objects(file: RecordFile) -> list[dict[str, Any]]:
    """Return the first records that are objects; empty if the file is one document."""
    sample = file.sample
    if file.is_document:
        sample = sample[0] if sample and isinstance(sample[0], list) else []
    return [item for item in sample if isinstance(item, dict)]


def listed_objects(file: RecordFile) -> list[Any]:
    """Return the records of a document: a table, or a list such as `cases`; empty if it has none, or several."""
    document = document_of(file)
    if file.kind == "json" and (records := table_records(document)):
        return records
    lists = {key: value for key, value in document.items() if isinstance(value, list) and value}
    lists = {key: value for key, value in lists.items() if all(isinstance(item, dict) for item in value)}
    name = next((key for key in RECORD_LISTS if key in lists), None)
    if name is None and len(lists) == 1:
        name = next(iter(lists))
    return lists[name] if name is not None else []


def listed_records(file: RecordFile) -> Iterator[Record]:
    """Yield the records: of the file, or of the list in its document."""
    records = listed_objects(file)
    return items_of(records) if records else file.placed()


def rows_of(file: RecordFile) -> list[dict[str, Any]]:
    """Return the first records of a file, or of the list in its document."""
    return objects(file) or [row for row in listed_objects(file)[:SAMPLE] if isinstance(row, dict)]


def table_records(document: dict[str, Any]) -> list[Any]:
    """Return the records of a table that is one document, as pandas writes it; empty if it is not one.

    It has `columns` and `data`, `schema` and `data`, an object per row, or a list or an object per column.
    """
    columns, data = document.get("columns"), document.get("data")
    if isinstance(columns, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        return _table_rows(list(map(str, columns)), data)
    if "schema" in document and isinstance(data, list) and all(isinstance(row, dict) for row in data):
        return data
    values = list(document.values())
    if len(values) == 1 and isinstance(values[0], dict) and not next(iter(document)).isdigit():
        return table_records(values[0])  # such as the split of a dataset
    if values and all(name.isdigit() and isinstance(row, dict) for name, row in document.items()):
        return values
    if values and all(isinstance(value, dict) and value and all(map(str.isdigit, value)) for value in values):
        return [{name: column.get(number) for name, column in document.items()} for number in values[0]]
    if len(values) > 1 and all(isinstance(value, list) and len(value) == len(values[0]) for value in values):
        return [dict(zip(document, row, strict=True)) for row in zip(*values, strict=True)]
    return []


def _table_rows(columns: list[str], rows: list[list[Any]]) -> list[Any]:
    """Return the rows of a table as records; a short one has null at its end. As in pandas, no row may be longer."""
    width = len(columns)
    is_short = max(map(len, rows), default=width) < width
    what = "The row has {} values, and the table " + plural(width, "column")
    return [
        formats.BadRow(what.format(len(row)), row={"input": to_json(row).decode()})
        if is_short or len(row) > width
        else {**dict.fromkeys(columns), **dict(zip(columns, row, strict=False))}
        for row in rows
    ]


def document_of(file: RecordFile) -> dict[str, Any]:
    """Return the document of a JSON, YAML or TOML file; empty if it is not an object."""
    sample = file.sample
    return sample[0] if file.is_document and sample and isinstance(sample[0], dict) else {}


def all_have(rows: list[dict[str, Any]], *keys: str) -> bool:
    """Whether there are rows, and all of them have these keys."""
    return bool(rows) and all(key in row for row in rows for key in keys)


def any_has(rows: list[dict[str, Any]], *keys: str) -> bool:
    """Whether a row has one of these keys."""
    return any(key in row for row in rows for key in keys)
