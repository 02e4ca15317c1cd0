"""How far judges' processes are isolated: the entry's setting, what this machine can do, and the level reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.support.processes import sandbox as sandbox_tools
from agentv.support.temp_dirs import temporary_folder

Sandbox = Literal["limits", "preferred", "required"]
"""`limits`: of memory and files. `preferred`: isolated where the machine can. `required`: isolated, or not at all."""

Way = Literal["limits", "landlock", "bubblewrap"]
Megabytes = Annotated[int, Meta(ge=1)]

MAX_FILE_BYTES = 1024 * 1024 * 1024


def refusal_of(sandbox: Sandbox, with_proxy: bool = False) -> str:
    """Why this machine cannot isolate as an entry requires; empty if it can or need not."""
    if sandbox == "required":
        try:
            way_for(sandbox, with_proxy)
        except EvaluatorFailure as failure:
            return str(failure)
    return ""


def way_for(sandbox: Sandbox, with_proxy: bool = False) -> Way:
    """Return how to isolate a process. Raises EvaluatorFailure if the requirement cannot be met."""
    if sandbox == "limits":
        return "limits"
    try:
        return "landlock" if sandbox_tools.way_to_isolate(with_proxy) == "landlock" else "bubblewrap"
    except sandbox_tools.CannotIsolate as error:
        if sandbox == "required":
            raise EvaluatorFailure(f"'sandbox: required' cannot be met here: {error}") from None
        return "limits"


def prefix(way: Way, scratch: str, cwd: str, port: int | None) -> list[str]:
    """Return the arguments to put before a program's own."""
    if way == "limits":
        return []
    return sandbox_tools.launched([scratch], port) if way == "landlock" else sandbox_tools.wrapped([scratch], cwd)


@contextmanager
def scratch_folder(way: Way) -> Iterator[str]:
    """A temporary folder that an isolated process may write to; empty for others, which use the system's."""
    if way == "limits":
        yield ""
    else:
        with temporary_folder("agentv-judge-") as folder:
            yield folder


def limit_process(pid: int, memory_mb: int) -> None:
    """Limit another process, where the system can: memory, the size of a file, no core dumps."""
    import resource  # late: POSIX only

    if not hasattr(resource, "prlimit"):
        return
    data_bytes = memory_mb * 1024 * 1024
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        resource.prlimit(pid, resource.RLIMIT_DATA, (data_bytes, data_bytes))


def with_level(score: Score, sandbox: Sandbox, way: Way, with_proxy: bool = False) -> Score:
    """Add the level that was reached to the details, where an entry asks for more than the default.

    Details that are not an object have no place for it and stay as they are.
    """
    if sandbox == "limits" or not isinstance(score.details, dict | None):
        return score
    level: dict[str, Any] = {"level": "limits"}
    if way != "limits":
        level = {"level": "isolated", "by": way, "network": "proxy" if with_proxy else "none"}
    return msgspec.structs.replace(score, details={**(score.details or {}), "sandbox": level})
