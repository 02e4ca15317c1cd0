"""A small process that outlives this one: when this one is killed, it ends what this one had started.

It reads a pipe that only this process writes to. The end of the pipe without a good-bye means that nobody was left to
clean up. Linux only.
"""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

from agentv.support.processes.process_tree import end_family, family

_REMOVE, _REMOVED, _GOODBYE = b"remove", b"removed", b"done"
_numbers = count(1)


class _Watched:
    """What this process has told its watchdog. A process that was forked from it begins anew."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.name = secrets.token_hex(8)
        self.pipe = _start(self.name)


_watched: _Watched | None = None


def new_mark() -> str:
    """The mark of a process that is about to be started. The first one starts the watchdog."""
    return f"{_this_process().name}.{next(_numbers)}."


def remove_after_death(folder: str) -> None:
    """A temporary folder that goes when this process is killed; whoever made it removes it otherwise."""
    _tell(_this_process(), _REMOVE, folder)


def is_removed(folder: str) -> None:
    """One of these folders is gone: what the watchdog has in mind does not grow with the calls of a run."""
    if _watched is not None and _watched.pid == os.getpid():
        _tell(_watched, _REMOVED, folder)


def _tell(watched: _Watched, word: bytes, folder: str) -> None:
    if watched.pipe is not None:
        with suppress(OSError):
            os.write(watched.pipe, word + b" " + os.fsencode(folder) + b"\n")


def _this_process() -> _Watched:
    global _watched
    if _watched is None or _watched.pid != os.getpid():
        _watched = _Watched()
        atexit.register(_say_goodbye, _watched)
    return _watched


def _say_goodbye(watched: _Watched) -> None:
    if watched.pipe is not None and watched.pid == os.getpid():
        with suppress(OSError):
            os.write(watched.pipe, _GOODBYE + b"\n")


def _start(name: str) -> int | None:
    """Starts the watchdog, which is nobody's child, and returns the end of the pipe to write to."""
    if not sys.platform.startswith("linux"):
        return None
    reading, writing = os.pipe()
    try:
        # Isolated and without `site`: it starts in a few milliseconds and cannot import a file of the project's.
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r}); "
        code += "from agentv.support.processes.watchdog import watch; watch(sys.argv[1])"
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
    """The watchdog's own work: waits for the end of the pipe on stdin, and cleans up unless it was told not to."""
    if os.fork():
        os._exit(0)
    folders: set[bytes] = set()
    word, rest = b"", b""
    while piece := os.read(0, 1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            word, _, folder = line.partition(b" ")
            if word == _REMOVE:
                folders.add(folder)
            elif word == _REMOVED:
                folders.discard(folder)
    if word == _GOODBYE:
        return
    end_family(family(None, f"{name}."), f"{name}.")
    import shutil  # late: hardly ever needed

    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
