"""Runs a command of a target's; what goes wrong with it is the target's failure."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from agentv.contents import short
from agentv.model.response import TargetFailure
from agentv.processes import MAX_OUTPUT_BYTES, Ended, ProcessFailure, ending_of, run_process

__all__ = ["MAX_OUTPUT_BYTES", "Ended", "run_command"]

_NOT_FOUND = ending_of(127)


async def run_command(
    command: str | Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float,
    stdin: bytes | None = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Ended:
    """Runs a shell command, or a list of arguments. Raises TargetFailure for any other end than code 0 in time."""
    try:
        return await run_process(
            command, cwd=cwd, env=env, timeout_s=timeout_s, stdin=stdin, max_output_bytes=max_output_bytes
        )
    except ProcessFailure as failure:
        raise TargetFailure("timeout" if failure.ending == "timeout" else "process", _message(failure, cwd)) from None


def _message(failure: ProcessFailure, cwd: str) -> str:
    cause = failure.cause
    if isinstance(cause, OSError) and cause.errno == errno.E2BIG:
        hint = "a text in it is too long for a command line; use {PROMPT_FILE} instead of {PROMPT}"
        return f"The command cannot be started: {hint}"
    if isinstance(cause, ValueError):
        return f"The command cannot be started: {cause}; use {{PROMPT_FILE}}"
    # What a shell does not find is mostly looked for in another folder than the user thinks.
    return failure.message.replace(_NOT_FOUND, f"{_NOT_FOUND} in {short(cwd)}", 1)
