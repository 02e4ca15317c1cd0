"""A small file that all agentv processes of this machine read and write under a lock. Owners in it are processes.

An owner has a fencing number, which is never used again, and a lock that ends with its process, however that ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from agentv.support.private_files import make_folder, open_file

STALLED_S = 30.0
"""An owner that has not looked at the file for this long, such as a stopped process, counts as ended."""
_TRIES, _TRY_S = 20, 0.002

_State = TypeVar("_State", bound=msgspec.Struct)


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
        """Lock the file, and write it if it changed, or delete it if it is empty.

        Raises BlockingIOError if it stays locked.
        """
        path = self._path("json")
        with self._open(path) as file:
            self._renew()
            data = file.read()
            state = msgspec.json.decode(data, type=self._kind) if data else self._kind()
            yield state
            new_data = msgspec.json.encode(state)
            if not any(msgspec.structs.astuple(state)):
                path.unlink(missing_ok=True)
            elif new_data != data:
                file.seek(0)
                file.write(new_data)
                file.truncate()

    def _renew(self) -> None:
        """Show that this owner has not stalled, unless it counts as ended already."""
        if self._own is not None and os.fstat(self._own).st_nlink:
            os.utime(self._own)
        else:
            self.leave()

    def join(self) -> int:
        """Become an owner; return its number."""
        import fcntl  # late: not on all systems

        self.leave()
        self.number = time.time_ns()
        self._own = open_file(self._path(self.number), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self.number

    def leave(self) -> None:
        """End being an owner."""
        if self._own is not None:
            self._path(self.number).unlink(missing_ok=True)
            os.close(self._own)
        self.number = self._own = None

    def is_gone(self, number: int) -> bool:
        """Whether another owner has ended, or has not looked at the file for long. Deletes what is left of it."""
        import fcntl

        path = self._path(number)
        with suppress(FileNotFoundError), FileIO(path, "r+") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.time() - os.fstat(other.fileno()).st_mtime <= STALLED_S:
                    return False
            path.unlink()
        return True

    def _path(self, ending: int | str | None) -> Path:
        return self._folder / f"{self._name}.{ending}"

    def _open(self, path: Path) -> FileIO:
        import fcntl

        make_folder(self._folder)
        for _ in range(_TRIES):
            file = FileIO(open_file(path, os.O_RDWR | os.O_CREAT), "r+")
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The last owner deletes the file, perhaps just before it is locked here.
                if os.fstat(file.fileno()).st_nlink:
                    return file
            file.close()
            time.sleep(_TRY_S)
        raise BlockingIOError(f"{path} is locked")


def state_folder(name: str) -> Path:
    """Return a folder for what agentv remembers between runs: in `XDG_STATE_HOME`, or in the home folder."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base, "agentv", name)
