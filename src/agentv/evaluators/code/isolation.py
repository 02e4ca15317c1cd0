"""How far judges' processes are isolated: what an entry asks for, what this machine has, what is written down of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import msgspec

from agentv.evaluators.pool.setup import Way
from agentv.model.evaluator import EvaluatorFailure, Score

Sandbox = Literal["limits", "preferred", "required"]
"""`limits`: of memory and files. `preferred`: isolated where the machine can. `required`: isolated, or not at all."""

MAX_FILE_BYTES = 1024 * 1024 * 1024
_MIB = 1024 * 1024


def refusal_of(sandbox: Sandbox, with_proxy: bool = False) -> str:
    """Why this machine cannot isolate as an entry requires; nothing when it can, or when that is not required."""
    if sandbox != "required":
        return ""
    from agentv.support.processes.sandbox import CannotIsolate, way_to_isolate  # late: few entries need it

    try:
        way_to_isolate(with_proxy)
    except CannotIsolate as error:
        return f"'sandbox: required' cannot be met here: {error}"
    return ""


def way_for(sandbox: Sandbox, with_proxy: bool = False) -> Way:
    """How a process is isolated. Raises EvaluatorFailure below what is required."""
    if sandbox == "limits":
        return "limits"
    from agentv.support.processes.sandbox import CannotIsolate, way_to_isolate  # late: as above

    try:
        return "landlock" if way_to_isolate(with_proxy) == "landlock" else "bubblewrap"
    except CannotIsolate:
        if sandbox == "required":
            raise EvaluatorFailure(refusal_of(sandbox, with_proxy)) from None
        return "limits"


def prefix(way: Way, scratch: str, cwd: str, port: int | None) -> list[str]:
    """What stands before a program's arguments."""
    if way == "limits":
        return []
    from agentv.support.processes.sandbox import launched, wrapped  # late: as above

    if way == "landlock":
        return launched([scratch], port)
    return wrapped([scratch], cwd)


@contextmanager
def scratch_folder(way: Way) -> Iterator[str]:
    """The folder in which an isolated process may write; gone with it. Others use the system's own: an empty name."""
    if way == "limits":
        yield ""
        return
    from agentv.support.temp_dirs import temporary_folder  # late: as above

    with temporary_folder("agentv-judge-") as folder:
        yield folder


def limit_process(pid: int, memory_mb: int) -> None:
    """Limits another process from outside, where the system can: memory, the size of a file, no core dumps."""
    import resource  # late: POSIX only

    if not hasattr(resource, "prlimit"):
        return
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        resource.prlimit(pid, resource.RLIMIT_DATA, (memory_mb * _MIB, memory_mb * _MIB))


def with_level(score: Score, sandbox: Sandbox, way: Way, with_proxy: bool = False) -> Score:
    """The score with the level that was reached in its details, where an entry asks for more than the default.

    Details that are no object have no place for it and stay as they are.
    """
    if sandbox == "limits" or not isinstance(score.details, dict | None):
        return score
    level: dict[str, Any] = {"level": "limits"}
    if way != "limits":
        level = {"level": "isolated", "by": way, "network": "proxy" if with_proxy else "none"}
    return msgspec.structs.replace(score, details={**(score.details or {}), "sandbox": level})
