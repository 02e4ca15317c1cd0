"""Files that are open when a process is forked: their places are shared with it, unless it opens them anew."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_FOLDER = "/proc/self/fd"
_ONCE_ONLY = os.O_CREAT | os.O_EXCL | os.O_TRUNC


class OpenFile(NamedTuple):
    """An open file on disk, how it was opened, and the place in it."""

    descriptor: int
    flags: int
    place: int


def files_on_disk() -> tuple[OpenFile, ...]:
    """Those that this process has open, standard ones aside; none where the system does not list them."""
    found: list[OpenFile] = []
    with suppress(OSError):
        import fcntl  # late: POSIX only

        for descriptor in map(int, os.listdir(_FOLDER)):
            with suppress(OSError):  # the list itself was open while it was read
                if descriptor > 2 and stat.S_ISREG(os.fstat(descriptor).st_mode):
                    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                    found.append(OpenFile(descriptor, flags, os.lseek(descriptor, 0, os.SEEK_CUR)))
    return tuple(found)


def open_anew(files: Iterable[OpenFile]) -> None:
    """Gives this process places of its own, under the same numbers. A file that cannot be opened stays shared."""
    for descriptor, flags, place in files:
        with suppress(OSError):
            own = os.open(f"{_FOLDER}/{descriptor}", flags & ~_ONCE_ONLY)
            os.lseek(own, place, os.SEEK_SET)
            os.dup2(own, descriptor, inheritable=os.get_inheritable(descriptor))
            os.close(own)


def places(files: Iterable[OpenFile]) -> list[int]:
    """Where this process is in them; -1 in one that it closed."""
    return [_place(file.descriptor) for file in files]


def _place(descriptor: int) -> int:
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return -1
