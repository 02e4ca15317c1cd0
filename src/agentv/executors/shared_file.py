"""A small file that all agentv processes of this machine read and write under a lock. Owners in it are processes.

An owner has a fencing number, which is never used again, and a lock that ends with its process, however that ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

STALLED_S = 30.0
"""An owner that has not looked at the file for this long, such as a stopped process, counts as ended."""
_TRIES, _TRY_S = 20, 0.002


class SharedState(msgspec.Struct):
    """Base of the contents of a file."""

    last_number: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the file can be deleted."""
        return False


_State = TypeVar("_State", bound=SharedState)


class SharedFile(Generic[_State]):
    """A file in a folder of the user. `number` is that of this process, once it is an owner."""

    def __init__(self, folder: Path, name: str, kind: type[_State]) -> None:
        self._folder = folder
        self._path = folder / f"{name}.json"
        self._name = name
        self._kind = kind
        self._own: int | None = None
        self.number: int | None = None

    @contextmanager
    def locked(self) -> Iterator[_State]:
        """Lock the file, and write it if it changed. Raises BlockingIOError if it stays locked."""
        file = self._open()
        try:
            data = os.pread(file, 2**20, 0)
            state = msgspec.json.decode(data, type=self._kind) if data else self._kind()
            yield state
            written = msgspec.json.encode(state)
            if state.is_empty:
                self._path.unlink(missing_ok=True)
            elif written != data:
                os.pwrite(file, written, 0)
                os.ftruncate(file, len(written))
        finally:
            os.close(file)

    def join(self, state: _State) -> int:
        """Become an owner; return its number."""
        import fcntl  # late: not on all systems

        state.last_number += 1
        if self._own is not None:
            os.close(self._own)
        self.number = number = state.last_number
        self._own = os.open(self._owner_path(number), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return number

    def touch(self) -> None:
        """Show that this owner has not stalled."""
        assert self._own is not None
        os.utime(self._own)

    def leave(self) -> None:
        """End being an owner."""
        if self.number is not None:
            self.forget(self.number)
        if self._own is not None:
            os.close(self._own)
        self.number = self._own = None

    def is_gone(self, number: int) -> bool:
        """Whether another owner has ended, or has not looked at the file for long."""
        import fcntl

        try:
            other = os.open(self._owner_path(number), os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return time.time() - os.fstat(other).st_mtime > STALLED_S
        finally:
            os.close(other)

    def forget(self, number: int) -> None:
        """Delete what is left of an owner that has ended."""
        with suppress(OSError):
            self._owner_path(number).unlink()

    def _owner_path(self, number: int) -> Path:
        return self._folder / f"{self._name}.{number}"

    def _open(self) -> int:
        import fcntl

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for attempt in range(_TRIES):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
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
        raise BlockingIOError(f"{self._path} is locked")


def state_folder(name: str) -> Path:
    """Return a folder for what agentv remembers between runs: in `XDG_STATE_HOME`, or in the home folder."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base, "agentv", name)
