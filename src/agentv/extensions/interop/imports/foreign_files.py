"""Read files of other tools: JSON documents of any size, JSON Lines, also grouped by a key, and tables."""

import csv
import io
import json
import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.records import RecordFile, items_of
from agentv.errors import AgentvError
from agentv.extensions.interop.imports.foreign_values import Fields
from agentv.extensions.interop.imports.json_stream import JsonProblem, decode_json, json_parts
from agentv.support.json_keys import top_level

MAX_LINE_BYTES = 64 * 1024 * 1024
Keys = tuple[str, ...]
_JSON = re.compile(rb'\s*(\{|\[\s*[\[{"])')
_BOM = b"\xef\xbb\xbf"


def problem(path: Path, what: str, hint: str = "") -> AgentvError:
    """Build the error for results that cannot be read."""
    return AgentvError(f"Cannot read {path}", what[:1].upper() + what[1:], hint)


def read_document(path: Path, most_bytes: int) -> Any:
    """Return a JSON file as data. Raises AgentvError, also for a file that is too large."""
    if (size := path.stat().st_size) > most_bytes:
        raise problem(path, f"The file has {size / 2**20:,.0f} MB; at most {most_bytes // 2**20} MB are read at once")
    try:
        return _decoded(path.read_bytes())
    except JsonProblem as error:
        raise problem(path, f"Invalid JSON: {error}") from error


def _decoded(data: bytes, kind: Any = Any) -> Any:
    """Decode JSON, also as Python writes it: with NaN, which is read as null."""
    data = data.removeprefix(_BOM)
    try:
        return decode_json(data, kind)
    except JsonProblem:
        if b"NaN" not in data or kind is not Any:
            raise
        with suppress(ValueError, RecursionError):
            return json.loads(data, parse_constant=lambda _: None)
        raise


def read_parts(path: Path, opened: set[Keys]) -> Iterator[tuple[Keys, bytes]]:
    """Yield the parts of a JSON file of any size. Raises AgentvError."""
    try:
        with path.open("rb") as stream:
            yield from json_parts(stream, opened)
    except JsonProblem as error:
        raise problem(path, f"Invalid JSON: {error}") from error


def read_items(path: Path, opened: set[Keys], lists: set[Keys], noun: str) -> Iterator[tuple[Keys, Fields]]:
    """Yield the objects in lists of a JSON file of any size, each with the keys of its list. Raises AgentvError."""
    number = 0
    for keys, data in read_parts(path, opened):
        if keys in lists and data != b"null":
            number += 1
            item = decoded(path, data, f"{noun.lower()} {number}")
            if not isinstance(item, dict):
                raise problem(path, f"{noun} {number} is not an object")
            yield keys, Fields(item)


def read_header(path: Path, opened: set[Keys], lists: set[Keys]) -> Fields:
    """Return the values next to the lists of a JSON file of any size, by their last key. Raises AgentvError."""
    parts = ((keys, data) for keys, data in read_parts(path, opened) if keys and keys not in lists)
    return Fields({keys[-1]: decoded(path, data, ".".join(keys)) for keys, data in parts})


def read_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a JSON Lines file with their numbers. Raises AgentvError."""
    for number, line in numbered_lines(path):
        if not line.isspace():
            yield number, decoded(path, line, f"line {number}")


def read_rows(path: Path, *lists: str) -> Iterator[tuple[int, Fields]]:
    """Yield the objects of JSON Lines, of an array, of a list in a document, or by id, each with its line or number.

    Raises AgentvError.
    """
    file = RecordFile(str(path))
    if file.kind == "json" and not file.is_array:
        document = file.document
        items = next((document[key] for key in lists if isinstance(document.get(key), list)), None)
        is_by_id = items is None and all(isinstance(item, dict) for item in document.values())
        records = items_of(items or (list(document.values()) if is_by_id else [document]))
    else:
        records = file.records()
    for line, row, _ in records:
        if not isinstance(row, dict):
            raise problem(path, f"Entry {line} is not an object")
        yield line, Fields(row)


def row_keys(head: bytes, *lists: str) -> dict[str, bytes]:
    """Return the keys of the first row, each with the start of its value: of a line, an array or a list."""
    text = head.removeprefix(_BOM).lstrip()
    document = top_level(text)
    for key in lists:
        if document.get(key, b"").startswith(b"["):
            text = text[text.index(b"[", text.index(f'"{key}"'.encode())) :]
    return top_level(text[1:]) if text.startswith(b"[") else document


def table_names(head: bytes) -> list[str]:
    """Return the names of the columns in the first row of a table; empty for JSON and other files."""
    text = head.removeprefix(_BOM)
    if _JSON.match(text):
        return []
    lines = io.TextIOWrapper(io.BytesIO(text), "utf-8", newline="")
    try:
        return next(csv.reader(lines, delimiter=_delimiter(text.partition(b"\n")[0]), strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def _delimiter(line: bytes) -> str:
    return "\t" if line.count(b"\t") > line.count(b",") else ","


def read_table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the names of a table and the cells of each row, with the line where it ends. Raises AgentvError."""
    csv.field_size_limit(MAX_LINE_BYTES)
    with path.open("rb") as head:
        delimiter = _delimiter(head.readline())
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, delimiter=delimiter, strict=True)
            width = 0
            for cells in filter(None, rows):
                width = width or len(cells)
                if len(cells) != width:
                    raise problem(path, f"Line {rows.line_num} has {len(cells)} cells instead of {width}")
                yield rows.line_num, cells
    except (UnicodeDecodeError, csv.Error) as error:
        raise problem(path, f"Invalid table: {error}") from error


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their ends and numbers. Raises AgentvError for a line that is too long."""
    with path.open("rb", buffering=1 << 18) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise problem(path, f"Line {number} is longer than {MAX_LINE_BYTES // 2**20} MB")
            yield number, line


def decoded(path: Path, data: bytes, place: str, kind: Any = Any) -> Any:
    """Decode one part of a file. Raises AgentvError that names the place."""
    try:
        return _decoded(data, kind)
    except JsonProblem as error:
        raise problem(path, f"Invalid JSON at {place}: {error}") from error


def grouped_lines(path: Path, key: Callable[[Any], Hashable | None]) -> Iterator[tuple[Hashable, list[Any]]]:
    """Yield the lines of a JSON Lines file by key, in the order of their first lines; a key of None is left out.

    Only the positions of the lines are held. Raises AgentvError.
    """
    places: dict[Hashable, list[int]] = {}
    start = 0
    for number, line in numbered_lines(path):
        group = key(decoded(path, line, f"line {number}")) if not line.isspace() else None
        if group is not None:
            places.setdefault(group, []).append(start)
        start += len(line)
    with path.open("rb") as stream:
        for name, offsets in places.items():
            rows = []
            for offset in offsets:
                stream.seek(offset)
                rows.append(decoded(path, stream.readline(), f"byte {offset:,}"))
            yield name, rows
