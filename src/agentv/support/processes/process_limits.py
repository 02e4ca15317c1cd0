"""Limits on the memory that a user's program uses and on the files that it writes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

_PERIOD_S = 0.05
_BLOCK_BYTES = 512
_MIB = 1024 * 1024
_SET_LIMITS = 'ulimit -c 0; ulimit -f "$1"; shift; exec "$@"'
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


MAX_PROCESSES = 1000
"""The number of processes that a program may have at once."""


class ProcessLimits(msgspec.Struct, frozen=True):
    """The limits of a program: the memory that each of its processes uses, and the size of a file. No core dumps.

    Memory is what is in use, not what is reserved: JavaScript engines reserve tens of gigabytes and use little of it.
    """

    memory_mb: int
    file_mb: int = 1024

    def command(self, arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> list[str]:
        """Return a command that sets the limits on files and then becomes the program. Raises OSError if it cannot."""
        _check_program(arguments[0], cwd, env)
        return ["/bin/sh", "-c", _SET_LIMITS, "sh", str(self.file_mb * _MIB // _BLOCK_BYTES), *arguments]

    def explanation(self, code: int) -> str:
        """Return the limit that ended a process with this return code; empty if none did."""
        return f" because it wrote a file of more than {self.file_mb} MiB" if code == -signal.SIGXFSZ else ""


def _check_program(program: str, cwd: str, env: Mapping[str, str]) -> None:
    """Raise the error of starting a program directly, which a shell would only print."""
    if os.sep in program:
        path: str | None = os.path.join(cwd, program)
    else:
        path = shutil.which(program, mode=os.F_OK, path=env.get("PATH", os.defpath))
    if path is None or not os.path.exists(path):
        raise FileNotFoundError(program)
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        raise PermissionError(13, "Permission denied")


class FamilyWatch:
    """Calls `exceeded` once a process and its descendants are too many, or one uses too much memory. Linux only."""

    def __init__(
        self, pid: int, exceeded: Callable[[str], None], limit_mb: int | None = None, period_s: float = _PERIOD_S
    ) -> None:
        self._pid = pid
        self._limit_mb = limit_mb
        self._exceeded = exceeded
        self._period_s = period_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(period_s, self._look)

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _look(self) -> None:
        processes = _family(self._pid)
        if len(processes) > MAX_PROCESSES:
            self._exceeded(f"started more than {MAX_PROCESSES} processes")
        elif self._limit_mb and any(_used_bytes(pid) > self._limit_mb * _MIB for pid in processes):
            self._exceeded(f"used more than {self._limit_mb} MiB of memory (the limit, 'memory_mb')")
        else:
            self._timer = self._loop.call_later(self._period_s, self._look)


def _used_bytes(pid: int) -> int:
    """Return the resident memory of a process without shared pages and files; 0 if it has ended."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
        fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    return 0


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for each in found:
        if len(found) > MAX_PROCESSES:
            break
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{each}/task"):
                with suppress(OSError), open(f"/proc/{each}/task/{thread}/children", "rb", buffering=0) as file:
                    found += map(int, file.read().split())
    return found
