"""Run a program without a process group, as on Windows."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from agentv.support.processes.process_exit import wait_uncancelled

_GRACE_S = 10.0
"""Time to wait for the output of a program that was stopped."""


class PlainOutput(NamedTuple):
    """The output of a program. Its code is None if it was stopped after the time allowed."""

    stdout: bytes
    stderr: bytes
    code: int | None


async def run_plainly(
    arguments: str | Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None, timeout_s: float
) -> PlainOutput:
    """Run a program until it ends, or until its time is over. A string is run by the shell of the system."""
    process = subprocess.Popen(  # noqa: S603 - the user's own program
        arguments,
        shell=isinstance(arguments, str),
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=dict(env),
    )
    output = asyncio.ensure_future(asyncio.to_thread(process.communicate, stdin))
    try:
        await asyncio.wait([output], timeout=timeout_s)
    finally:
        if timed_out := not output.done():
            _end(process)
            await wait_uncancelled(output, _GRACE_S)
    stdout, stderr = await output
    return PlainOutput(stdout, stderr, None if timed_out else process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started, which would keep its output open."""
    with suppress(OSError):  # the program belongs to Windows
        subprocess.run(  # noqa: S603
            ["taskkill", "/T", "/F", "/PID", str(process.pid)],  # noqa: S607
            capture_output=True,
            check=False,
        )
    process.kill()
