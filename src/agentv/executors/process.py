"""Run jobs in worker processes on this machine, so that CPU-bound Python code uses all cores."""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from itertools import count
from threading import Thread
from typing import Any

from agentv.errors import UsageError
from agentv.executors.crew import Crew, JobQueue, NumberedJob, NumberedResult, WorkerLost, pack, portable
from agentv.executors.executor import Emit, ExecutorOptions, Jobs, JobSlots, Load, WorkSpec
from agentv.executors.leases import LeasedLimits, LimitHub
from agentv.support.processes.event_loop import new_event_loop
from agentv.support.processes.process_memory import claim_process, hide_environment, startup_environment

_AHEAD_S = 0.1
_CLOSE_S, _EXIT_S = 10.0, 2.0
"""How long a worker may take to cancel and clean up its jobs, and then to exit."""
_POLL_S = 0.5
_LENGTH = struct.Struct("!I")


class ProcessExecutor:
    """Runs jobs in `processes` processes, by default one per core. They share the endpoint limits."""

    is_remote = False

    def __init__(self, options: ExecutorOptions) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise UsageError("--executor process does not run on Windows", hint="Leave it out, or use WSL")
        self._most = options.processes or os.cpu_count() or 1
        self._hub = LimitHub()
        self._links: set[_ProcessLink] = set()

    async def run(self, spec: WorkSpec, jobs: Jobs, emit: Emit) -> tuple[str, ...]:
        """Run every job; see `agentv.executors.executor.Executor`."""
        packed = pack(("open", (spec, max(self._most, os.cpu_count() or 1))))

        async def start() -> _ProcessLink:
            link = await _ProcessLink.start(self._hub)
            self._links.add(link)
            await link.open(packed)
            return link

        try:
            return await Crew(spec, jobs, emit, ahead_s=_AHEAD_S).run(start, self._most)
        finally:
            await asyncio.gather(*(link.end() for link in self._links))
            self._hub.close()

    def load(self) -> Load:
        """Return the load of all workers."""
        return self._hub.load()


class _Channel:
    """Sends messages over a socket: a length, then a pickled pair of a kind and a value."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, packed: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.writelines((_LENGTH.pack(len(packed)), packed))

    async def receive(self) -> tuple[str, Any] | None:
        """Return the next message; None if the connection is closed."""
        try:
            length = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
            packed = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            return None
        message: tuple[str, Any] = pickle.loads(packed)  # noqa: S301 - from our own process
        return message

    async def flush(self) -> None:
        with suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class _ProcessLink:
    """The driver's link to a worker process, which has its own process group."""

    _names = count(1)

    def __init__(self, process: subprocess.Popen[bytes], channel: _Channel, hub: LimitHub) -> None:
        self.capacity = 1
        self.lent = 0
        self._process = process
        self._channel = channel
        self._hub = hub
        self._name = f"process-{next(self._names)}"
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._closed: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._answers: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read())
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def start(cls, hub: LimitHub) -> _ProcessLink:
        hide_environment()
        ours, theirs = socket.socketpair()
        with theirs:
            streams = await asyncio.open_unix_connection(sock=ours)
            code = f"import sys; sys.path[:] = {sys.path!r}; from agentv.executors.process import serve; serve("
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-c", f"{code}{theirs.fileno()})"],
                stdin=subprocess.DEVNULL,
                env=startup_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return cls(process, _Channel(*streams), hub)

    async def open(self, packed: bytes) -> None:
        """Let the worker open its targets. Raises WorkerLost, or the worker's error."""
        self._channel.send(pack(("environment", dict(os.environ))))
        self._channel.send(packed)
        ready = await self._inbox.get()
        if isinstance(ready, BaseException):
            raise ready
        self.capacity = ready

    def begin(self, share: int) -> None:
        self._channel.send(pack(("begin", share)))

    def send(self, jobs: list[NumberedJob]) -> None:
        self._channel.send(pack(("jobs", jobs)))

    def stop(self) -> None:
        self._channel.send(pack(("stop", None)))

    async def receive(self) -> list[NumberedResult]:
        results: list[NumberedResult] = []
        is_first = True
        while is_first or not self._inbox.empty():
            item, is_first = await self._inbox.get(), False
            if isinstance(item, list):
                results += item
            elif not results:
                raise item
            else:
                self._inbox.put_nowait(item)
                break
        return results

    async def close(self) -> tuple[str, ...]:
        self._channel.send(pack(("close", None)))
        either: set[asyncio.Future[Any]] = {self._closed, self._watching}
        await asyncio.wait(either, timeout=_CLOSE_S, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({self._watching}, timeout=_EXIT_S)
        await self.end()
        return self._closed.result() if self._closed.done() else ()

    async def end(self) -> None:
        """Kill the process and its group."""
        self._kill()
        await self._watching

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _read(self) -> None:
        try:
            while (message := await self._channel.receive()) is not None:
                self._handle(*message)
        except Exception as error:  # a message that cannot be read
            self._inbox.put_nowait(error)

    def _handle(self, kind: str, value: Any) -> None:
        if kind == "call":
            task = asyncio.create_task(self._answer(*value))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)
        elif kind == "closed":
            self._closed.set_result(value)
        elif kind == "lent":
            self.lent = value
            self._inbox.put_nowait([])
        else:
            self._inbox.put_nowait(value)

    async def _answer(self, number: int, method: str, arguments: tuple[Any, ...]) -> None:
        """Call the hub on behalf of the worker."""
        value = await getattr(self._hub, method)(self._name, *arguments)
        self._channel.send(pack(("reply", (number, value))))

    async def _watch(self) -> None:
        """Wait for the end of the process, and report it as a lost worker."""
        deadline = 0.0
        while self._process.poll() is None:
            if not self._reading.done():
                # A closed socket shows this immediately, unless a process forked by the worker keeps it open.
                await asyncio.wait({self._reading}, timeout=_POLL_S)
                deadline = time.monotonic() + _EXIT_S
            elif time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            else:
                self._kill()
        code = self._process.returncode
        await asyncio.wait({self._reading}, timeout=_POLL_S)
        self._reading.cancel()
        for task in self._answers:
            task.cancel()
        self._channel.close()
        self._hub.lose(self._name)
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        self._inbox.put_nowait(WorkerLost(how))


def serve(descriptor: int) -> None:
    """Run as a worker process: run jobs received over a socket until it closes."""
    claim_process()
    hide_environment()
    os.set_inheritable(descriptor, False)
    connection = socket.socket(fileno=descriptor)
    Thread(target=_end_with_driver, args=(connection,), daemon=True).start()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        is_closed = runner.run(_Server(connection).run())
    if not is_closed:
        os.killpg(os.getpgrp(), signal.SIGKILL)  # nothing else would end processes started by user code


def _end_with_driver(connection: socket.socket) -> None:
    """Kill this process and its group some time after the driver is gone, even if user code blocks."""
    poller = select.poll()
    poller.register(connection, getattr(select, "POLLRDHUP", select.POLLHUP))
    poller.poll()
    time.sleep(_CLOSE_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


class _Server:
    """The worker's side of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._channel: _Channel
        self._queue: JobQueue | None = None
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._results: list[NumberedResult] = []
        self._lent = 0

    async def run(self) -> bool:
        """Run until the driver closes the worker (True) or is gone (False)."""
        self._channel = _Channel(*await asyncio.open_unix_connection(sock=self._connection))
        try:
            while (message := await self._channel.receive()) is not None and message[0] != "close":
                self._handle(*message)
        except Exception as error:
            self._fail(error)
            message = await self._channel.receive()
        missing = () if self._queue is None else await self._queue.aclose()
        self._channel.send(pack(("closed", missing)))
        await self._channel.flush()
        return message is not None

    def _handle(self, kind: str, value: Any) -> None:
        if kind == "environment":
            os.environ.update(value)
        elif kind == "open":
            spec, cores = value
            limits = LeasedLimits(self._call, cores)
            worker = spec.open(limits)
            self._queue = JobQueue(worker, limits, self._deliver, self._fail)
            limits.slots.changed = lambda: self._fill(limits.slots)
            self._channel.send(pack(("ready", worker.capacity)))
        elif kind == "reply":
            number, reply = value
            self._waiting.pop(number).set_result(reply)
        elif self._queue is not None and kind == "begin":
            self._queue.begin(value)
        elif self._queue is not None and kind == "jobs":
            self._queue.add(value)
        elif self._queue is not None and kind == "stop":
            self._queue.stop()

    def _call(self, method: str, *arguments: Any) -> Awaitable[Any]:
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._channel.send(pack(("call", (number, method, arguments))))
        return waiting

    def _fill(self, slots: JobSlots) -> None:
        """Use slots that were lent, and report their number, if it differs much from the one reported."""
        if self._queue is not None:
            self._queue.fill()
        if abs(slots.lent - self._lent) > slots.total // 8 or bool(slots.lent) != bool(self._lent):
            self._lent = slots.lent
            self._channel.send(pack(("lent", self._lent)))

    def _deliver(self, result: NumberedResult) -> None:
        """Queue a result; results that arrive together are sent together."""
        self._results.append(result)
        if len(self._results) == 1:
            asyncio.get_running_loop().call_soon(self._send_results)

    def _send_results(self) -> None:
        results, self._results = self._results, []
        try:
            self._channel.send(pack(("results", results)))
        except UsageError as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._channel.send(pack(("failed", portable(error))))
