"""Limits on the processes, the memory and the files of a user's program."""

import asyncio
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

_PERIOD_S = 0.05
_DISK_PERIOD_S = 0.5
_BLOCK_BYTES = 512
_MIB = 1024 * 1024
_SET_LIMITS = 'ulimit -c 0; ulimit -f "$1"; shift; exec "$@"'
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


MAX_PROCESSES = 1000
"""The number of processes that a program may have at once."""


class ProcessLimits(msgspec.Struct, frozen=True):
    """The limits of a program: the memory of all its processes, and the size of a file. No core dumps.

    Memory is what is in use, not what is reserved: JavaScript engines reserve tens of gigabytes and use little of it.
    `disk_mb` limits how much `folders` may grow, together with deleted files that the program keeps open.
    """

    memory_mb: int
    file_mb: int = 1024
    disk_mb: int = 2048
    folders: tuple[str, ...] = ()

    def command(self, arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> list[str]:
        """Return a command that sets the limits on files and then becomes the program. Raises OSError if it cannot."""
        _check_program(arguments[0], cwd, env)
        return ["/bin/sh", "-c", _SET_LIMITS, "sh", str(self.file_mb * _MIB // _BLOCK_BYTES), *arguments]

    def explanation(self, code: int) -> str:
        """Return the limit that ended a process with this return code; empty if none did."""
        if sys.platform == "win32":
            return ""
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
    """Calls `exceeded` once a process and its descendants exceed a limit. Linux only.

    Processes and memory are checked often. Folders are measured in a thread, which takes at most 5 % of a core.
    """

    def __init__(
        self, pid: int, exceeded: Callable[[str], None], limits: ProcessLimits | None = None,
        period_s: float = _PERIOD_S,
    ) -> None:  # fmt: skip
        self._pid = pid
        self._limits = limits
        self._exceeded = exceeded
        self._period_s = period_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(period_s, self._look)
        self._disk: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._disk is not None:
            self._disk.cancel()

    def _look(self) -> None:
        processes = _family(self._pid)
        if excess := _excess(processes, self._limits):
            self._exceeded(excess)
            return
        if self._disk is None and self._limits is not None and self._limits.folders:
            self._disk = self._loop.create_task(self._watch_disk(self._limits))
        self._timer = self._loop.call_later(self._period_s, self._look)

    async def _watch_disk(self, limits: ProcessLimits) -> None:
        start: int | None = None
        while True:
            began = time.monotonic()
            size = await asyncio.to_thread(_stored_bytes, limits.folders, self._pid)
            start = size if start is None else start
            if size - start > limits.disk_mb * _MIB:
                self._exceeded(f"wrote more than {limits.disk_mb} MiB (the limit, 'disk_mb')")
                return
            await asyncio.sleep(max(_DISK_PERIOD_S, 20 * (time.monotonic() - began)))


def _excess(processes: list[int], limits: ProcessLimits | None) -> str:
    """Return how processes exceed their limits; empty if they do not."""
    if len(processes) > MAX_PROCESSES:
        return f"started more than {MAX_PROCESSES} processes"
    limit = 0 if limits is None else limits.memory_mb * _MIB
    # Pages that processes share are counted once, which takes longer. Most programs are far below the limit.
    if limit and sum(map(_resident_bytes, processes)) > limit and sum(map(_used_bytes, processes)) > limit:
        return f"used more than {limit // _MIB} MiB of memory (the limit, 'memory_mb')"
    return ""


def _resident_bytes(pid: int) -> int:
    return _resident_and_shared(pid)[0]


def _used_bytes(pid: int) -> int:
    """Return the memory of a process without files, with its part of shared pages; 0 if it has ended."""
    with suppress(OSError, ValueError, KeyError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        fields = dict(line.split()[:2] for line in file if line.startswith("Pss_"))
        return (int(fields["Pss_Anon:"]) + int(fields["Pss_Shmem:"])) * 1024
    resident, shared = _resident_and_shared(pid)  # an old kernel, or a process that does not let others inspect it
    return resident - shared


def _resident_and_shared(pid: int) -> tuple[int, int]:
    """Return the resident memory of a process, and how much of it is files or shared; zeros if it has ended."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
        _, resident, shared, *_ = map(int, file.read().split())
        return resident * _PAGE_BYTES, shared * _PAGE_BYTES
    return 0, 0


def _stored_bytes(folders: Sequence[str], pid: int) -> int:
    """Return the size of all files in folders, and of deleted files and files in memory that a process keeps open."""
    if sys.platform == "win32":
        return 0
    sizes: dict[tuple[int, int], int] = {}
    pending = list(folders)
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    sizes[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    for process in _family(pid):
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    status = os.stat(f"/proc/{process}/fd/{descriptor}")
                    if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK_BYTES
    return sum(sizes.values())


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    pids = [pid]
    for member in pids:
        if len(pids) > MAX_PROCESSES:
            break
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{member}/task"):
                with suppress(OSError), open(f"/proc/{member}/task/{thread}/children", "rb", buffering=0) as file:
                    pids += map(int, file.read().split())
    return pids
