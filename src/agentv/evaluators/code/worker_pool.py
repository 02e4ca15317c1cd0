"""The pool of warm judging processes: one fork server per setup, and the processes forked from it."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agentv.evaluators.code.judge_io import LENGTH_BYTES, Setup, WorkerLimits, frame, framed
from agentv.evaluators.code.payload import payload
from agentv.evaluators.code.program import scratch_folder
from agentv.evaluators.code.worker_process import Connection, PendingJudgement, WorkerProcess, printed_tail
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement
from agentv.model.message import PART_KINDS, Message
from agentv.model.values import freeze
from agentv.registry import service
from agentv.sandbox.confinement import Launch, private_environment
from agentv.sandbox.subprocesses import GRACE_S, end_group, ending_of
from agentv.support.processes.process_exit import wait_uncancelled, when_ended
from agentv.support.processes.process_limits import FamilyWatch
from agentv.support.processes.process_memory import hide_environment

IMPORT_S = 60.0
"""Minimum time allowed for importing a file."""

MAX_SERVERS = 8
MAX_JUDGEMENTS = 1000
"""A process is replaced after this many judgements, to bound memory leaks."""

MAX_PRINTED_BYTES = 64 * 1024 * 1024
_HOME = str(Path(__file__).parents[3])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from agentv.evaluators.code.fork_server import main; main()"
"""Finds agentv itself, installed or not. Not through PYTHONPATH, which programs that a judge starts would inherit."""

_LOOK_S = 0.25
"""How often the number of processes is checked."""

_EXIT_NEWS_S = 1.0
"""How long to wait for a process's exit code, once its socket is closed."""


Serve = Callable[[socket.socket], Callable[[], None]]


class WorkerPool:
    """Warm processes for judges, at most `size` for each function.

    `serve` connects the model proxy with an isolated process, and returns a function that disconnects it.
    """

    def __init__(self, environment: Mapping[str, str], serve: Serve | None = None) -> None:
        self.environment = environment
        self.size = usable_cores()
        self.serve = serve
        self._slots = asyncio.Semaphore(self.size)
        self._servers: dict[Setup, ForkServerProcess] = {}

    async def judge(
        self, setup: Setup, judgement: Judgement, config: dict[str, Any], timeout_s: float, variables: Mapping[str, str]
    ) -> Score:
        """Return the function's score. `variables` are added to its environment. Raises EvaluatorFailure."""
        try:
            if setup.given == "agentv-4":
                data = service("code-grader-input", setup.reference)(judgement, config)
            else:
                data = payload(judgement, config)
            if setup.given in ("context", "promptfoo"):
                data["candidate_data"] = judgement.candidate_data
            body = frame([data, variables])
        except (TypeError, ValueError) as error:
            raise EvaluatorFailure(f"Cannot encode the answer as JSON: {error}") from None
        if sys.platform == "win32":  # which cannot fork
            async with self._slots:
                judge = service("plain-judge", setup.reference)
                data = await judge(setup, body[LENGTH_BYTES:], judgement.case, self.environment, timeout_s)
        else:
            future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            pending = PendingJudgement(body, timeout_s, partial(_handle_request, judgement), future)
            data = await (await self._server(setup, timeout_s)).judge(pending)
        try:
            return msgspec.convert(data, Score)
        except msgspec.ValidationError as error:
            raise EvaluatorFailure(f"{setup.reference}: its process sent an invalid score: {error}") from None

    async def aclose(self) -> None:
        """End every process."""
        servers, self._servers = list(self._servers.values()), {}
        await _end_all(servers)

    async def _server(self, setup: Setup, timeout_s: float) -> ForkServerProcess:
        server = self._servers.pop(setup, None)
        if server is not None and not server.is_gone:
            self._servers[setup] = server  # last: the most recently used
            return server
        lost = [server] if server is not None else []
        self._servers[setup] = server = ForkServerProcess(setup, self, max(IMPORT_S, timeout_s))
        idle = [key for key, other in self._servers.items() if other.is_idle]
        surplus = idle[: max(0, len(self._servers) - MAX_SERVERS)]
        await _end_all([*lost, *(self._servers.pop(key) for key in surplus)])
        return server


class ForkServerProcess:
    """A process that has imported one file, and the processes forked from it."""

    def __init__(self, setup: Setup, pool: WorkerPool, import_s: float) -> None:
        environment, size = pool.environment, pool.size
        self._setup = setup
        self._serve = pool.serve
        self._size = size
        self._import_s = import_s
        self._waiting: deque[PendingJudgement] = deque()
        self._workers: set[WorkerProcess] = set()
        self._exit_codes: dict[int, asyncio.Future[int]] = {}
        self._will_dispatch = False
        self._failure = ""
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[str] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._resources = ExitStack()  # closed with the process
        self._output = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        scratch = self._resources.enter_context(scratch_folder(setup.confinement))
        self._control = Connection(self._received, lambda: None)
        self._process = self._start(scratch, environment)
        self._stop_watching = when_ended(self._process, self._on_end)
        self._family = FamilyWatch(self._process.pid, self._stop_for, period_s=_LOOK_S)
        limits = WorkerLimits(
            judgements=1 if setup.fresh else MAX_JUDGEMENTS, file_bytes=MAX_PRINTED_BYTES, scratch=scratch
        )
        self._control.send(frame(["setup", setup, limits, sys.path]))

    @property
    def is_gone(self) -> bool:
        """Whether it has to be started again."""
        return self._ended.done()

    @property
    def is_idle(self) -> bool:
        """Whether it has no judgement to do."""
        return self._ready.done() and not self._waiting and not any(worker.queue for worker in self._workers)

    async def judge(self, pending: PendingJudgement) -> dict[str, Any]:
        """Return the score as plain data. Raises EvaluatorFailure."""
        await self._wait_for_import()
        self._waiting.append(pending)
        self.dispatch_soon()
        try:
            kind, result = await pending.done
        finally:
            if not pending.done.done() or pending.done.cancelled():
                self._cancel(pending)
        if kind == "failure":
            raise EvaluatorFailure(result)
        return dict(result)

    def end(self) -> None:
        """Kill the fork server and everything forked from it."""
        for worker in list(self._workers):
            worker.end()
        self._control.close()
        if not self._ended.done():
            end_group(self._process.pid)

    async def wait_ended(self) -> None:
        """Wait until its process has ended, and release its resources."""
        try:
            await wait_uncancelled(self._ended, GRACE_S)
        finally:
            self._stop_watching()
            self._family.stop()
            self._process.poll()
            self._resources.close()

    def dispatch_soon(self) -> None:
        """Dispatch once per turn of the event loop: judgements for one process are sent together."""
        if not self._will_dispatch:
            self._will_dispatch = True
            self._loop.call_soon(self._dispatch)

    def take_back(self, pending: list[PendingJudgement]) -> None:
        """Requeue judgements that were sent to a process but not started."""
        self._waiting.extendleft(reversed(pending))
        self.dispatch_soon()

    def remove(self, worker: WorkerProcess) -> None:
        """Forget a process that has ended or is about to."""
        self._workers.discard(worker)
        self.dispatch_soon()

    async def exit_code(self, pid: int) -> int | None:
        """Return a process's exit code, if the fork server reports it in time."""
        future = self._exit_codes.setdefault(pid, self._loop.create_future())
        await asyncio.wait([future], timeout=_EXIT_NEWS_S)
        self._exit_codes.pop(pid, None)
        return future.result() if future.done() else None

    def _dispatch(self) -> None:
        self._will_dispatch = False
        if self.is_gone:
            return
        for worker in sorted(self._workers, key=lambda each: len(each.queue)):
            while self._waiting and worker.has_room:
                worker.add(self._waiting.popleft())
            worker.send()
        starting = sum(not worker.is_started for worker in self._workers)
        for _ in range(min(self._size - len(self._workers), len(self._waiting) - starting)):
            worker = WorkerProcess(self, self._setup.reference)
            self._workers.add(worker)
            worker.request_fork(self._control, frame(["fork"]))
            worker.start_timer = self._loop.call_later(self._import_s, self._give_up_on, worker)

    def _give_up_on(self, worker: WorkerProcess) -> None:
        if not worker.is_started and not worker.is_gone:
            end_group(self._process.pid)  # the fork server has stopped forking

    def _cancel(self, pending: PendingJudgement) -> None:
        if pending in self._waiting:
            self._waiting.remove(pending)
        for worker in list(self._workers):
            if worker.queue and worker.queue[0] is pending:
                worker.end()

    async def _wait_for_import(self) -> None:
        """Wait until the user's file is imported. Raises EvaluatorFailure if that fails."""
        if not self._ready.done():
            either: list[asyncio.Future[Any]] = [self._ready, self._ended]
            await asyncio.wait(either, timeout=self._import_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            if not self._ended.done():
                self._failure = f"{self._setup.reference} took longer than {self._import_s:g} s to import"
                end_group(self._process.pid)
            raise EvaluatorFailure(self._cause_of_death())
        if self._ready.result():
            raise EvaluatorFailure(self._ready.result())

    def _cause_of_death(self) -> str:
        how = f"{self._setup.reference}: the process it is imported in {ending_of(self._process.poll())}"
        return (self._failure or how) + printed_tail(self._output)

    def _start(self, scratch: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        hide_environment()
        launch, theirs = Launch([], {}), None
        try:
            with self._control.remote as remote:
                # Isolated mode: no variable of a project, such as PYTHONPATH, changes how it starts.
                arguments = [sys.executable, "-I", "-u", "-c", _START, _HOME, str(remote.fileno())]
                launch = Launch(arguments, dict(environment))
                if self._setup.confinement is not None:
                    theirs = self._proxy_channel()
                    confinement = msgspec.structs.replace(self._setup.confinement, writable=(scratch,))
                    listener = None if theirs is None else theirs.fileno()
                    env = private_environment(environment, scratch, confinement.writable)
                    launch = confinement.launch(arguments, self._setup.cwd, env, listener)
                return subprocess.Popen(  # noqa: S603 - our own module
                    launch.arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._output,
                    env=launch.env,
                    pass_fds=[remote.fileno(), *launch.descriptors],
                    start_new_session=True,
                )
        except OSError as error:
            self._control.close()
            self._resources.close()
            raise EvaluatorFailure(f"{self._setup.reference} cannot be started: {error}") from None
        except BaseException:
            self._control.close()
            raise
        finally:
            launch.close()
            if theirs is not None:
                theirs.close()

    def _proxy_channel(self) -> socket.socket | None:
        """Return the socket through which the process passes its listening socket to the model proxy."""
        if not self._setup.has_proxy or self._serve is None:
            return None
        ours, theirs = socket.socketpair()
        self._resources.callback(self._serve(ours))
        return theirs

    def _received(self, message: Any) -> None:
        if message[0] == "ended":
            future = self._exit_codes.setdefault(message[1], self._loop.create_future())
            if not future.done():
                future.set_result(message[2])
            if len(self._exit_codes) > self._size * 4:
                self._exit_codes.pop(next(iter(self._exit_codes)))
        elif not self._ready.done():
            self._ready.set_result(message[1] if message[0] == "failed" else "")

    def _stop_for(self, excess: str) -> None:
        self._failure = f"{self._setup.reference} {excess} and was stopped"
        end_group(self._process.pid)

    def _on_end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        self._family.stop()
        self._process.poll()
        for worker in list(self._workers):
            worker.end(self._failure)
        how = self._cause_of_death()
        for pending in self._waiting:
            if not pending.done.done():
                pending.done.set_result(["failure", how])
        self._waiting.clear()


async def _end_all(servers: list[ForkServerProcess]) -> None:
    for server in servers:
        server.end()  # end all before the first await, so that a cancellation leaves no process running
    for server in servers:
        await server.wait_ended()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def _handle_request(judgement: Judgement, name: str, arguments: list[Any]) -> bytes:
    """Handle a judge's request to the run. The response is an object, or an exception for the judge to raise.

    Responses are pickled: they go to our own process, and nothing pickled is read from it.
    """
    response: Any
    try:
        if name == "case":
            response = judgement.case
        elif name != "ask" or judgement.ask is None:
            response = EvaluatorFailure("No model is available")
        else:
            target, messages = arguments
            response = await judgement.ask(target, tuple(_as_message(message) for message in messages))
    except Exception as error:
        response = EvaluatorFailure(str(error))
    return framed(pickle.dumps(response))


def _as_message(data: Any) -> Message:
    if not isinstance(data, dict) or data.get("role") not in ("system", "user", "assistant", "tool"):
        raise EvaluatorFailure(f"A message needs a role and content, got {data!r:.100}")
    content = data.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") in PART_KINDS for part in content):
        return Message(data["role"], tuple(PART_KINDS[part["type"]](part["value"]) for part in content))
    return Message(data["role"], freeze(content))
