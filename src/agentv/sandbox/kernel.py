"""System calls that Python's standard library does not provide.

Like all modules that the launcher imports, it imports as little as possible: every isolated program waits for it.
"""

from __future__ import annotations

import ctypes
import os


class CannotIsolate(Exception):
    """This system cannot isolate a process."""


_loaded: list[ctypes.CDLL] = []


def libc() -> ctypes.CDLL:
    """Return the C library."""
    if not _loaded:
        _loaded.append(ctypes.CDLL(None, use_errno=True))
    return _loaded[0]


def check(result: int, what: str) -> int:
    """Return the result of a system call. Raises CannotIsolate if it failed."""
    if result < 0:
        raise CannotIsolate(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers are passed as 64 bits. Returns -1 if it failed."""
    wide = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    return int(libc().syscall(ctypes.c_long(number), *wide))
