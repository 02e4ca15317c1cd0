"""The rows of a served run: blocks of columns as compressed JSON, and the place of the case of a row."""

import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, NamedTuple

import msgspec

from agentv.errors import file_errors
from agentv.model.result import Result
from agentv.report.row_blocks import NAMED_COLUMNS, Columns, RowColumns, RowRecord, packed_columns, unpacked_columns

ROWS_A_BLOCK = 16_384
_CASE_BYTES = 2 << 20
_CASE_START = b'{"id":"'
_LEVEL = 1

_encode = msgspec.json.Encoder().encode


class _Block(NamedTuple):
    """A full block: its compressed JSON, and the number of names of each kind before it."""

    data: bytes
    known: dict[str, int]


class RowStore:
    """Rows in the order of the file. They are added by one thread and read by others."""

    def __init__(self) -> None:
        self._rows = RowColumns()
        self._blocks: list[_Block] = []
        self._tail: Columns = {}
        self._known = self._rows.counts()
        self._lock = Lock()
        self.total = 0

    @property
    def room(self) -> int:
        """The number of rows that fill the current block."""
        return ROWS_A_BLOCK - self.total % ROWS_A_BLOCK

    def add(self, records: Sequence[Result | RowRecord]) -> None:
        """Add rows, at most `room` of them."""
        with self._lock:
            columns = self._rows.columns(records)
            for name, values in columns.items():
                self._tail.setdefault(name, []).extend(values)
            is_full = len(records) == self.room
            self.total += len(records)
            tail = self._tail
        if is_full:
            data = zlib.compress(self._encoded(tail, 0, self._known, self._rows.names(self._known)), _LEVEL)
            with self._lock:
                self._blocks.append(_Block(data, self._known))
                self._tail, self._known = {}, self._rows.counts()

    def names(self) -> dict[str, list[Any]]:
        """Return all names that rows refer to."""
        with self._lock:
            return self._rows.names()

    def block(self, first: int) -> bytes:
        """Return the rows from `first` to the end of its block as JSON, with the names that are new in them."""
        number, start = divmod(first, ROWS_A_BLOCK)
        with self._lock:
            if number >= len(self._blocks):
                tail = {name: list(values) for name, values in self._tail.items()}
                count = len(tail.get("id", ()))
                if number > len(self._blocks) or start >= count:
                    return _encode({"first": first, "n": 0, "names": {}})
                return self._encoded(tail, start, self._known, self._rows.names(self._known), first - start)
            entry = self._blocks[number]
        data = zlib.decompress(entry.data)
        if not start:
            return data
        block = msgspec.json.decode(data)
        names, n = block.pop("names"), block.pop("n")
        block.pop("first")
        return self._encoded(unpacked_columns(block, n), start, entry.known, names, first - start)

    def rows_of(self, cases: set[tuple[str, str]]) -> Iterator[int]:
        """Yield the rows of cases, which are named by dataset path and id."""
        datasets = [dataset["path"] for dataset in self.names()["datasets"]]
        for first in range(0, self.total, ROWS_A_BLOCK):
            block = msgspec.json.decode(self.block(first))
            n, ids, numbers = block["n"], block["id"], block["dataset"]
            for place in range(n):
                id = ids[place] if isinstance(ids, list) else ids
                number = numbers[place] if isinstance(numbers, list) else numbers
                if (datasets[number], id) in cases:
                    yield first + place

    def _encoded(
        self,
        columns: Columns,
        start: int,
        counts: dict[str, int],
        names: dict[str, list[Any]],
        first: int | None = None,
    ) -> bytes:
        """Encode the rows from `start` on. `names` are those that are new in the block, after the `counts` ones."""
        if first is None:
            first = len(self._blocks) * ROWS_A_BLOCK
        new = {}
        for kind, column in NAMED_COLUMNS.items():
            before = max(counts[kind], 1 + max(columns[column][:start], default=-1))
            new[kind] = names[kind][before - counts[kind] :]
        rest = {name: values[start:] for name, values in columns.items()} if start else columns
        return _encode({"first": first + start, "n": len(rest["id"]), "names": new, **packed_columns(rest)})


class _CaseName(msgspec.Struct, gc=False):
    id: str
    dataset_path: str = ""


_decode_name = msgspec.json.Decoder(_CaseName).decode


def find_case(path: Path, dataset_path: str, id: str, near: float = 0.0) -> int:
    """Return the offset of a case in `cases.jsonl`; -1 if it is not there.

    No index is needed: the file is searched for the id, first from the fraction `near` on, where it is likely to be.
    """
    if not path.is_file():
        return -1
    with file_errors(f"Cannot read {path}"), path.open("rb") as file:
        is_ours = file.read(len(_CASE_START)) == _CASE_START
        start = b'{"id":%b' % _encode(id) if is_ours else b""
        size = path.stat().st_size
        begin = max(0, int(near * size) - _CASE_BYTES)
        places = chain(_lines_with(file, start, begin, size), _lines_with(file, start, 0, begin))
        return next((at for at, line in places if _is_case(line, dataset_path, id)), -1)


def _lines_with(file: BinaryIO, start: bytes, first: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines between two offsets that start with these bytes, each with its offset."""
    file.seek(first)
    at = first + (len(file.readline()) if first else 0)
    while at <= stop and (data := file.read(_CASE_BYTES) + file.readline()):
        if start in data:
            lines = data.split(b"\n")
            offsets = accumulate((len(line) + 1 for line in lines), initial=at)
            yield from (pair for pair in zip(offsets, lines, strict=False) if pair[1].startswith(start))
        at += len(data)


def _is_case(line: bytes, dataset_path: str, id: str) -> bool:
    try:
        name = _decode_name(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return (name.dataset_path, name.id) == (dataset_path, id)
