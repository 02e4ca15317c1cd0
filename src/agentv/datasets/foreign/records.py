"""Read the records of JSON, JSON Lines, YAML, TOML and table files, each with its line. The content decides."""

import csv
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentv.datasets.formats.dataset_format import BadRow, opened
from agentv.errors import DatasetError, DatasetParseError
from agentv.model.values import MAX_DEPTH
from agentv.registry import service
from agentv.support.json_values import repair_json
from agentv.support.lines import LFS_POINTER, LFS_PROBLEM, line_batches, open_lines
from agentv.support.yaml.yaml_file import parse_yaml_file
from agentv.support.yaml.yaml_writer import replace_written_integers

SAMPLE = 20
"""How many records a format may look at to recognize a file."""

MAX_DOCUMENT_BYTES = 512 * 1024 * 1024
"""The largest file that is parsed as one document."""

MAX_CELL_BYTES = 16 * 1024 * 1024
_HEAD_BYTES = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_YAML = (".yaml", ".yml")


class Record(NamedTuple):
    """One record of a file: usually an object. `line` is where it starts, or its number in a file without lines.

    `file` is the file that it is in, if that is not the one being read but one that it names.
    """

    line: int
    data: Any
    file: str = ""


class RecordFile:
    """A file with records. `kind` is json, jsonl, yaml, toml, table, sheet, parquet, or empty for any other file."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def head(self) -> bytes:
        """The first bytes, decompressed; empty if the file cannot be read."""
        try:
            with open_lines(self.path) as stream:
                return stream.read(_HEAD_BYTES)
        except Exception:  # decompression raises various types; the reader reports the problem
            return b""

    @cached_property
    def suffix(self) -> str:
        """The extension in lower case, without that of a compressed file."""
        base, last = os.path.splitext(self.path.lower())
        return os.path.splitext(base)[1] if last in (".gz", ".zst") else last

    @cached_property
    def kind(self) -> str:
        """The kind of file."""
        start = self.head.removeprefix(_BOM).lstrip()
        if self.head.startswith(b"PAR1"):
            return "parquet"
        if self.head.startswith(b"PK\x03\x04"):
            return "sheet" if self.suffix in (".xlsx", ".xlsm", ".ods") else ""
        if self.suffix in (*_YAML, ".toml"):
            return "toml" if self.suffix == ".toml" else "yaml"
        if start.startswith(b"["):
            return "json"
        if start.startswith(b"{"):
            return "jsonl" if self._has_lines(start) else "json"
        return "table" if self.suffix in _DELIMITERS else ""

    def _has_lines(self, start: bytes) -> bool:
        """Whether the first line is a complete object, and more follow, or the extension is that of JSON Lines."""
        first, _, rest = start.partition(b"\n")
        try:
            msgspec.json.decode(first)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # A line longer than the head: only the name tells.
            return self.suffix in (".jsonl", ".ndjson") and first != b"{" and first.strip() != b"{"
        return self.suffix in (".jsonl", ".ndjson") or rest.lstrip().startswith(b"{")

    @cached_property
    def document(self) -> Any:
        """The whole file as data: of JSON, YAML or TOML. Raises DatasetError."""
        if self.kind == "yaml":
            return replace_written_integers(parse_yaml_file(self.path))
        if self.kind == "toml":
            import tomllib  # late: few formats use it

            try:
                return tomllib.loads(self.text)
            except (tomllib.TOMLDecodeError, RecursionError) as error:
                raise self.problem(f"Invalid TOML - {error}") from None
        if self.is_array:
            return [record.data for record in self.records()]
        return self._decoded(json.JSONDecoder(parse_constant=_refuse).decode, self.text)

    @cached_property
    def text(self) -> str:
        """The whole file as text. Raises DatasetError."""
        with opened(self.path) as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
            # GzipFile and raw files may return less than asked for.
            while len(data) <= MAX_DOCUMENT_BYTES and (more := stream.read(MAX_DOCUMENT_BYTES + 1 - len(data))):
                data += more
        if len(data) > MAX_DOCUMENT_BYTES:
            hint = "Write one record per line (JSON Lines), which is read in pieces"
            raise self.problem(f"The file is larger than {MAX_DOCUMENT_BYTES // 2**20} MB", hint=hint)
        self.check_start(data)
        if self.kind == "json" and repair_json(data) != data.removeprefix(_BOM):
            hint = "Write characters outside the BMP as surrogate pairs"
            raise self.problem("a lone surrogate (\\ud800 to \\udfff) is not a character", hint=hint)
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            hint = "Save the file as UTF-8"
            raise self.problem(f"The byte at position {error.start} is not valid UTF-8", hint=hint) from None

    @cached_property
    def sample(self) -> list[Any]:
        """The first records that can be read; of a document, the document."""
        sample: list[Any] = []
        with suppress(DatasetError):
            for item in [self.document] if self.is_document else islice(self.placed(), SAMPLE):
                sample.append(item.data if isinstance(item, Record) else item)
        return sample

    def records(self) -> Iterator[Record]:
        """Yield the records as `placed` does. Raises DatasetError for a line that cannot be read."""
        for record in self.placed():
            if isinstance(record.data, BadRow):
                raise self.problem(record.data.what, record.line, record.data.hint)
            yield record

    def placed(self) -> Iterator[Record]:
        """Yield the records: lines, items of an array, rows of a table, or the document. Raises DatasetError.

        A line of JSON Lines that cannot be read is a BadRow.
        """
        if self.kind == "jsonl":
            return self._json_lines()
        if self.kind == "json" and self.is_array:
            return self._json_items()
        if self.kind == "table":
            return self._table_rows()
        if self.kind in ("sheet", "parquet"):
            rows: Iterator[Record] = service("spreadsheets", self.path)(self.path, self.kind)
            return rows
        return items_of(self.document)

    @property
    def is_document(self) -> bool:
        """Whether the file is one document, rather than a list of records."""
        return self.kind in ("yaml", "toml") or (self.kind == "json" and not self.is_array)

    @cached_property
    def is_array(self) -> bool:
        """Whether a JSON file is an array."""
        return self.head.removeprefix(_BOM).lstrip().startswith(b"[")

    def _json_lines(self) -> Iterator[Record]:
        decode = msgspec.json.Decoder().decode
        with opened(self.path) as stream:
            number = 1
            for lines, _ in line_batches(stream):
                for line in lines:
                    data = b"" if line is None else line.removeprefix(_BOM).strip()
                    if line is None:
                        raise self.problem("The line is too long", number)
                    if data:
                        try:
                            yield Record(number, decode(data))
                        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                            yield Record(number, _bad_row(data, error))
                    number += 1

    def _json_items(self) -> Iterator[Record]:
        """Yield the items of an array one by one, which takes less memory than the whole array."""
        text, decode = self.text, json.JSONDecoder(parse_constant=_refuse).raw_decode
        place, line, counted = text.index("[") + 1, 1, 0
        while True:
            place = _skip_blank(text, place)
            line, counted = line + text.count("\n", counted, place), place
            if text[place : place + 1] == "]":
                if _skip_blank(text, place + 1) < len(text):
                    raise self.problem("Invalid JSON - more text after the end of the array", line)
                return
            data, place = self._decoded(decode, text, place, line=line)
            yield Record(line, data)
            place = _skip_blank(text, place)
            if text[place : place + 1] == ",":
                place += 1
            elif text[place : place + 1] != "]":
                line += text.count("\n", counted, place)
                raise self.problem("Invalid JSON - expected ',' or ']'", line)

    def _decoded(self, decode: Callable[..., Any], *arguments: Any, line: int = 1) -> Any:
        try:
            return decode(*arguments)
        except RecursionError:
            raise self.problem(f"nested too deeply: at most {MAX_DEPTH} levels are supported", line) from None
        except ValueError as error:
            raise self.problem(f"Invalid JSON - {error}", getattr(error, "lineno", line)) from None

    def _table_rows(self) -> Iterator[Record]:
        rows = self.table()
        names = next(rows)[1]
        return (Record(line, dict(zip(names, cells, strict=False))) for line, cells in rows)

    def table(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the names of a table, and then the cells of each row, with the line. Raises DatasetError."""
        csv.field_size_limit(MAX_CELL_BYTES)
        start = 1
        try:
            with opened(self.path) as stream:
                rows = csv.reader(_decoded_lines(stream, self), delimiter=self._delimiter, strict=True)
                names = [name.strip() for name in next((cells for cells in rows if any(map(str.strip, cells))), [])]
                self._check_names(names)
                yield 1, names
                start, width = rows.line_num + 1, len(names)
                for cells in rows:
                    if len(cells) > width and any(cells[width:]):
                        what = f"The row has {len(cells)} cells, and the first line {width}"
                        raise self.problem(what, start, "Quote cells that contain the delimiter")
                    if any(cells):
                        yield start, cells
                    start = rows.line_num + 1
        except csv.Error as error:
            hint = "Close every quote, and write a quote inside a quoted cell twice"
            raise self.problem(f"Invalid table - {error}", start, hint) from None

    @cached_property
    def _delimiter(self) -> str:
        """The delimiter: that of the extension, or a semicolon if the first line has only these."""
        first = self.head.lstrip().split(b"\n", 1)[0]
        delimiter = _DELIMITERS.get(self.suffix, ",")
        return ";" if delimiter == "," and b"," not in first and b";" in first else delimiter

    def _check_names(self, names: list[str]) -> None:
        columns = [name for name in names if name]
        if len(set(columns)) < len(columns):
            twice = next(name for name in columns if columns.count(name) > 1)
            raise self.problem(f"The column '{twice}' occurs twice", hint="Name the columns, each once")

    def check_start(self, data: bytes) -> None:
        """Raise DatasetError for a file that is not text."""
        if data.startswith(LFS_POINTER):
            raise self.problem(*LFS_PROBLEM[:1], hint=LFS_PROBLEM[1])
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise self.problem("The file is UTF-16 text", hint="Save the file as UTF-8")

    def problem(self, what: str, line: int = 1, hint: str = "") -> DatasetParseError:
        """Return the error for a file that cannot be parsed."""
        return DatasetParseError(f"Cannot read {self.path}, line {line}", what, hint, path=self.path, line=line)


def items_of(value: Any) -> Iterator[Record]:
    """Yield the items of a list with their lines, if they are known, or the value itself."""
    if not isinstance(value, list):
        start = getattr(value, "start", None)
        yield Record(1 if start is None else start.line + 1, value)
        return
    marks = getattr(value, "marks", None)
    for index, item in enumerate(value):
        start = marks[index] if marks else getattr(item, "start", None)
        yield Record(index + 1 if start is None else start.line + 1, item)


def _decoded_lines(stream: Any, file: RecordFile) -> Iterator[str]:
    """Yield the lines of a table as text, with their ends."""
    number = 1
    for lines, _ in line_batches(stream):
        if number == 1 and lines[0] is not None:
            file.check_start(lines[0])
            lines[0] = lines[0].removeprefix(_BOM)
        try:
            text = b"".join(lines).decode("utf-8")  # type: ignore[arg-type]
            is_text = "\0" not in text
        except (TypeError, UnicodeDecodeError):
            is_text = False
        if not is_text:
            raise _bad_line(lines, number, file)
        number += len(lines)
        *whole, last = text.split("\n")  # `splitlines` would also split at other characters
        yield from [line + "\n" for line in whole]
        if last:
            yield last


def _bad_line(lines: list[bytes | None], start: int, file: RecordFile) -> DatasetParseError:
    """Return the error for the first line that is not text."""
    for number, line in enumerate(lines, start):
        if line is None:
            return file.problem("The line is too long", number)
        if b"\0" in line:
            return file.problem("The file contains binary data", number)
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return file.problem("The line is not valid UTF-8", number, "Save the file as UTF-8")
    raise AssertionError("all lines are text")


def _bad_row(line: bytes, error: Exception) -> BadRow:
    from agentv.datasets.formats.jsonl import explain  # late: only needed for a bad row

    row = explain(line, error)
    return replace(row, what=f"Invalid JSON - {row.what}", row={"input": line.decode("utf-8", "replace")})


def _skip_blank(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")
