"""The process that imports a user's file once, and the processes forked from it that call the user's function.

The run starts the fork server with a socket and sends the setup, then a pair of open files for each process to fork.
When the run ends for any reason, the fork server ends all forked processes and itself.
"""

from __future__ import annotations

import contextvars
import gc
import inspect
import linecache
import os
import pickle
import select
import signal
import socket
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from agentv.evaluators.code.inline_python import with_two_arguments
from agentv.evaluators.code.judge_io import (
    LENGTH_BYTES,
    MessageBuffer,
    Setup,
    WorkerLimits,
    frame,
    length_of,
    promptfoo_result,
    score_of,
)
from agentv.evaluators.code.payload import program_payload
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.message import Message, message_to_data
from agentv.model.response import Response
from agentv.model.result import ExecutionMetrics, TraceSummary
from agentv.support.user_code import FunctionError, describe, load

if TYPE_CHECKING:
    import asyncio

MAX_RESULT_BYTES = 4 * 1024 * 1024

_MIB = 1024 * 1024
_MOST_FRAMES = 5

_decode = msgspec.json.Decoder().decode


class Channel:
    """The socket to the run, one whole message at a time."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._reader = self._socket.makefile("rb", buffering=64 * 1024)
        self._judgements: deque[bytes] = deque()

    def receive(self) -> bytes | None:
        """Return the next message; None when the run has ended."""
        return self._judgements.popleft() if self._judgements else self._read()

    def _read(self) -> bytes | None:
        head = self._reader.read(LENGTH_BYTES)
        return bytes(self._reader.read(length_of(head))) if len(head) == LENGTH_BYTES else None

    def send(self, message: Any) -> None:
        """Send a message."""
        self._socket.sendall(frame(message))

    def request(self, message: Any) -> Any:
        """Send a request to the run and return its response. The run is trusted, so that may be any object."""
        self.send(message)
        body = self._read()
        # The run may have queued the next judgements before it received the request.
        while body is not None and not body.startswith(pickle.PROTO):
            self._judgements.append(body)
            body = self._read()
        if body is None:
            os._exit(0)
        response = pickle.loads(body)  # noqa: S301 - from the run itself
        if isinstance(response, Exception):
            raise response
        return response


class Context:
    """The argument of a judge function. Its attributes are the fields of `payload.payload`.

    `trace_summary` and `execution_metrics` are structs or None; the other attributes are plain data.
    """

    def __init__(self, payload: dict[str, Any], channel: Channel) -> None:
        self.__dict__.update(payload)
        self._channel = channel
        for name, kind in (("trace_summary", TraceSummary), ("execution_metrics", ExecutionMetrics)):
            if payload[name] is not None:
                setattr(self, name, msgspec.convert(payload[name], kind))

    @property
    def case(self) -> Any:
        """The whole case, fetched from the run on access."""
        return self._channel.request(["case"])

    async def ask(self, target: str | None, messages: Any) -> Response:
        """Call a target of the run, with the run's limits, retries and records."""
        entries = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        data = [message_to_data(message) if isinstance(message, Message) else message for message in entries]
        response: Response = self._channel.request(["ask", target, data])
        return response


class JudgeWorker(msgspec.Struct):
    """One forked process from its first judgement to its last."""

    _setup: Setup
    _limits: WorkerLimits
    _function: Callable[..., Any]
    _channel: Channel
    _output: int
    _loop: asyncio.AbstractEventLoop | None = None

    def serve(self) -> None:
        """Judge until the run ends or the maximum number of judgements is reached."""
        self._limit()
        self._channel.send(["hello", os.getpid()])
        if self._limits.scratch:
            os.environ["TMPDIR"] = os.path.join(self._limits.scratch, str(os.getpid()))
            os.mkdir(os.environ["TMPDIR"], 0o700)
        for countdown in reversed(range(self._limits.judgements)):
            if (body := self._channel.receive()) is None:
                return
            payload, variables = _decode(body)
            os.environ.update(variables)
            reply = self.judge(payload)
            for name in variables:
                os.environ.pop(name, None)
            self._channel.send([*reply, countdown == 0])
            if os.fstat(self._output).st_size:
                os.ftruncate(self._output, 0)

    def _limit(self) -> None:
        """Limit memory beyond what the process has now, and the size of files; no core dumps."""
        import resource  # late: not on Windows

        try:
            with open("/proc/self/statm", "rb") as file:
                data_bytes = int(file.read().split()[5]) * resource.getpagesize()
        except (OSError, IndexError):
            data_bytes = 0
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for which, most in (
            (resource.RLIMIT_FSIZE, self._limits.file_bytes),
            (resource.RLIMIT_DATA, data_bytes + self._setup.memory_mb * _MIB),
        ):
            hard = resource.getrlimit(which)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (most, most))

    def judge(self, payload: dict[str, Any]) -> list[Any]:
        """Return `["score", …]` or `["failure", …]`."""
        name = self._setup.reference
        try:
            data = msgspec.Raw(msgspec.json.encode(self._score(payload)))
        except EvaluatorFailure as failure:
            return ["failure", str(failure)]
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            return ["failure", f"{name} returned a value that cannot be encoded as JSON: {error}"]
        if len(bytes(data)) > MAX_RESULT_BYTES:
            return ["failure", f"{name} returned more than {MAX_RESULT_BYTES // _MIB} MiB"]
        return ["score", data]

    def _score(self, payload: dict[str, Any]) -> Score:
        name = self._setup.reference
        returned = self._call(self._argument(payload))
        return score_of(name, promptfoo_result(returned, name) if self._setup.given == "promptfoo" else returned)

    def _argument(self, payload: dict[str, Any]) -> Any:
        if self._setup.given == "agentv-4":
            return payload
        return program_payload(payload) if self._setup.given == "payload" else Context(payload, self._channel)

    def _call(self, argument: Any) -> Any:
        try:
            # A copy of the context variables: changes that the judge makes end with the judgement.
            returned = contextvars.copy_context().run(self._function, argument)
            return self._finish(returned) if hasattr(returned, "__await__") else returned
        except EvaluatorFailure:
            raise
        except BaseException as error:
            raise EvaluatorFailure(failure_text(self._setup.reference, error)) from error

    def _finish(self, running: Any) -> Any:
        """Return the result of an async function, and cancel the tasks it left running."""
        import asyncio  # late: plain functions do not need it

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(running)
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


_LIBRARIES = (
    *(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ""),
    "<",
)


def failure_text(name: str, error: BaseException) -> str:
    """Describe an exception in one line, then the user's own frames if there are several, innermost last."""
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(_LIBRARIES)
    ]
    # If the error did not reach the user's code, there is no line to show.
    described = describe(error, frames[-1][0]) if frames else describe(error.with_traceback(None))
    lines = [f"{name} failed: {described}"]
    for file, line, function in frames[-_MOST_FRAMES:] if len(frames) > 1 else []:
        source = linecache.getline(file, line).strip()
        lines.append(f"  {os.path.basename(file)}, line {line}, in {function}" + (f": {source}" if source else ""))
    return "\n".join(lines)


_CHUNK_BYTES = 64 * 1024


def import_function(setup: Setup) -> Callable[..., Any] | str:
    """Import the user's function; return why it cannot be used, if it cannot."""
    try:
        os.chdir(setup.cwd)
        function = load(setup.reference, lambda _: setup.path)
        if setup.given in ("context", "promptfoo"):
            function = with_two_arguments(function, is_promptfoo=setup.given == "promptfoo")
    except FunctionError as error:
        return str(error)
    except OSError as error:
        return f"{setup.reference} cannot be run in '{setup.cwd}': {error.strerror}"
    return function if callable(function) else f"{setup.reference} is not a function but {type(function).__name__}"


class ForkServer:
    """One imported function and the processes forked from this one."""

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
        function = import_function(setup)
        if isinstance(function, str):
            return function
        if any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
            import asyncio  # late: imported before the fork to share it; plain functions do not need it

            asyncio.get_event_loop_policy()
        self._work = setup, limits, function
        # Forked processes share everything loaded so far; garbage collection would copy it.
        gc.collect()
        gc.freeze()
        return ""

    def _fork(self, channel: int, output: int) -> None:
        if (pid := os.fork()) == 0:
            self._judge(channel, output)
        self._children.add(pid)
        os.close(channel)
        os.close(output)

    def _judge(self, channel: int, output: int) -> NoReturn:
        """Run a forked process from start to end."""
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
            if (random := sys.modules.get("random")) is not None:
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
    """Return a child that has ended. Its process group is killed first, while its id cannot be reused."""
    try:
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            pid, status = os.waitpid(-1, os.WNOHANG)
            _kill_group(pid)
            return (pid, status) if pid else None
        if (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            return None
        _kill_group(ended.si_pid)
        return os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return None


def _kill_group(pid: int) -> None:
    if pid:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Run the fork server; the number of its socket is the last argument."""
    control = int(sys.argv[-1])
    sys.argv[:] = [""]
    ForkServer(socket.socket(fileno=control)).serve()
