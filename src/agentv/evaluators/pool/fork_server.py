"""The process that imports a user's file once and forks the processes that judge. It runs no judgement itself.

The run starts it with a socket and sends the setup, then a pair of open files for each process to fork. When the run
has ended, however it ended, this process ends what it forked and itself.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from agentv.evaluators.pool.protocol import MessageBuffer, Setup, WorkerLimits, frame
from agentv.evaluators.pool.worker import Channel, JudgeWorker, is_async
from agentv.support.user_code import FunctionError, load

_CHUNK_BYTES = 64 * 1024


class ForkServer:
    """One imported function and the processes forked from here."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._buffer = MessageBuffer()
        self._files: deque[int] = deque()
        self._children: set[int] = set()
        self._work: tuple[Setup, WorkerLimits, Any]
        self._woken, self._wake = os.pipe()
        for descriptor in (self._woken, self._wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Follow the run's messages until it has ended."""
        is_connected = True
        while is_connected:
            both: list[Any] = [self._control, self._woken]
            ready = select.select(both, [], [])[0]
            if self._woken in ready:
                self._reap()
            if self._control in ready:
                is_connected = self._receive()
        for pid in self._children:
            _kill_group(pid)

    def _receive(self) -> bool:
        data, files, _, _ = socket.recv_fds(self._control, _CHUNK_BYTES, 16)
        self._files.extend(files)
        for message in self._buffer.feed(data):
            if message[0] == "setup":
                sys.path[:] = message[3]
                failure = self._import(msgspec.convert(message[1], Setup), msgspec.convert(message[2], WorkerLimits))
                self._send(["failed", failure] if failure else ["ready"])
            else:
                self._fork(self._files.popleft(), self._files.popleft())
        return bool(data)

    def _import(self, setup: Setup, limits: WorkerLimits) -> str:
        """Import the user's function; return why it cannot be used."""
        try:
            os.chdir(setup.cwd)
            if setup.way == "landlock" and (lacking := _restricted(limits.scratch, setup.port)):
                return f"{setup.reference} cannot be isolated: {lacking}"
            function = load(setup.reference, lambda _: setup.path)
        except FunctionError as error:
            return str(error)
        except OSError as error:
            return f"{setup.reference} cannot be run in '{setup.cwd}': {error.strerror}"
        if not callable(function):
            return f"{setup.reference} is not a function but {type(function).__name__}"
        if is_async(function):
            import asyncio  # late: before the fork, so that each process has it; plain functions do not need it

            asyncio.get_event_loop_policy()
        self._work = setup, limits, function
        # Everything loaded now is shared with the forked processes; a collector walking over it would copy it all.
        gc.collect()
        gc.freeze()
        return ""

    def _fork(self, channel: int, output: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._judge(channel, output)
        self._children.add(pid)
        os.close(channel)
        os.close(output)

    def _judge(self, channel: int, output: int) -> NoReturn:
        """The whole life of a forked process."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._woken, self._wake, *self._files):
                os.close(descriptor)
            self._control.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            random = sys.modules.get("random")
            if random is not None:
                random.seed()  # otherwise every process would draw the same numbers
            JudgeWorker(*self._work, Channel(channel), output).serve()
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, _CHUNK_BYTES)
        while ended := _ended_child():
            pid, status = ended
            self._children.discard(pid)
            self._send(["ended", pid, os.waitstatus_to_exitcode(status)])

    def _send(self, message: Any) -> None:
        with suppress(OSError):  # the run has ended; the next read notices
            self._control.sendall(frame(message))


def _ended_child() -> tuple[int, int] | None:
    """A child that has ended. What it left running is killed first, while its id cannot be reused."""
    try:
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            pid, status = os.waitpid(-1, os.WNOHANG)
            _kill_group(pid)
            return (pid, status) if pid else None
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        _kill_group(ended.si_pid)
        return os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return None


def _kill_group(pid: int) -> None:
    if pid:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _restricted(scratch: str, port: int | None) -> str:
    """Isolate this process; return why that is impossible."""
    from agentv.support.processes import sandbox  # late: rarely needed, and every import is paid for by each fork

    try:
        sandbox.restrict([scratch], port)
    except sandbox.CannotIsolate as error:
        return str(error)
    return ""


def main() -> None:
    """Run the fork server; the number of its socket is the last argument."""
    control = int(sys.argv[-1])
    sys.argv[:] = [""]
    ForkServer(socket.socket(fileno=control)).serve()
