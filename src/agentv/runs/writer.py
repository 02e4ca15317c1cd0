"""Append complete lines to a file. Written lines survive a kill; an incomplete last line is removed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import NoReturn

from agentv.errors import AgentvError, file_errors
from agentv.support.private_files import open_file

SYNC_INTERVAL_S = 1.0
"""How much work a power failure can lose. A killed process loses nothing that was written."""

MOST_PENDING, PENDING_S = 32, 0.005
"""How many lines wait for one `flush`, and for how long. A killed process can lose this much."""

Redact = Callable[[bytes], bytes]

_BLOCK = 64 * 1024
_RESUME = "continue with --resume"
_sync = getattr(os, "fdatasync", os.fsync)


class ResultWriter(AbstractContextManager["ResultWriter"]):
    """Appends lines of JSON to a file, and creates it if necessary. Only one writer may use a file at a time.

    `cut_bytes` is the length of an incomplete last line that was removed. `next_step` is what to do after a write
    error, for the message.
    """

    def __init__(self, path: Path | str, redact: Redact | None = None, *, next_step: str = _RESUME) -> None:
        self.path = Path(path)
        self._next_step = next_step
        self._redact = redact
        self._torn = False
        self._pending: list[bytes] = []
        self._synced_at = monotonic()
        self._written_at = 0.0
        self._syncing = Thread()
        self._sync_error: OSError | None = None
        with file_errors(f"Cannot write {self.path}"):
            self._file = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self.cut_bytes = self._cut_torn_line()
        except OSError as error:
            os.close(self._file)
            self._fail(error)

    def write(self, line: bytes) -> None:
        """Append a line that ends in a newline. Raises AgentvError on failure, with nothing of the line in the file."""
        self.write_all([line])

    def write_all(self, lines: list[bytes]) -> None:
        """Append lines with one system call. On failure, all lines in the file are complete."""
        self.flush()
        self._append(b"".join(lines if self._redact is None else map(self._redact, lines)))

    def add(self, line: bytes) -> bool:
        """Append a line, together with others that follow quickly. Return whether the caller must call `flush`."""
        self._pending.append(line if self._redact is None else self._redact(line))
        if len(self._pending) < MOST_PENDING and monotonic() - self._written_at < PENDING_S:
            return len(self._pending) == 1
        self.flush()
        return False

    def flush(self) -> None:
        """Write the pending lines with one system call. Raises AgentvError on failure."""
        if self._pending:
            lines, self._pending = self._pending, []
            self._append(b"".join(lines))

    def _append(self, line: bytes) -> None:
        try:
            if self._torn:
                self._cut_torn_line()
            written = os.write(self._file, line)
            while written < len(line):
                self._torn = True
                written += os.write(self._file, line[written:])
            self._torn = False
        except OSError as error:
            self._torn = True
            with suppress(OSError):
                self._cut_torn_line()
            self._fail(error)
        self._written_at = monotonic()
        if self._written_at - self._synced_at >= SYNC_INTERVAL_S and not self._syncing.is_alive():
            self._check_sync()
            self._synced_at = self._written_at
            self._syncing = Thread(target=self._sync, daemon=True)  # the jobs do not wait for the disk
            self._syncing.start()

    def sync(self) -> None:
        """Flush to disk, so that everything written survives a power failure."""
        self._wait_for_sync()
        self._check_sync()
        self._sync()
        self._check_sync()

    def _sync(self) -> None:
        try:
            _sync(self._file)
        except OSError as error:
            self._sync_error = error

    def _wait_for_sync(self) -> None:
        if self._syncing.is_alive():
            self._syncing.join()

    def _check_sync(self) -> None:
        """Raise AgentvError if a sync failed."""
        if self._sync_error is not None:
            self._fail(self._sync_error)

    def close(self) -> None:
        """Sync and close. May be called twice."""
        if self._file < 0:
            return
        try:
            self.flush()
            self.sync()
        finally:
            self._wait_for_sync()  # also after an error: the thread uses the file
            os.close(self._file)
            self._file = -1

    def __exit__(self, *ended: object) -> None:
        self.close()

    def _cut_torn_line(self) -> int:
        """Remove everything after the last newline and return its length. If that fails, nothing more is written."""
        size = os.fstat(self._file).st_size
        end = _end_of_last_line(self._file, size)
        if end < size:
            os.ftruncate(self._file, end)
        self._torn = False
        return size - end

    def _fail(self, error: OSError) -> NoReturn:
        raise AgentvError(
            f"Cannot write {self.path}",
            error.strerror or str(error),
            f"All earlier lines are complete. Free disk space or fix the cause, then {self._next_step}",
        ) from error


def _end_of_last_line(file: int, size: int) -> int:
    """Return the offset after the last newline; 0 if there is none."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        os.lseek(file, start, os.SEEK_SET)
        block = os.read(file, end - start)
        found = block.rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
