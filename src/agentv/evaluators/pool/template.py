"""The process that imports a user's file once and forks for those that judge. It runs no judgement itself.

Started by the run with a socket: it is sent its setup, and then a pair of open files for each process it is to fork.
When the run has gone, however it ended, it ends what it forked and itself.
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
from importlib import import_module
from typing import Any, NoReturn

import msgspec

from agentv.evaluators.pool.open_files import OpenFile, files_on_disk, open_anew
from agentv.evaluators.pool.setup import Limits, Setup
from agentv.evaluators.pool.untouched import Untouched
from agentv.evaluators.pool.wire import Frames, frame
from agentv.evaluators.pool.worker import Channel, Worker, is_async
from agentv.support.user_code import FunctionError, load

_CHUNK_BYTES = 64 * 1024


class Template:
    """One user's function, imported, and the processes that were forked from here."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._frames = Frames()
        self._files: deque[int] = deque()
        self._children: set[int] = set()
        self._setup: Setup | None = None
        self._limits: Limits | None = None
        self._function: Any = None
        self._untouched: Untouched | None = None
        self._open: tuple[OpenFile, ...] = ()
        self._woken, self._wake = os.pipe()
        for descriptor in (self._woken, self._wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Does what the run says until it has gone."""
        while True:
            both: list[Any] = [self._control, self._woken]
            ready = select.select(both, [], [])[0]
            if self._woken in ready:
                self._reap()
            if self._control in ready and not self._listen():
                break
        for pid in self._children:
            _kill_group(pid)

    def _listen(self) -> bool:
        data, files, _, _ = socket.recv_fds(self._control, _CHUNK_BYTES, 16)
        self._files.extend(files)
        for message in self._frames.feed(data):
            if message[0] == "setup":
                self._limits = msgspec.convert(message[2], Limits)
                self._begin(msgspec.convert(message[1], Setup), message[3])
            elif message[0] == "import":
                self._import(message[1])
            else:
                self._fork(self._files.popleft(), self._files.popleft())
        return bool(data)

    def _begin(self, setup: Setup, path: list[str]) -> None:
        self._setup = setup
        sys.path[:] = path
        assert self._limits is not None
        try:
            os.chdir(setup.cwd)
            if setup.way == "landlock" and (lacking := _restricted(self._limits.scratch, setup.port)):
                self._say(["failed", f"{setup.name} cannot be isolated: {lacking}"])
                return
            self._function = load(setup.reference, lambda _: setup.path)
        except FunctionError as error:
            self._say(["failed", str(error)])
            return
        except OSError as error:
            self._say(["failed", f"{setup.name} cannot be run in '{setup.cwd}': {error.strerror}"])
            return
        if not callable(self._function):
            self._say(["failed", f"{setup.name} is no function but {type(self._function).__name__}"])
            return
        if is_async(self._function):
            import_module("asyncio").get_event_loop_policy()
        self._still()
        self._say(["ready"])

    def _import(self, names: list[str]) -> None:
        """Modules that a judgement imported on its way: here, so that those after it find them."""
        for name in names:
            with suppress(Exception):
                import_module(name)
        self._still()

    def _still(self) -> None:
        # What is there now is shared with everything forked: the collector, walking over it, would copy it all.
        assert self._setup is not None
        self._open = files_on_disk()
        self._untouched = None if self._setup.fresh else Untouched(self._open)
        gc.collect()
        gc.freeze()

    def _fork(self, channel: int, output: int) -> None:
        assert self._setup is not None
        pid = os.fork()
        if pid == 0:
            self._judge(channel, output)
        self._children.add(pid)
        os.close(channel)
        os.close(output)

    def _judge(self, channel: int, output: int) -> NoReturn:
        """What a forked process does, from its first moment to its last."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._woken, self._wake, *self._files):
                os.close(descriptor)
            self._control.close()
            open_anew(self._open)
            os.dup2(output, 1)
            os.dup2(output, 2)
            random = sys.modules.get("random")
            if random is not None:
                random.seed()  # else every process would draw the same numbers
            assert self._setup is not None and self._limits is not None
            line = Channel(channel)
            Worker(self._setup, self._limits, self._function, self._untouched, line, output).serve()
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, _CHUNK_BYTES)
        while ended := _ended_child():
            pid, status = ended
            self._children.discard(pid)
            self._say(["ended", pid, os.waitstatus_to_exitcode(status)])

    def _say(self, message: Any) -> None:
        with suppress(OSError):  # the run has gone: the next read says so
            self._control.sendall(frame(message))


def _ended_child() -> tuple[int, int] | None:
    """A child that has ended, with everything that it started and left behind; its id is its own until it is reaped."""
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
    """Isolates this process; returns why it cannot be."""
    from agentv.support.processes.sandbox import (  # late: most are not isolated, and all it imports is forked
        CannotIsolate,
        restrict,
    )

    try:
        restrict([scratch], port)
    except CannotIsolate as error:
        return str(error)
    return ""


def main() -> None:
    """The whole life of the process; its socket is the last of its arguments."""
    control = int(sys.argv[-1])
    sys.argv[:] = [""]
    Template(socket.socket(fileno=control)).serve()
