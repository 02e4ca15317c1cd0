"""The run's side of a forked judging process: queue judgements, enforce their timeouts, end it on failure."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from agentv.evaluators.code.judge_io import MessageBuffer, ProtocolError
from agentv.sandbox.subprocesses import end_group, ending_of, tail_of

if TYPE_CHECKING:
    from agentv.evaluators.code.worker_pool import ForkServerProcess

MAX_QUEUED = 8
QUICK_S = 0.002
"""A process that judges this quickly is sent several judgements in advance, so that it never waits for one."""

_CHUNK_BYTES = 256 * 1024
_TAIL_BYTES = 8000


class Connection:
    """A socket to a process, in the event loop: `received` gets every message, `closed` is called once at the end."""

    def __init__(self, received: Callable[[Any], None], closed: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, self.remote = socket.socketpair()
        self._received = received
        self._closed = closed
        self._buffer = MessageBuffer()
        self._unsent = bytearray()
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._read)

    def send(self, data: bytes) -> None:
        """Send what the socket accepts now, and the rest when it is ready."""
        if self._socket.fileno() < 0:
            return
        count = 0 if self._unsent else self._send_some(data)
        if count < len(data):
            self._unsent += data[count:]
            self._loop.add_writer(self._socket.fileno(), self._write)

    def send_files(self, data: bytes, files: list[int]) -> None:
        """Send a short message with open files. Blocks, so nothing else may be unsent."""
        if self._socket.fileno() >= 0:
            with suppress(OSError):  # the other end is closed; the next read notices
                self._socket.setblocking(True)
                socket.send_fds(self._socket, [data], files)
                self._socket.setblocking(False)

    def close(self) -> None:
        """Close this end; no callback follows."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _send_some(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # the other end is closed; the next read notices

    def _write(self) -> None:
        del self._unsent[: self._send_some(self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for message in self._buffer.feed(data):
                self._received(message)
        except ProtocolError:
            data = b""
        if not data and self._socket.fileno() >= 0:
            self.close()
            self._closed()


class PendingJudgement(NamedTuple):
    """A requested judgement: the message to send, its timeout, a handler for the judge's requests, and its outcome."""

    body: bytes
    timeout_s: float
    handle: Callable[[str, list[Any]], Awaitable[bytes]]
    done: asyncio.Future[list[Any]]


class WorkerProcess:
    """A process that judges one answer at a time, each within its timeout."""

    def __init__(self, server: ForkServerProcess, name: str) -> None:
        self._server = server
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._pid = 0
        self._started_at = 0.0
        self._is_quick = False
        self._unsent: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._handling: asyncio.Task[None] | None = None
        self._explaining: asyncio.Task[None] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._connection = Connection(self._received, self._closed)
        self.start_timer: asyncio.TimerHandle | None = None
        self.queue: deque[PendingJudgement] = deque()
        self.is_gone = False

    @property
    def is_started(self) -> bool:
        """Whether the forked process has started."""
        return self._pid != 0

    @property
    def has_room(self) -> bool:
        """Whether it accepts another judgement: it is idle, or quick."""
        return self.is_started and len(self.queue) < (MAX_QUEUED if self._is_quick else 1)

    def request_fork(self, control: Connection, request: bytes) -> None:
        """Request the process from the fork server, passing its socket and its output file."""
        with self._connection.remote as remote:
            control.send_files(request, [remote.fileno(), self._output.fileno()])

    def add(self, pending: PendingJudgement) -> None:
        """Queue a judgement."""
        if pending.done.done():
            return  # cancelled meanwhile
        self.queue.append(pending)
        self._unsent.append(pending.body)
        if len(self.queue) == 1:
            self._start_clock()

    def send(self) -> None:
        """Send the judgements added since the last call."""
        if self._unsent:
            self._connection.send(b"".join(self._unsent))
            self._unsent.clear()

    def end(self, reason: str = "") -> None:
        """Kill the process and what it started; its current judgement fails."""
        self._fail(reason or f"{self._name}: its process was stopped")

    def _fail(self, message: str) -> None:
        """Fail the current judgement and close the process; queued judgements go to another."""
        if self.queue:
            self._settle(["failure", message])
        self._close()

    def _start_clock(self) -> None:
        self._started_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self.queue[0].timeout_s, self._check_time)

    def _check_time(self) -> None:
        # One timer for many judgements: creating and cancelling one for each can take longer than the judgement.
        self._timer = None
        if not self.queue:
            return
        limit_s = self.queue[0].timeout_s
        left_s = self._started_at + limit_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_time)
            return
        self._fail(f"{self._name} took longer than {limit_s:g} s{printed_tail(self._output)}")

    def _received(self, message: Any) -> None:
        match message:
            case ["hello", int(pid)] if not self._pid:
                self._pid = pid
                self._cancel_timers()
                self._server.dispatch_soon()
            case ["score" | "failure" as kind, result, bool(is_spent)] if self.queue:
                self._is_quick = self._loop.time() - self._started_at < QUICK_S
                self._settle([kind, result])
                if is_spent:
                    self._close()
                else:
                    self._server.dispatch_soon()
            case [str() as name, *arguments] if self.queue and self._handling is None:
                self._handling = self._loop.create_task(self._handle_request(self.queue[0], name, arguments))
            case _:
                self._fail(f"{self._name}: its process sent an invalid message")

    async def _handle_request(self, pending: PendingJudgement, name: str, arguments: list[Any]) -> None:
        body = await pending.handle(name, arguments)
        self._handling = None
        if self.queue and self.queue[0] is pending:
            self._connection.send(body)

    def _closed(self) -> None:
        """Handle a closed socket: the process has ended or can no longer be used."""
        if self.queue:
            self._explaining = self._loop.create_task(self._explain())
        else:
            self._close()

    async def _explain(self) -> None:
        output = printed_tail(self._output)
        code = await self._server.exit_code(self._pid)
        how = "closed its socket" if code is None else ending_of(code)
        self._fail(f"{self._name}: its process {how} before it gave a score{output}")

    def _settle(self, outcome: list[Any]) -> None:
        pending = self.queue.popleft()
        if not pending.done.done():
            pending.done.set_result(outcome)
        if self.queue:
            self._start_clock()

    def _cancel_timers(self) -> None:
        for timer in (self.start_timer, self._timer):
            if timer is not None:
                timer.cancel()
        self.start_timer = self._timer = None

    def _close(self) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self._cancel_timers()
        not_started, self.queue = list(self.queue), deque()
        self._server.take_back(not_started)
        if self._handling is not None:
            self._handling.cancel()
        self._connection.close()
        self._output.close()
        if self._pid:
            end_group(self._pid)
        self._server.remove(self)


def printed_tail(file: IO[bytes]) -> str:
    """Return the end of the output in a file, formatted for a message."""
    if file.closed:
        return ""
    size = os.fstat(file.fileno()).st_size
    return tail_of(os.pread(file.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)))
