"""Runs a command of the user's in a process group of its own, and leaves nothing of it behind, however it ends."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentv.model.response import TargetFailure

MAX_OUTPUT_BYTES = 16 * 1024 * 1024
GRACE_S = 2.0
"""How long a group that was told to end may take before it is killed."""

_DRAIN_S = 1.0
"""How long output may stay open after the command: only a process that left the group can hold it open."""

_STDERR_BYTES = 64 * 1024
_TAIL_CHARACTERS = 2000


class Ended(NamedTuple):
    """A command that ended by itself with code 0: what it printed."""

    stdout: str
    stderr: str


async def run_command(
    command: str,
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Ended:
    """Runs a shell command. Raises TargetFailure for any other end than code 0 in time and within the limit."""
    transport, output = await _started(command, cwd, env, max_output_bytes)
    try:
        # `wait`, because it leaves the future alone: it is needed again below.
        await asyncio.wait([output.done], timeout=timeout_s)
        timed_out = not output.done.done()
    finally:
        await _end(transport, output)
    if timed_out:
        raise TargetFailure("timeout", f"The command did not end within {timeout_s:g} s{_said(output)}")
    if output.overflowed:
        limit = f"{max_output_bytes / 1024 / 1024:g} MiB"
        raise TargetFailure("process", f"The command printed more than {limit} and was ended")
    code = transport.get_returncode()
    if code:
        raise TargetFailure("process", f"The command {_ending(code)}{_said(output)}")
    return Ended(output.stdout.decode(errors="replace"), output.stderr_text)


class _Output(asyncio.SubprocessProtocol):
    """What a process prints: all of stdout up to the limit, the end of stderr. Futures are set, never cancelled."""

    def __init__(self, max_output_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.overflowed = False
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._limit = max_output_bytes
        self._open_pipes = {1, 2}

    @property
    def stderr_text(self) -> str:
        return self.stderr.decode(errors="replace")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr += data
            del self.stderr[:-_STDERR_BYTES]
        elif len(self.stdout) + len(data) <= self._limit:
            self.stdout += data
        else:
            self.overflowed = True
            _set(self.done)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._open_pipes.discard(fd)
        if not self._open_pipes:
            _set(self.closed)

    def process_exited(self) -> None:
        _set(self.exited)
        _set(self.done)


async def _started(
    command: str, cwd: str, env: Mapping[str, str], max_output_bytes: int
) -> tuple[asyncio.SubprocessTransport, _Output]:
    if not os.path.isdir(cwd):
        raise TargetFailure("process", f"The command cannot be run in {cwd}: there is no such folder")
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_shell(
            lambda: _Output(max_output_bytes),
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The process may be there already: it is ended like any other, so that its children go with it.
        try:
            await _certain(starting, GRACE_S)
        finally:
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                await _end(*starting.result())
        raise
    except OSError as error:
        if error.errno == errno.E2BIG:
            hint = "a text in it is too long for a command line; use {PROMPT_FILE} instead of {PROMPT}"
            raise TargetFailure("process", f"The command cannot be started: {hint}") from None
        raise TargetFailure("process", f"The command cannot be started: {error.strerror or error}") from None
    except ValueError as error:
        raise TargetFailure("process", f"The command cannot be started: {error}; use {{PROMPT_FILE}}") from None


async def _end(transport: asyncio.SubprocessTransport, output: _Output) -> None:
    """Ends what is left of the group: asked first when its leader still runs, killed in any case."""
    pid = transport.get_pid()
    try:
        try:
            if not output.exited.done():
                _signal(pid, signal.SIGTERM)
                await asyncio.wait([output.exited], timeout=GRACE_S)
        finally:
            # Whatever the leader did: a child may outlive it, and a second cancellation may cut the wait short.
            _signal(pid, signal.SIGKILL)
            await _certain(output.exited, GRACE_S)
            await _certain(output.closed, _DRAIN_S)
    finally:
        transport.close()


async def _certain(future: asyncio.Future[Any], timeout_s: float) -> None:
    """Waits, cancelled or not: it is a matter of a moment, and a process would be left behind."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    cancelled: asyncio.CancelledError | None = None
    while not future.done() and (left_s := deadline - loop.time()) > 0:
        try:
            await asyncio.wait([future], timeout=left_s)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # Nobody is left in the group; macOS says so with the second.
        return


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _ending(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _said(output: _Output) -> str:
    """The tail of stderr, or of stdout when there is none, behind a colon."""
    text = output.stderr_text.strip() or bytes(output.stdout[-_STDERR_BYTES:]).decode(errors="replace").strip()
    if len(text) > _TAIL_CHARACTERS:
        text = "…" + text[-_TAIL_CHARACTERS:]
    return f": {text}" if text else ""
