"""Find and end all descendants of a process, even if they left its group or this process was killed. Linux only.

A process belongs to the family of another if it descends from it, or if its environment contains the mark that the
other was started with: that is the only trace of a child in its own session whose parent has ended. The watchdog, a
small process that outlives this one, reads a pipe that only this process writes to. If the pipe closes without a
goodbye, this process was killed, and the watchdog ends the processes it had started.
"""

import atexit
import os
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

from agentv.support.processes.process_memory import MARK

Family = set[tuple[int, bytes]]
"""Process ids with start times, because ids can be reused."""

_ROUNDS = 20
_REMOVE, _REMOVED, _END, _GOODBYE = b"remove", b"removed", b"end", b"done"
_numbers = count(1)


def family(pid: int | None, mark: str) -> Family:
    """Return the descendants of a process, and the processes whose mark starts with `mark`."""
    processes = {} if pid is None else _processes()
    needle = b"\0" + f"{MARK}={mark}".encode()

    def is_marked(member: int) -> bool:
        return member not in (pid, os.getpid()) and needle in b"\0" + _read(f"/proc/{member}/environ")

    matches = set(filter(is_marked, processes or _ids()))
    descendants = set() if pid is None else _descendants(pid, processes)
    if pid is None:  # most processes do not match; an id may be reused before the start time is read
        processes = {member: process for member in matches if (process := _process(member)) and is_marked(member)}
    return {(member, processes[member][1]) for member in matches | descendants if member in processes}


def _descendants(pid: int, processes: dict[int, tuple[int, bytes]]) -> set[int]:
    descendants = {pid}
    while more := {child for child, (parent, _) in processes.items() if parent in descendants} - descendants:
        descendants |= more
    return descendants - {pid}


def end_family(members: Family, mark: str) -> None:
    """Kill processes, then all processes with the mark until there are none: they may start others meanwhile."""
    for _ in range(_ROUNDS):
        running = _processes() if members else {}
        for pid, started in members:
            if pid in running and running[pid][1] == started:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if not (members := family(None, mark)):
            return


def _processes() -> dict[int, tuple[int, bytes]]:
    """Return the parent and the start time of every running process."""
    return {pid: process for pid in _ids() if (process := _process(pid))}


def _ids() -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return []


def _process(pid: int) -> tuple[int, bytes] | None:
    """Return the parent and the start time of a process, or None if it has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    is_running = len(fields) >= 20 and fields[0] not in (b"Z", b"X")
    return (int(fields[1]), fields[19]) if is_running else None


def _read(path: str) -> bytes:
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # the process has ended, or is another user's
        return file.read()
    return b""


class _Watchdog:
    """The watchdog of this process. A forked process needs its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.name = secrets.token_hex(8)
        self._pipe = _start(self.name) if sys.platform.startswith("linux") else None
        atexit.register(self._say_goodbye)

    def _say_goodbye(self) -> None:
        """End the processes that programs left behind, such as daemons, and the watchdog."""
        if self.pid == os.getpid():
            end_family(family(None, f"{self.name}."), f"{self.name}.")
            self.send(_GOODBYE)

    def send(self, word: bytes, argument: str = "") -> None:
        if self._pipe is not None and self.pid == os.getpid():
            with suppress(OSError):
                os.write(self._pipe, word + b" " + os.fsencode(argument) + b"\n")


_current: _Watchdog | None = None


def _watchdog() -> _Watchdog:
    global _current
    if _current is None or _current.pid != os.getpid():
        _current = _Watchdog()
    return _current


def new_mark() -> str:
    """Return the mark for a new process. The first call starts the watchdog."""
    return f"{_watchdog().name}.{next(_numbers)}."


def end_after_death() -> None:
    """Register the descendants of this process to be ended in case it is killed.

    They need no mark: a process that changes its title overwrites its environment.
    """
    if sys.platform.startswith("linux"):
        processes = _processes()
        for pid in _descendants(os.getpid(), processes):
            _watchdog().send(_END, f"{pid} {processes[pid][1].decode()}")


def remove_after_death(folder: str) -> None:
    """Register a temporary folder for removal in case this process is killed."""
    _watchdog().send(_REMOVE, folder)


def forget_folder(folder: str) -> None:
    """Unregister a removed folder, so that the watchdog's list does not grow."""
    if _current is not None:
        _current.send(_REMOVED, folder)


def _start(name: str) -> int | None:
    """Start the watchdog, detached from this process, and return the write end of its pipe."""
    reading, writing = os.pipe()
    # Isolated and without `site`: it starts in a few milliseconds and cannot import project files.
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r}); "
    code += "from agentv.support.processes.watchdog import watch; watch(sys.argv[1])"
    try:
        subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", "-c", code, name],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
            check=False,
        )
    except OSError:
        os.close(writing)
        return None
    finally:
        os.close(reading)
    return writing


def watch(name: str) -> None:
    """Run the watchdog: wait for the end of the pipe on stdin, and clean up unless there was a goodbye."""
    if os.fork():
        os._exit(0)
    folders, members = set[bytes](), set[tuple[int, bytes]]()
    word, rest = b"", b""
    while piece := os.read(0, 1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            word, _, argument = line.partition(b" ")
            if word == _REMOVE:
                folders.add(argument)
            elif word == _REMOVED:
                folders.discard(argument)
            elif word == _END:
                pid, _, started = argument.partition(b" ")
                members.add((int(pid), started))
    if word == _GOODBYE:
        return
    end_family(members, f"{name}.")
    import shutil  # late: rarely needed

    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
