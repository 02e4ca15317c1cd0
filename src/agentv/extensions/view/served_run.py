"""What the page asks about one run: its figures, rows, records and cases."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from agentv.errors import AgentvError, file_errors
from agentv.extensions.view.appended_records import lines_of
from agentv.extensions.view.row_store import find_case
from agentv.extensions.view.run_reader import RunReader
from agentv.model.result import Result
from agentv.report.html import page_frontier, page_head
from agentv.report.row_blocks import case_fields, remaining_fields
from agentv.runs.record import encode_record
from agentv.runs.store import RunStore

_WAIT_S = 0.25
"""How long a request waits for rows that are about to be read."""
_MOST_RESULT_BYTES = 16 << 20
"""A response with records ends after this many bytes; the page asks for the others again."""
_FIGURES_WAIT_S = 0.15

_encode = msgspec.json.Encoder().encode


class ServedRun:
    """One run that the page shows, and its reader. All methods may be called from several threads."""

    def __init__(self, path: Path) -> None:
        self.reader = RunReader(path)
        self._file_lock = Lock()
        self._frontier: dict[str, Any] | None = None
        self._frontier_version: tuple[str, int] | None = None

    @property
    def store(self) -> RunStore:
        """The run as it is stored. Raises AgentvError if it cannot be read."""
        return self._open()[0]

    @property
    def total(self) -> int:
        """The number of rows that are known."""
        return self.reader.rows.total

    def head(self) -> dict[str, Any]:
        """Return the run, its figures so far, and the names that rows refer to. Raises AgentvError.

        `covers` is the number of results in the figures; None if they are those of the whole run.
        """
        reader = self.reader
        _, is_live = self._open()
        reader.wait(lambda: reader.has_all_figures, _FIGURES_WAIT_S)
        if reader.error is not None and not reader.rows.total:
            raise reader.error
        complete = not is_live and reader.is_at_end
        with reader.changed:
            run, figures, is_whole = reader.run, reader.figures, reader.has_whole_figures
        assert run is not None and figures is not None
        covers = None if is_whole and not is_live else figures.done
        head = page_head(run, figures, reader.rows.names(), reader.rows.total)
        head["run"]["lost"] *= complete  # rows that are not read yet are not lost
        version = reader.version, reader.rows.total
        if complete and is_whole and self._frontier_version != version:
            self._frontier, self._frontier_version = page_frontier(run, figures), version
        frontier = self._frontier if complete else None
        state = {"covers": covers, "complete": complete, "live": is_live, "notes": list(run.notes)}
        return {**head, **state, "frontier": frontier}

    def rows(self, first: int) -> bytes:
        """Return the block of rows from `first` on, as JSON. Raises AgentvError if they cannot be read."""
        reader = self.reader
        _, is_live = self._open()
        reader.wait(lambda: reader.rows.total > first, _WAIT_S)
        if reader.error is not None and reader.rows.total <= first:
            raise reader.error
        is_read = reader.has_all_rows  # before the total, which may grow meanwhile
        total = reader.rows.total
        block = reader.rows.block(first)
        complete = not is_live and is_read
        state = {"total": total, "complete": complete, "version": reader.version}
        return _encode(state)[:-1] + b"," + block[1:]

    def results(self, rows: Sequence[int]) -> bytes:
        """Return the fields of records that are not in the columns, as JSON: of the first rows, if they are large."""
        parts: list[bytes] = []
        size = 0
        for row in rows:
            parts.append(_encode(remaining_fields(self.record(row))))
            size += len(parts[-1])
            if size > _MOST_RESULT_BYTES:
                break
        return b"[%b]" % b",".join(parts)

    def record(self, row: int) -> Result:
        """Return the whole record of a row. Raises AgentvError for an unknown row."""
        reader = self.reader
        run = self.store
        reader.wait(lambda: row < len(reader.offsets) or reader.has_all_rows)
        if not 0 <= row < len(reader.offsets):
            raise AgentvError(f"The run has no row {row:,}", f"It has {self.total:,} rows")
        with self._file_lock:
            return run.read(reader.offsets[row])

    def case(self, row: int) -> dict[str, Any] | None:
        """Return the stored case of a row; None if the run has no cases."""
        record, run = self.record(row), self.store
        near = row / self.total  # cases are stored in the order in which jobs start
        offset = find_case(run.folder.cases_path, record.dataset_path, record.eval_id, near)
        case = next(run.cases_at([offset])) if offset >= 0 else None
        return None if case is None else case_fields(case.fields)

    def wait_for_rows(self) -> None:
        """Wait until all rows that exist now are read. Raises AgentvError if they cannot be read."""
        self._open()
        self.reader.wait(lambda: self.reader.has_all_rows)
        if self.reader.error is not None:
            raise self.reader.error

    def record_bytes(self, rows: range) -> bytes:
        """Return the records of consecutive rows as JSON Lines, as they are stored."""
        lines, offsets = lines_of(self.store), self.reader.offsets
        if lines is None:
            return b"".join(encode_record(self.record(row)) for row in rows)
        end = offsets[rows.stop] if rows.stop < len(offsets) else None
        with file_errors(f"Cannot read {lines}"), open(lines, "rb") as file:
            file.seek(offsets[rows.start])
            return file.read(-1 if end is None else end - offsets[rows.start])

    def _open(self) -> tuple[RunStore, bool]:
        """Wait until the run is open. Returns it, and whether it is written to, before looking at what was read."""
        reader = self.reader
        reader.follow()
        reader.wait(lambda: reader.run is not None)
        if reader.run is None:
            assert reader.error is not None
            raise reader.error
        is_live = reader.is_live
        reader.follow()
        return reader.run, is_live
