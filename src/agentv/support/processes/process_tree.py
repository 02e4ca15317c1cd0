"""Finds and ends everything that a process started, also what left its group. Linux only: elsewhere nothing is found.

A process is of the family when it descends from the one that was started, or when its environment has the mark that was
given to that one: a child that made a session of its own, and whose parent is gone, has nothing else left of its
origin. One that did all of that and cleared its environment is not found.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import NamedTuple

MARK = "AGENTV_PROCESS"
_ROUNDS = 20


class Member(NamedTuple):
    """A process. Its id alone could be another's by the time that it is looked at again."""

    pid: int
    started: bytes


def family(pid: int | None, mark: str) -> set[Member]:
    """The processes that descend from one, itself not among them, and those whose mark begins with `mark`."""
    parents: dict[int, tuple[int, Member]] = {}
    found: set[Member] = set()
    needle = b"\0" + f"{MARK}={mark}".encode()
    for each in _processes():
        stat = _stat(each)
        if stat is None:
            continue
        parent, member = stat
        parents[each] = (parent, member)
        if each not in (pid, os.getpid()) and needle in b"\0" + _read(f"/proc/{each}/environ"):
            found.add(member)
    if pid is not None:
        found |= {member for each, (_, member) in parents.items() if _descends(each, pid, parents)}
    return found


def end_family(members: set[Member], mark: str) -> None:
    """Kills processes, and what carries the mark until nothing does: they may start others in the meantime."""
    for _ in range(_ROUNDS):
        for member in members:
            stat = _stat(member.pid)
            if stat is not None and stat[1] == member:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(member.pid, signal.SIGKILL)
        members = family(None, mark)
        if not members:
            return


def _processes() -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return []


def _stat(pid: int) -> tuple[int, Member] | None:
    """The parent of a process and what makes it itself; None for one that has ended, whether it was reaped or not."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), Member(pid, fields[19])


def _descends(pid: int, ancestor: int, parents: dict[int, tuple[int, Member]]) -> bool:
    seen = set()
    while pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid][0]
        if pid == ancestor:
            return True
    return False


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""  # it has ended, or it is another user's
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
