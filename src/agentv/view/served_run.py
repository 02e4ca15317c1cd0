"""A run that the page shows: its rows are read in the background, its records and cases on demand."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition, Event, Lock, Thread
from typing import Any

import msgspec

from agentv.errors import AgentvError, file_errors
from agentv.model.result import Result
from agentv.report.html import page_head
from agentv.report.row_blocks import RowRecord, case_fields, remaining_fields
from agentv.runs.folder_lock import may_be_locked
from agentv.runs.record import encode_record, field_decoder
from agentv.runs.run_figures import FigureBuilder, Figures, stored_figures
from agentv.runs.store import RunStore
from agentv.runs.summary import Snapshot
from agentv.view.appended_records import AppendedRecords, HeldRecords, file_stamp, lines_of
from agentv.view.row_store import RowStore, find_case

_WAIT_S = 0.25
"""How long a request waits for rows that are about to be read."""
_MOST_RESULT_BYTES = 16 << 20
"""A response with records ends after this many bytes; the page asks for the others again."""
_FIGURES_WAIT_S = 0.15
_FIGURES_AT_ONCE = 1024
_FIGURES_EVERY_S = 1.0

_encode = msgspec.json.Encoder().encode


class ServedRun:
    """One run. A thread reads new records while `follow` is called; all methods may be called from several threads.

    First it reads the rows, then the figures, which takes longer. Until they are known, those that the run stored are
    used; without any, those of the records read so far.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._changed = Condition()
        self._file_lock = Lock()
        self._stopped = Event()
        self._is_reading = False
        self._run: RunStore | None = None
        self._error: AgentvError | None = None
        self._figures: Figures | None = None
        self._stored: Figures | None = None
        self._has_all_figures = False
        self._offsets = array("q")
        self.snapshot: Snapshot | None = None

    def follow(self) -> None:
        """Start to read what is new, unless a thread does so already."""
        with self._changed:
            if self._is_reading or self._error is not None or self._is_at_end:
                return
            self._is_reading = True
        Thread(target=self._read, name=f"read {self.path.name}", daemon=True).start()

    def close(self) -> None:
        """Stop reading."""
        self._stopped.set()

    @property
    def is_live(self) -> bool:
        """Whether a process is writing to the run."""
        return may_be_locked(self.path if self._run is None else self._run.folder.path)

    @property
    def was_replaced(self) -> bool:
        """Whether the run was deleted, replaced or repaired, so that it has to be opened again."""
        if self._error is not None:
            return self._failed_stamps != self._stamps()
        return self._run is not None and (self._rows_source.was_replaced or not self.path.exists())

    @property
    def store(self) -> RunStore:
        """The run as it is stored. Raises AgentvError if it cannot be read."""
        self._ready_is_live()
        assert self._run is not None
        return self._run

    @property
    def version(self) -> str:
        """A value that changes when the records are replaced by those of another run."""
        return "" if self._run is None else self._rows_source.version

    @property
    def total(self) -> int:
        """The number of rows that are known."""
        return 0 if self._run is None else self._rows.total

    def head(self) -> dict[str, Any]:
        """Return the run, its figures so far, and the names that rows refer to. Raises AgentvError.

        `covers` is the number of results in the figures; None if they are those of the whole run.
        """
        is_live = self._ready_is_live()
        self._wait(lambda: self._has_all_figures, _FIGURES_WAIT_S)
        if self._error is not None and not self._rows.total:
            raise self._error
        complete = not is_live and self._is_at_end
        with self._changed:
            run, figures, is_whole = self._run, self._figures, self._has_all_figures or self._stored is not None
        assert run is not None and figures is not None
        covers = None if is_whole and not is_live else figures.done
        head = page_head(run, figures, self._rows.names(), self._rows.total)
        head["run"]["lost"] *= complete  # rows that are not read yet are not lost
        return {**head, "covers": covers, "complete": complete, "live": is_live, "notes": list(run.notes)}

    def rows(self, first: int) -> bytes:
        """Return the block of rows from `first` on, as JSON. Raises AgentvError if they cannot be read."""
        is_live = self._ready_is_live()
        self._wait(lambda: self._rows.total > first, _WAIT_S)
        if self._error is not None and self._rows.total <= first:
            raise self._error
        is_read = self._rows_source.is_at_end  # before the total, which may grow meanwhile
        total = self._rows.total
        block = self._rows.block(first)
        complete = not is_live and is_read
        state = {"total": total, "complete": complete, "version": self.version}
        return _encode(state)[:-1] + b"," + block[1:]

    def results(self, rows: Sequence[int]) -> bytes:
        """Return the fields of records that are not in the columns, as JSON: of the first rows, if they are large."""
        found: list[bytes] = []
        size = 0
        for row in rows:
            found.append(_encode(remaining_fields(self.record(row))))
            size += len(found[-1])
            if size > _MOST_RESULT_BYTES:
                break
        return b"[%b]" % b",".join(found)

    def record(self, row: int) -> Result:
        """Return the whole record of a row. Raises AgentvError for an unknown row."""
        self._check_row(row)
        assert self._run is not None
        with self._file_lock:
            return self._run.read(self._offsets[row])

    def case(self, row: int) -> dict[str, Any] | None:
        """Return the stored case of a row; None if the run has no cases."""
        record = self.record(row)
        assert self._run is not None
        near = row / self.total  # cases are stored in the order in which jobs start
        offset = find_case(self._run.folder.cases_path, record.dataset_path, record.eval_id, near)
        found = next(self._run.cases_at([offset])) if offset >= 0 else None
        return None if found is None else case_fields(found.fields)

    def wait_for_rows(self) -> None:
        """Wait until all rows that exist now are read. Raises AgentvError if they cannot be read."""
        self._ready_is_live()
        self._wait(lambda: self._rows_source.is_at_end, None)
        if self._error is not None:
            raise self._error

    def record_bytes(self, rows: range) -> bytes:
        """Return the records of consecutive rows as JSON Lines, as they are stored."""
        assert self._run is not None
        lines = lines_of(self._run)
        if lines is None:
            return b"".join(encode_record(self.record(row)) for row in rows)
        end = self._offsets[rows.stop] if rows.stop < len(self._offsets) else None
        with file_errors(f"Cannot read {lines}"), open(lines, "rb") as file:
            file.seek(self._offsets[rows.start])
            return file.read(-1 if end is None else end - self._offsets[rows.start])

    def decode(self, line: bytes) -> Result:
        """Decode a record. Raises RecordError."""
        assert self._run is not None
        return self._run.decode(line)

    @property
    def cases_path(self) -> Path:
        """The file of the run's cases, which may not exist."""
        assert self._run is not None
        return self._run.folder.cases_path

    def rows_of(self, cases: set[tuple[str, str]]) -> list[int]:
        """Return the rows of cases, which are named by dataset path and id."""
        return list(self._rows.rows_of(cases))

    def _check_row(self, row: int) -> None:
        self._ready_is_live()
        self._wait(lambda: row < len(self._offsets) or self._rows_source.is_at_end, None)
        if not 0 <= row < len(self._offsets):
            raise AgentvError(f"The run has no row {row:,}", f"It has {self.total:,} rows")

    def _ready_is_live(self) -> bool:
        """Wait until the run is open, and return whether it is written to, before looking at what was read."""
        self.follow()
        self._wait(lambda: self._run is not None, None)
        if self._run is None and self._error is not None:
            raise self._error
        is_live = self.is_live
        self.follow()
        return is_live

    def _wait(self, is_ready: Callable[[], bool], most_s: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_ready() or self._error is not None or not self._is_reading, most_s)

    @property
    def _is_at_end(self) -> bool:
        return self._is_current and self._rows_source.is_at_end and self._has_all_figures

    @property
    def _is_current(self) -> bool:
        """Whether the run is open, and its manifest has not been written since."""
        return self._run is not None and file_stamp(self._run.folder.manifest_path) == self._manifest_stamp

    def _read(self) -> None:
        """Read until nothing is left: first rows, then figures."""
        try:
            if self._run is None:
                self._open()
            elif not self._is_current:
                self._refresh()
            while not self._stopped.is_set() and (self._read_rows() or self._read_figures()):
                pass
        except AgentvError as error:
            self._fail(error)
        except Exception as error:
            self._failed_stamps, self._error = (
                self._stamps(),
                AgentvError(f"Cannot read {self.path}", f"{type(error).__name__}: {error}"),
            )
            raise
        finally:
            with self._changed:
                self._is_reading = False
                self._changed.notify_all()

    def _fail(self, error: AgentvError) -> None:
        self._failed_stamps, self._error = self._stamps(), error

    def _stamps(self) -> list[tuple[int, int]]:
        return [file_stamp(self.path / name) for name in ("", "run.json", "results.jsonl")]

    def _open(self) -> None:
        run = self._store()
        self._rows = RowStore()
        lines = lines_of(run)
        self._rows_source: AppendedRecords[RowRecord | Result] | HeldRecords = (
            HeldRecords(run) if lines is None else AppendedRecords(lines, field_decoder(RowRecord, run.name))
        )
        self._start_figures(run)
        self._stored = stored_figures(run)
        self._figures = self._stored or self._builder.build()
        with self._changed:
            self._run = run
            self._changed.notify_all()

    def _refresh(self) -> None:
        """Read the manifest again: the run has ended, or was resumed."""
        run = self._store()
        stored = stored_figures(run)
        self._builder.run = run
        with self._changed:
            self._run, self._has_all_figures = run, False
            self._stored, self._figures = stored, stored or self._figures

    def _store(self) -> RunStore:
        run = RunStore.open(self.path, checks_damage=False)
        self._manifest_stamp = file_stamp(run.folder.manifest_path)  # before it is read
        _ = run.manifest  # an unreadable one is an error now, not in each request
        return run

    def _read_rows(self) -> bool:
        if self._rows_source.is_at_end:
            return False
        batch = self._rows_source.read(self._rows.room)
        if batch.records:
            self._rows.add(batch.records)
            with self._changed:
                self._offsets.extend(batch.offsets)
                self._has_all_figures = False
                self._changed.notify_all()
        return bool(batch.records)

    def _start_figures(self, run: RunStore, *, by_case: bool | None = None) -> None:
        self._builder = FigureBuilder(run, by_case=by_case)
        lines = lines_of(run)
        self._figures_source: AppendedRecords[Result] | HeldRecords = (
            HeldRecords(run) if lines is None else AppendedRecords(lines, run.decode, checks_jobs=False)
        )
        self._published = time.monotonic()

    def _read_figures(self) -> bool:
        """Add records to the figures, and publish them from time to time and at the end."""
        if self._has_all_figures:
            return False
        assert self._run is not None
        batch = self._figures_source.read(_FIGURES_AT_ONCE)
        if not all(map(self._builder.add, batch.records)):
            self._start_figures(self._run, by_case=True)
            return True
        is_end = not batch.records
        self.snapshot = self._builder.snapshot()
        if is_end or time.monotonic() - self._published > _FIGURES_EVERY_S:
            self._publish(is_end)
        return not is_end

    def _publish(self, is_end: bool) -> None:
        figures = self._builder.build() if is_end or self._stored is None else self._stored
        self._published = time.monotonic()
        with self._changed:
            self._figures, self._has_all_figures = figures, is_end
            self._changed.notify_all()
