"""The rows of a served run: blocks of columns as compressed JSON, and the rows that do not fill a block yet."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from agentv.model.result import Result
from agentv.report.row_blocks import (
    NAMED_COLUMNS,
    CasePosition,
    Columns,
    RowColumns,
    RowRecord,
    packed_columns,
    unpacked_columns,
)

ROWS_A_BLOCK = 16_384
_LEVEL = 1

_encode = msgspec.json.Encoder().encode


class _Block(NamedTuple):
    """A full block: its compressed JSON, and the number of names of each kind before it."""

    data: bytes
    known: dict[str, int]


class RowStore:
    """Rows in the order of the file. They are added by one thread and read by others."""

    def __init__(self, position: CasePosition) -> None:
        self._rows = RowColumns(position)
        self._blocks: list[_Block] = []
        self._tail: Columns = {}
        self._known = self._rows.counts()
        self._lock = Lock()
        self.total = 0

    @property
    def room(self) -> int:
        """The number of rows that fill the current block."""
        return ROWS_A_BLOCK - self.total % ROWS_A_BLOCK

    def add(self, records: Sequence[Result | RowRecord]) -> Columns:
        """Add rows, at most `room` of them, and return their columns."""
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
        return columns

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
            found = self._blocks[number]
        data = zlib.decompress(found.data)
        if not start:
            return data
        block = msgspec.json.decode(data)
        names, n = block.pop("names"), block.pop("n")
        block.pop("first")
        return self._encoded(unpacked_columns(block, n), start, found.known, names, first - start)

    def _encoded(
        self, columns: Columns, start: int, known: dict[str, int], names: dict[str, list[Any]], first: int | None = None
    ) -> bytes:
        """Encode the rows from `start` on. `names` are those that are new in the block, after the `known` ones."""
        if first is None:
            first = len(self._blocks) * ROWS_A_BLOCK
        new = {}
        for kind, column in NAMED_COLUMNS.items():
            before = max(known[kind], 1 + max(columns[column][:start], default=-1))
            new[kind] = names[kind][before - known[kind] :]
        rest = {name: values[start:] for name, values in columns.items()} if start else columns
        return _encode({"first": first + start, "n": len(rest["id"]), "names": new, **packed_columns(rest)})
