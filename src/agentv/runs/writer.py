"""Append complete lines to a file. Written lines survive a kill; an incomplete last line is removed."""

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import NoReturn

from agentv.errors import AgentvError, file_errors, open_files_hint
from agentv.support.private_files import open_file

SYNC_INTERVAL_S = 1.0
"""How much work a power failure can lose. A killed process loses nothing that was written. A thread syncs at this
interval, so that the jobs do not wait for the disk, and notices a file that was deleted."""

Redact = Callable[[bytes], bytes]

_BLOCK = 64 * 1024
_DIGEST_BLOCK = 1024 * 1024
_RESUME = "continue with --resume"
_sync = getattr(os, "fdatasync", os.fsync)


class ResultWriter(AbstractContextManager["ResultWriter"]):
    """Appends lines of JSON to a file, and creates it if necessary. Only one writer may use a file at a time.

    `cut_bytes` is the length of an incomplete last line that was removed, `written_at` the time of the last write on
    the monotonic clock. `next_step` is what to do after a write error, for the message. `lock` locks the open file
    before anything is changed.
    """

    def __init__(
        self,
        path: Path | str,
        redact: Redact | None = None,
        *,
        next_step: str = _RESUME,
        lock: Callable[[int], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self._place = os.path.abspath(path)  # user code may change the working directory
        self._next_step = next_step
        self._redact = redact
        self._failed: Callable[[], object] | None = None
        self._torn = False
        self._end = 0
        self._synced_end = 0
        self.written_at = 0.0
        self._timer: Thread | None = None
        self._closing = Event()
        self._sync_error: OSError | None = None
        self._digest: FileDigest | None = None
        with file_errors(f"Cannot write {self.path}"):
            self._file = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if lock is not None:
                lock(self._file)
            self.cut_bytes = self._cut_torn_line()
        except OSError as error:
            os.close(self._file)
            self._fail(error)
        except AgentvError:
            os.close(self._file)
            raise

    def write(self, line: bytes) -> None:
        """Append one or more lines, each with its newline; with `redact`, only one. Raises AgentvError on failure.

        All lines in the file are complete then: those that were not written as a whole are removed.
        """
        self._append(line if self._redact is None else self._redact(line))

    def write_all(self, lines: list[bytes]) -> None:
        """Append lines with one system call. On failure, all lines in the file are complete."""
        block = b"".join(lines)
        if self._redact is not None and self._redact(block) is not block:  # one of them contains a secret
            block = b"".join(map(self._redact, lines))
        self._append(block)

    def _append(self, line: bytes) -> None:
        try:
            if self._torn:
                self._cut_torn_line()
            count = os.write(self._file, line)
            while count < len(line):
                self._torn = True
                count += os.write(self._file, line[count:])
            self._torn = False
            self._end += len(line)
        except OSError as error:
            self._torn = True
            with suppress(OSError):
                self._cut_torn_line()
            self._fail(error)
        self.written_at = monotonic()
        if self._sync_error is not None:
            self._fail(self._sync_error)
        if self._timer is None:
            self._timer = Thread(target=self._sync_regularly, name="agentv-sync", daemon=True)
            self._timer.start()

    def check(self) -> None:
        """Raise AgentvError if a sync failed, or if the file was deleted or moved."""
        if self._sync_error is not None:
            self._fail(self._sync_error)

    def watch(self, failed: Callable[[], object] | None = None) -> None:
        """Hash the file in the background; see `digest`.

        If a sync fails, or the file was deleted or moved, `failed` is called in another thread; `check` then raises.
        """
        self._digest, self._failed = FileDigest(self._place), failed

    def digest(self) -> str:
        """Return the hash of the file, after `close`."""
        assert self._digest is not None
        return self._digest.value

    def _sync_regularly(self) -> None:
        while not self._closing.wait(SYNC_INTERVAL_S):
            self._sync()
            if self._sync_error is not None:
                if self._failed is not None:
                    self._failed()
                return

    def sync(self) -> None:
        """Flush to disk, so that everything written survives a power failure. Raises AgentvError on failure."""
        self._sync()
        self.check()

    def _sync(self) -> None:
        end = self._end
        try:
            _check_place(self._file, self._place)
            if end != self._synced_end:
                _sync(self._file)
                self._synced_end = end
            if self._digest is not None:
                self._digest.read_to(end)
        except OSError as error:
            self._sync_error = self._sync_error or error

    def close(self) -> None:
        """Sync and close. May be called twice."""
        if self._file < 0:
            return
        self._closing.set()
        if self._timer is not None:
            self._timer.join()
        self._sync()
        os.close(self._file)
        self._file = -1
        self.check()

    def __exit__(self, *ended: object) -> None:
        self.close()

    def _cut_torn_line(self) -> int:
        """Remove everything after the last newline and return its length. If that fails, nothing more is written."""
        size = os.fstat(self._file).st_size
        if (end := _end_of_last_line(self._file, size)) < size:
            os.ftruncate(self._file, end)
        self._torn, self._end = False, end
        return size - end

    def _fail(self, error: OSError) -> NoReturn:
        if isinstance(error, FileNotFoundError):
            detail = "The file was deleted, moved or replaced while it was written"
            raise AgentvError(f"Cannot write {self.path}", detail, f"Restore it, then {self._next_step}") from error
        remedy = open_files_hint(error) or "Free disk space or fix the cause"
        raise AgentvError(
            f"Cannot write {self.path}",
            error.strerror or str(error),
            f"All earlier lines are complete. {remedy}, then {self._next_step}",
        ) from error


class FileDigest:
    """The hash of a file that grows, read in pieces."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._hash = hashlib.blake2b(digest_size=16)
        self._end = 0

    @property
    def value(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()

    def read_to(self, end: int) -> None:
        """Add the bytes up to an offset. Raises OSError."""
        if end <= self._end:
            return
        with open(self._path, "rb", buffering=0) as file:
            file.seek(self._end)
            while self._end < end and (block := file.read(min(_DIGEST_BLOCK, end - self._end))):
                self._hash.update(block)
                self._end += len(block)


def _check_place(file: int, path: str) -> None:
    """Raise FileNotFoundError if an open file is no longer at its path."""
    if not os.path.samestat(os.fstat(file), os.stat(path)):
        raise FileNotFoundError(path)


def incomplete_line(file: int) -> bytes:
    """Return what follows the last newline of an open file; empty if its last line is complete."""
    size = os.fstat(file).st_size
    end = _end_of_last_line(file, size)
    os.lseek(file, end, os.SEEK_SET)
    return os.read(file, size - end)


def _end_of_last_line(file: int, size: int) -> int:
    """Return the offset after the last newline; 0 if there is none."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        os.lseek(file, start, os.SEEK_SET)
        block = os.read(file, end - start)
        if (newline := block.rfind(b"\n")) >= 0:
            return start + newline + 1
        end = start
    return 0
