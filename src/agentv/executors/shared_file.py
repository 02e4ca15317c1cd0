"""A small file that all agentv processes of this machine read and write under a lock. Owners in it are processes.

An owner has a fencing number, which is never used again, and a lock that ends with its process, however that ends.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

STALLED_S = 30.0
"""An owner that has not looked at the file for this long, such as a stopped process, counts as ended."""
_TRIES, _TRY_S = 20, 0.002
_PRIVATE = stat.S_IRUSR | stat.S_IWUSR


class SharedState(msgspec.Struct):
    """Base of the contents of a file. It is deleted if everything else is empty."""

    last_number: int = 0


_State = TypeVar("_State", bound=SharedState)


class SharedFile(Generic[_State]):
    """A file in a folder of the user. `number` is that of this process, once it is an owner."""

    def __init__(self, folder: Path, name: str, kind: type[_State]) -> None:
        self._folder = folder
        self._name = name
        self._kind = kind
        self._own: int | None = None
        self.number: int | None = None

    @contextmanager
    def locked(self) -> Iterator[_State]:
        """Lock the file, and write it if it changed. Raises BlockingIOError if it stays locked."""
        path = self._folder / f"{self._name}.json"
        file = self._open(path)
        try:
            self._renew()
            data = os.pread(file, os.fstat(file).st_size, 0)
            state = msgspec.json.decode(data, type=self._kind) if data else self._kind()
            yield state
            new_data = msgspec.json.encode(state)
            if not any(msgspec.structs.astuple(state)[1:]):
                path.unlink(missing_ok=True)
            elif new_data != data:
                os.pwrite(file, new_data, 0)
                os.ftruncate(file, len(new_data))
        finally:
            os.close(file)

    def _renew(self) -> None:
        """Show that this owner has not stalled, unless it counts as ended already."""
        if self._own is not None and os.fstat(self._own).st_nlink:
            os.utime(self._own)
        else:
            self.leave()

    def join(self, state: _State) -> int:
        """Become an owner; return its number."""
        import fcntl  # late: not on all systems

        self.leave()
        self.number = state.last_number = state.last_number + 1
        self._own = os.open(self._owner_path(self.number), os.O_RDWR | os.O_CREAT | os.O_EXCL, _PRIVATE)
        fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self.number

    def leave(self) -> None:
        """End being an owner."""
        if self._own is not None and self.number is not None:
            if os.fstat(self._own).st_nlink:
                self._owner_path(self.number).unlink()
            os.close(self._own)
        self.number = self._own = None

    def is_gone(self, number: int) -> bool:
        """Whether another owner has ended, or has not looked at the file for long. Deletes what is left of it."""
        import fcntl

        path = self._owner_path(number)
        with suppress(FileNotFoundError):
            other = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.time() - os.fstat(other).st_mtime <= STALLED_S:
                    return False
            finally:
                os.close(other)
            path.unlink()
        return True

    def _owner_path(self, number: int) -> Path:
        return self._folder / f"{self._name}.{number}"

    def _open(self, path: Path) -> int:
        import fcntl

        self._folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        for attempt in range(_TRIES):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _PRIVATE)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The last owner deletes the file, perhaps just before we locked it.
                if os.fstat(file).st_nlink:
                    return file
            except BlockingIOError:
                time.sleep(_TRY_S if attempt else 0)
            except BaseException:
                os.close(file)
                raise
            os.close(file)
        raise BlockingIOError(f"{path} is locked")


def state_folder(name: str) -> Path:
    """Return a folder for what agentv remembers between runs: in `XDG_STATE_HOME`, or in the home folder."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base, "agentv", name)
