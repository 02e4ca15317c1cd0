"""Read a run in the background: first its rows, then its figures, which takes longer."""

import time
from array import array
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Event, Thread

from agentv.errors import AgentvError
from agentv.extensions.view.appended_records import file_stamp, new_records
from agentv.extensions.view.row_store import RowStore
from agentv.report.row_blocks import RowRecord
from agentv.runs.folder_lock import may_be_locked
from agentv.runs.record import field_decoder
from agentv.runs.run_figures import FigureBuilder, Figures, stored_figures
from agentv.runs.store import RunStore
from agentv.runs.summary import Snapshot

_FIGURES_AT_ONCE = 1024
_FIGURES_EVERY_S = 1.0


class RunReader:
    """Reads the records of one run in a thread that starts with `follow`, and ends when nothing is left to read.

    `rows` and `offsets` have the rows read so far. Until all records are in `figures`, those that the run stored are
    used; without any, those of the records read so far. After a failure, `error` is set.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: RunStore | None = None
        self.rows = RowStore()
        self.offsets = array("q")
        self.figures: Figures | None = None
        self.has_all_figures = False
        self.snapshot: Snapshot | None = None
        self.error: AgentvError | None = None
        self.changed = Condition()
        self._stopped = Event()
        self._is_reading = False
        self._is_storing = False
        self._stored: Figures | None = None
        self._manifest_stamp: tuple[int, int] | None = None
        self._failed_stamps: list[tuple[int, int]] = []

    def follow(self) -> None:
        """Start to read what is new, unless a thread does so already."""
        with self.changed:
            if self._is_reading or self.error is not None or self.is_at_end:
                return
            self._is_reading = True
        Thread(target=self._read, name=f"read {self.path.name}", daemon=True).start()

    def close(self) -> None:
        """Stop reading."""
        self._stopped.set()

    def wait(self, is_ready: Callable[[], bool], most_s: float | None = None) -> None:
        """Wait until enough is read, or reading ends."""
        with self.changed:
            self.changed.wait_for(lambda: is_ready() or self.error is not None or not self._is_reading, most_s)

    @property
    def is_live(self) -> bool:
        """Whether a process is writing to the run."""
        return may_be_locked(self.path if self.run is None else self.run.folder.path)

    @property
    def was_replaced(self) -> bool:
        """Whether the run was deleted, replaced or repaired, so that it has to be opened again."""
        if self.error is not None:
            return self._failed_stamps != self._stamps()
        return self.run is not None and (self._rows_source.was_replaced or not self.path.exists())

    @property
    def version(self) -> str:
        """A value that changes when the records are replaced by those of another run."""
        return "" if self.run is None else self._rows_source.version

    @property
    def has_all_rows(self) -> bool:
        """Whether all rows that exist now are read and stored."""
        # In this order: the end is reached before the last rows are stored.
        return self._rows_source.is_at_end and not self._is_storing

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left to read."""
        return self._is_current and self.has_all_rows and self.has_all_figures

    @property
    def has_whole_figures(self) -> bool:
        """Whether `figures` are those of the whole run."""
        return self.has_all_figures or self._stored is not None

    @property
    def _is_current(self) -> bool:
        """Whether the run is open, and its manifest has not been written since."""
        return self.run is not None and file_stamp(self.run.folder.manifest_path) == self._manifest_stamp

    def _read(self) -> None:
        """Read until nothing is left: first rows, then figures."""
        try:
            if self.run is None:
                self._open()
            elif not self._is_current:
                self._refresh()
            while not self._stopped.is_set() and (self._read_rows() or self._read_figures()):
                pass
        except AgentvError as error:
            self._failed_stamps, self.error = self._stamps(), error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._failed_stamps, self.error = self._stamps(), AgentvError(f"Cannot read {self.path}", reason)
            raise
        finally:
            with self.changed:
                self._is_reading = False
                self.changed.notify_all()

    def _stamps(self) -> list[tuple[int, int]]:
        return [file_stamp(self.path / name) for name in ("", "run.json", "results.jsonl")]

    def _open(self) -> None:
        run = self._store()
        self._rows_source = new_records(run, field_decoder(RowRecord, run.name))
        self._start_figures(run)
        self._stored = stored_figures(run)
        self.figures = self._stored or self._builder.build()
        with self.changed:
            self.run = run
            self.changed.notify_all()

    def _refresh(self) -> None:
        """Read the manifest again: the run has ended, or was resumed."""
        run = self._store()
        figures = stored_figures(run)
        self._builder.run = run
        with self.changed:
            self.run, self.has_all_figures = run, False
            self._stored, self.figures = figures, figures or self.figures

    def _store(self) -> RunStore:
        run = RunStore.open(self.path, checks_damage=False)
        self._manifest_stamp = file_stamp(run.folder.manifest_path)  # before it is read
        _ = run.manifest  # an unreadable one is an error now, not in each request
        return run

    def _read_rows(self) -> bool:
        if self.has_all_rows:
            return False
        self._is_storing = True
        batch = self._rows_source.read(self.rows.room)
        if batch.records:
            self.rows.add(batch.records)
        with self.changed:
            self._is_storing = False
            if batch.records:
                self.offsets.extend(batch.offsets)
                self.has_all_figures = False
                self.changed.notify_all()
        return bool(batch.records)

    def _start_figures(self, run: RunStore, *, by_case: bool | None = None) -> None:
        self._builder = FigureBuilder(run, by_case=by_case)
        self._figures_source = new_records(run, run.decode, checks_jobs=False)
        self._published = time.monotonic()

    def _read_figures(self) -> bool:
        """Add records to the figures, and publish them from time to time and at the end."""
        if self.has_all_figures:
            return False
        assert self.run is not None
        batch = self._figures_source.read(_FIGURES_AT_ONCE)
        if not all(map(self._builder.add, batch.records)):
            self._start_figures(self.run, by_case=True)
            return True
        is_end = not batch.records
        self.snapshot = self._builder.snapshot()
        if is_end or time.monotonic() - self._published > _FIGURES_EVERY_S:
            self._publish(is_end)
        return not is_end

    def _publish(self, is_end: bool) -> None:
        figures = self._builder.build() if is_end or self._stored is None else self._stored
        self._published = time.monotonic()
        with self.changed:
            self.figures, self.has_all_figures = figures, is_end
            self.changed.notify_all()
