"""Read the records of a run that may still grow: each read continues where the last one ended."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, islice
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from zlib import crc32

from agentv.errors import file_errors
from agentv.model.result import Result
from agentv.report.row_blocks import RowRecord
from agentv.runs.record import RESULTS_FILE, DuplicateCheck, RecordError, damaged
from agentv.runs.store import RunStore

_READ_BYTES = 4 << 20
_START_BYTES = 4096

Record = TypeVar("Record", bound=RowRecord | Result)


class RecordBatch(NamedTuple, Generic[Record]):
    """Records, and the offset of each in the file."""

    offsets: array[int]
    records: list[Record]


class AppendedRecords(Generic[Record]):
    """Reads a file of lines in batches. The last line of a `results.jsonl` is read when it is complete.

    `decode` turns a line into a record and raises RecordError. A second record of a job is an error, unless a reader of
    the same file `checks_jobs` already.
    """

    def __init__(self, path: Path, decode: Callable[[bytes], Record], *, checks_jobs: bool = True) -> None:
        self._path = path
        self._decode = decode
        self._line = self._offset = self._read_bytes = 0
        self._lines: list[bytes] = []
        self._jobs = DuplicateCheck(path, "line") if checks_jobs else None
        self._seen_size = 0
        self._file = _file_number(path)
        self._start = b""
        self._same_at: tuple[int, int] | None = None

    @property
    def is_at_end(self) -> bool:
        """Whether everything is read, except the start of a line that is still being written."""
        return not self._lines and _size(self._path) == self._seen_size

    @property
    def was_replaced(self) -> bool:
        """Whether the file was deleted, shortened, overwritten or replaced by another one."""
        return _file_number(self._path) != self._file or _size(self._path) < self._offset or not self._has_same_start()

    @property
    def version(self) -> str:
        """A value that changes when the file is replaced."""
        return f"{self._file}-{crc32(self._start)}"

    def _has_same_start(self) -> bool:
        """Return whether the file begins as it did; it is read only if it has changed."""
        if (stamp := file_stamp(self._path)) != self._same_at:
            with suppress(OSError), open(self._path, "rb") as file:
                if file.read(len(self._start)) == self._start:
                    self._same_at = stamp
        return stamp == self._same_at

    def read(self, most: int) -> RecordBatch[Record]:
        """Return the next records, at most this many. Raises AgentvError for a damaged record."""
        offsets: array[int] = array("q")
        records: list[Record] = []
        while len(records) < most and (self._lines or self._fill()):
            lines, self._lines = self._lines[: most - len(records)], self._lines[most - len(records) :]
            ends = list(accumulate(map(len, lines), initial=self._offset))
            places = [place for place, line in enumerate(lines) if not line.isspace()]
            batch = self._decoded([lines[place] for place in places] if len(places) < len(lines) else lines, places)
            if self._jobs is not None:
                self._jobs.add_all(batch, self._line + 1)
            offsets.extend([ends[place] for place in places])
            records += batch
            self._line += len(lines)
            self._offset = ends[-1]
        return RecordBatch(offsets, records)

    def _fill(self) -> bool:
        """Read the next complete lines. Return whether there are any."""
        if not (size := _size(self._path)):
            return False
        with file_errors(f"Cannot read {self._path}"), open(self._path, "rb") as file:
            file.seek(self._read_bytes)
            lines = file.readlines(_READ_BYTES)
        # Only a file that agentv writes may end in a part of a line.
        if lines and not lines[-1].endswith(b"\n") and self._path.name == RESULTS_FILE:
            lines.pop()
        if lines and not self._start:
            self._start = lines[0][:_START_BYTES]
        self._read_bytes += sum(map(len, lines))
        self._lines = lines
        if not lines:
            self._seen_size = size
        return bool(lines)

    def _decoded(self, lines: list[bytes], places: list[int]) -> list[Record]:
        """Decode lines. `places` are their numbers after the lines that were read before."""
        if not self._line and lines:
            lines = [lines[0].removeprefix(b"\xef\xbb\xbf"), *lines[1:]]
        try:
            return list(map(self._decode, lines))
        except RecordError:
            for place, line in zip(places, lines, strict=True):
                try:
                    self._decode(line)
                except RecordError as error:
                    raise damaged(self._path, f"line {self._line + place + 1}", error) from error
            raise


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _file_number(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


class HeldRecords:
    """Reads the records of a file that has no lines, in the same way. A change of the file means another one."""

    def __init__(self, run: RunStore) -> None:
        self._entries = run.entries()
        self._path = run.file or run.path
        self._stamp = file_stamp(self._path)
        self.is_at_end = False

    @property
    def was_replaced(self) -> bool:
        """Whether the file was changed or deleted."""
        return file_stamp(self._path) != self._stamp

    @property
    def version(self) -> str:
        """A value that changes when the file is replaced."""
        return "-".join(map(str, self._stamp))

    def read(self, most: int) -> RecordBatch[Result]:
        """Return the next records, at most this many. Raises AgentvError for a damaged record."""
        entries = list(islice(self._entries, most))
        self.is_at_end = not entries
        return RecordBatch(array("q", [offset for offset, _ in entries]), [record for _, record in entries])


def new_records(
    run: RunStore, decode: Callable[[bytes], Record], *, checks_jobs: bool = True
) -> AppendedRecords[Record] | HeldRecords:
    """Return a reader of the records of a run, whatever kind of file has them."""
    lines = lines_of(run)
    return HeldRecords(run) if lines is None else AppendedRecords(lines, decode, checks_jobs=checks_jobs)


def lines_of(run: RunStore) -> Path | None:
    """Return the file of records, which a new run does not have yet; None if it does not consist of lines."""
    if run.file is None:
        return run.folder.results_path
    return run.file if run.is_lines else None


def file_stamp(path: Path) -> tuple[int, int]:
    """Return the time of the last change of a file and its size; zeros if it does not exist."""
    try:
        stat = os.stat(path)
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
