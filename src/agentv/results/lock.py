"""One writer a folder: a lock that the system releases when its process ends, however it ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from agentv.errors import AgentvError, UsageError

LOCK_NAME = ".lock"


class FolderLock:
    """Taken when made; released by `close` or by the end of the process. The file in the folder names the process."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._file = -1
        while self._file < 0:
            self._file = self._take()
        os.ftruncate(self._file, 0)
        os.write(self._file, str(os.getpid()).encode())

    def close(self) -> None:
        """Lets others in; a second time does nothing."""
        if self._file < 0:
            return
        with suppress(OSError):
            self._path.unlink()
        os.close(self._file)
        self._file = -1

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> int:
        """The locked file, or -1 when it was removed by its last holder in the meantime."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise AgentvError(f"Cannot write to {self._path.parent}", error.strerror or str(error)) from error
        if not _try_lock(file):
            holder = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise UsageError(
                f"The run folder is in use: {self._path.parent}",
                f"Process {holder or 'unknown'} is writing to it",
                "Wait until it ends, or end it; then go on with --resume",
            )
        try:
            if os.path.samestat(os.fstat(file), os.stat(self._path)):
                return file
        except OSError:
            pass
        os.close(file)
        return -1


def is_locked(folder: Path) -> bool:
    """Whether a process is writing to a folder."""
    try:
        file = os.open(folder / LOCK_NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(file)
    finally:
        os.close(file)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        # Locked bytes cannot be read there, so it is one far behind the number of the process.
        os.lseek(file, 1 << 20, os.SEEK_SET)
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
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks: better a run without one than none
        return True
