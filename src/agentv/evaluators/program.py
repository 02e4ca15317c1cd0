"""A program of the user's that reads JSON and prints an answer: run with limits, its whole group of processes ended."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import cast

import msgspec

from agentv.environment import SECRET_ENDINGS, child_environment
from agentv.model.score import EvaluatorFailure

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
MAX_STDERR_CHARACTERS = 2000

_DRAIN_S = 1.0
"""How long output may stay open when the group has ended: only a process that left it can hold it open."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is run and where: a list of arguments, or a string for the shell."""

    script: str | list[str]
    cwd: str
    timeout_s: float

    async def run(self, stdin: bytes) -> str:
        """What the program prints. Raises EvaluatorFailure when it ends with an error, too late or with too much."""
        transport, output = await self._started()
        try:
            output.feed(transport, stdin)
            await asyncio.wait([output.done], timeout=self.timeout_s)
            timed_out = not output.done.done()
        finally:
            await _end(transport, output)
        if timed_out:
            message = f"The program took longer than {self.timeout_s:g} s and was ended"
            raise EvaluatorFailure(message + output.error_tail)
        if output.is_too_long:
            raise EvaluatorFailure(
                f"The program printed more than {MAX_OUTPUT_BYTES // 1024 // 1024} MiB and was ended"
            )
        code = transport.get_returncode()
        if code != 0:
            raise EvaluatorFailure(f"The program {_ending(code)}{output.error_tail}")
        return output.stdout.decode("utf-8", "replace")

    async def _started(self) -> tuple[asyncio.SubprocessTransport, _Output]:
        loop = asyncio.get_running_loop()
        arguments = self.script
        if isinstance(arguments, str):
            # A shell is a program like another; not the user's login shell, whose files could bring secrets back.
            arguments = ["/bin/sh", "-c", arguments] if os.name == "posix" else ["cmd", "/c", arguments]
        starting = asyncio.ensure_future(
            loop.subprocess_exec(
                _Output,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self.cwd,
                env=_environment(),
                # A session of its own makes one group of the program and all it starts.
                start_new_session=os.name == "posix",
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # It may be running already, and is then ended like any other.
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                await _end(*starting.result())
            raise
        except (OSError, ValueError) as error:
            raise EvaluatorFailure(self._not_started(error, arguments[0])) from None

    def _not_started(self, error: Exception, name: str) -> str:
        if not os.path.isdir(self.cwd):
            return f"The program cannot be run in '{self.cwd}': there is no such folder"
        if isinstance(error, FileNotFoundError):
            return f"The program '{name}' was not found"
        return f"The program '{name}' cannot be started: {error}"


class _Output(asyncio.SubprocessProtocol):
    """What a process prints: all of its output up to the limit, the end of its errors."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.stdout = bytearray()
        self.is_too_long = False
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._stderr = bytearray()
        self._open_pipes = {1, 2}

    def feed(self, transport: asyncio.SubprocessTransport, stdin: bytes) -> None:
        """Gives the program what it reads, without waiting for it: it may print first, or read nothing at all."""
        pipe = cast("asyncio.WriteTransport | None", transport.get_pipe_transport(0))
        if pipe is not None:
            pipe.write(stdin)
            pipe.write_eof()

    @property
    def error_tail(self) -> str:
        """The end of what went to stderr, to be put behind a message."""
        text = self._stderr.decode("utf-8", "replace").strip()
        if len(text) > MAX_STDERR_CHARACTERS:
            text = "…" + text[1 - MAX_STDERR_CHARACTERS :]
        return f": {text}" if text else ""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr += data
            # A character takes four bytes at most.
            del self._stderr[: -4 * MAX_STDERR_CHARACTERS]
        elif len(self.stdout) + len(data) <= MAX_OUTPUT_BYTES:
            self.stdout += data
        else:
            self.is_too_long = True
            _set(self.done)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._open_pipes.discard(fd)
        if not self._open_pipes:
            _set(self.closed)

    def process_exited(self) -> None:
        _set(self.exited)
        _set(self.done)


async def _end(transport: asyncio.SubprocessTransport, output: _Output) -> None:
    """Ends what is left of the group, what the program started and left behind included, and lets go of the pipes."""
    _end_group(transport.get_pid())
    try:
        await asyncio.wait([output.exited])
        await asyncio.wait([output.closed], timeout=_DRAIN_S)
    finally:
        transport.close()


def _environment() -> dict[str, str]:
    """What a judge's program inherits: no secret, neither by its value nor by a name that secrets have."""
    inherited = child_environment()
    return {name: value for name, value in inherited.items() if not name.upper().endswith(SECRET_ENDINGS)}


def _end_group(pid: int) -> None:
    try:
        if os.name == "posix":
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        # Nobody is left in the group; macOS says so with the second.
        return


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    return f"was ended by signal {-code}{name}"
