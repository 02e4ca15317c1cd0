"""Locks on run folders and on other files: only one process at a time may write."""

import os
import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from time import monotonic, sleep

from agentv.errors import UsageError, file_errors
from agentv.runs.record import RESULTS_FILE
from agentv.support.private_files import open_file

LOCK_NAME = ".lock"
LONGEST_WAIT_S, _PAUSE_S = 10.0, 0.02


class FolderLock(AbstractContextManager["FolderLock"]):
    """An exclusive lock on a run folder, released by `close` or when the process ends. Its file holds the pid.

    The writer of the records also locks their file, so that removing the lock file does not allow a second writer. The
    lock `was_abandoned` if its last holder ended without releasing it: it was killed, or it crashed.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._file = -1
        while self._file < 0:
            self._file = self._take()
        self.was_abandoned = os.fstat(self._file).st_size > 0
        os.ftruncate(self._file, 0)
        os.write(self._file, str(os.getpid()).encode())
        if _has_lock(folder / RESULTS_FILE):
            self.close()
            raise _in_use(folder)

    def close(self) -> None:
        """Release the lock. May be called twice."""
        if self._file < 0:
            return
        os.ftruncate(self._file, 0)
        file, self._file = self._file, -1
        if sys.platform == "win32":  # which cannot remove an open file
            os.close(file)
        with suppress(OSError):
            self._path.unlink()
        if sys.platform != "win32":
            os.close(file)

    def __exit__(self, *ended: object) -> None:
        self.close()

    def _take(self) -> int:
        """Lock the file, and return -1 if its last holder removed it in the meantime."""
        with file_errors(f"Cannot write to {self._path.parent}"):
            file = open_file(self._path, os.O_RDWR | os.O_CREAT)
        holder = os.read(file, 32).decode(errors="replace").strip()
        os.lseek(file, 0, os.SEEK_SET)
        try:
            is_free = _try_lock(file) or (_has_ended(holder) and _lock_in_time(file))
        except OSError as error:
            os.close(file)
            self._path.unlink()
            raise _without_locks(self._path.parent, error) from None
        if not is_free:
            os.close(file)
            raise _in_use(self._path.parent, f"Process {holder or 'unknown'}")
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), os.lstat(self._path)):
                return file
        os.close(file)
        return -1


def lock_records(file: int, folder: Path) -> None:
    """Lock the open file of records until it is closed. Raises UsageError if another process has locked it."""
    try:
        is_free = _try_lock(file)
    except OSError as error:
        raise _without_locks(folder, error) from None
    if not is_free:
        raise _in_use(folder)


def wait_for_lock(file: int, path: Path) -> None:
    """Lock an open file until it is closed. Waits for other processes, and raises UsageError after ten seconds."""
    try:
        is_ours = _lock_in_time(file)
    except OSError as error:
        raise UsageError(f"Cannot lock {path}", error.strerror or str(error), "Choose a file on a local disk") from None
    if not is_ours:
        raise UsageError(f"Cannot write {path}", "Another process has locked it", "Stop that process, then retry")


def _lock_in_time(file: int) -> bool:
    """Lock a file, and return False if it is not free within ten seconds."""
    deadline = monotonic() + LONGEST_WAIT_S
    while not _try_lock(file):
        if monotonic() > deadline:
            return False
        sleep(_PAUSE_S)
    return True


def _has_ended(pid: str) -> bool:
    """Whether the holder of a lock has ended. Its children may have the lock until they execute their programs."""
    if not pid.isdecimal() or sys.platform == "win32":
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False


def is_locked(folder: Path) -> bool:
    """Return whether a process is writing to a folder."""
    return _has_lock(folder / LOCK_NAME) or _has_lock(folder / RESULTS_FILE)


def may_be_locked(folder: Path) -> bool:
    """Return whether a process is writing to a folder, without touching the locks of one that has no lock file.

    For callers that look often: `is_locked` takes the locks for a moment, which could stop a run that starts then.
    """
    return (folder / LOCK_NAME).exists() and is_locked(folder)


def _has_lock(path: Path) -> bool:
    try:
        file = open_file(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(file)
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(file)


def _in_use(folder: Path, holder: str = "Another process") -> UsageError:
    hint = "Wait until it ends or stop it, then continue with --resume"
    return UsageError(f"The run folder is in use: {folder}", f"{holder} is writing to it", hint)


def _without_locks(folder: Path, error: OSError) -> UsageError:
    detail = f"Two processes could write to the run at the same time ({error.strerror})"
    return UsageError(
        f"The file system does not support locks: {folder}", detail, "Choose a folder on a local disk with --out"
    )


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        # Locked bytes cannot be read on Windows, so lock one far after the end.
        os.lseek(file, 1 << 40, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        """Lock a file, and return whether it was free. Raises OSError if the file system has no locks."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
