"""The run's side of warm judging: keeps templates and the processes forked from them busy, in time, and replaced."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from agentv.evaluators.pool.lines import Line
from agentv.evaluators.pool.setup import Limits, Setup
from agentv.evaluators.pool.wire import frame
from agentv.model.score import EvaluatorFailure
from agentv.processes import GRACE_S, certain, end_group, ending_of, tail_of, when_ended

START_S = 60.0
"""How long a file may take to import, at least."""

MOST_TEMPLATES = 8
MOST_JUDGEMENTS = 1000
"""After so many a process is replaced: what no check can see does not pile up."""

MAX_PRINTED_BYTES = 64 * 1024 * 1024
MOST_AHEAD = 8
QUICK_S = 0.002
"""A process whose judgements are this quick is sent the next ones ahead, so that it never waits for one."""

_TAIL_BYTES = 8000
_NEWS_S = 1.0
"""How long to wait for word of how a process ended, once its line is closed."""


class Asked:
    """One judgement on its way: what is sent, how long it may take, what it asks on the way, what comes of it."""

    def __init__(self, body: bytes, timeout_s: float, answer: Any) -> None:
        self.body = body
        self.timeout_s = timeout_s
        self.answer = answer
        self.done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()


class WorkerPool:
    """Templates by their setup. The least recently used goes when there are too many."""

    def __init__(self, environment: Mapping[str, str], size: int | None = None) -> None:
        self._environment = environment
        self._size = size or usable_cores()
        self._templates: dict[Setup, TemplateProcess] = {}

    async def judge(self, setup: Setup, asked: Asked) -> dict[str, Any]:
        """The score of one judgement as plain data. Raises EvaluatorFailure."""
        template = self._templates.pop(setup, None)
        if template is None or template.is_gone:
            lost = [template] if template is not None else []
            template = TemplateProcess(setup, self._environment, self._size, max(START_S, asked.timeout_s))
            self._templates[setup] = template
            await _all_ended([*lost, *self._superfluous()])
        else:
            self._templates[setup] = template  # last: the most recently used
        return await template.judge(asked)

    async def aclose(self) -> None:
        """Ends every process."""
        templates, self._templates = list(self._templates.values()), {}
        await _all_ended(templates)

    def _superfluous(self) -> list[TemplateProcess]:
        """The least recently used that nobody waits for, when there are too many."""
        idle = [setup for setup, template in self._templates.items() if template.is_idle]
        return [self._templates.pop(setup) for setup in idle[: max(0, len(self._templates) - MOST_TEMPLATES)]]


class TemplateProcess:
    """A template that runs, and the processes forked from it."""

    def __init__(self, setup: Setup, environment: Mapping[str, str], size: int, start_s: float) -> None:
        self._setup = setup
        self._size = size
        self._start_s = start_s
        self._waiting: deque[Asked] = deque()
        self._workers: set[WorkerProcess] = set()
        self._endings: dict[int, asyncio.Future[int]] = {}
        self._imported: set[str] = set()
        self._is_handing_out = False
        self._fate = ""
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[str] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process, self._control = self._started(environment)
        self._stop_watching = when_ended(self._process, self._on_end)
        limits = Limits(judgements=MOST_JUDGEMENTS, file_bytes=MAX_PRINTED_BYTES)
        self._control.send(frame(["setup", setup, limits, sys.path]))

    @property
    def is_gone(self) -> bool:
        """Whether it must be started anew."""
        return self._ended.done()

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for a judgement of it."""
        return self._ready.done() and not self._waiting and not any(worker.queue for worker in self._workers)

    async def judge(self, asked: Asked) -> dict[str, Any]:
        """One judgement in one of its processes."""
        await self._imports()
        self._waiting.append(asked)
        self.hand_out_soon()
        try:
            kind, found = await asked.done
        finally:
            if not asked.done.done() or asked.done.cancelled():
                self._give_up(asked)
        if kind == "failure":
            raise EvaluatorFailure(found)
        return dict(found)

    def end(self) -> None:
        """Ends the template and everything forked from it."""
        for worker in list(self._workers):
            worker.end()
        self._control.close()
        if not self._ended.done():
            end_group(self._process.pid)

    async def ended(self) -> None:
        """Waits until nothing is left of it."""
        try:
            await certain(self._ended, GRACE_S)
        finally:
            self._stop_watching()
            self._process.poll()
            self._output.close()

    def hand_out_soon(self) -> None:
        """Once for all that becomes ready in this turn of the event loop: what goes to one process is sent at once."""
        if not self._is_handing_out:
            self._is_handing_out = True
            self._loop.call_soon(self._hand_out)

    def take_back(self, asked: list[Asked]) -> None:
        """Judgements that a process was sent and never began: another one gets them first."""
        self._waiting.extendleft(reversed(asked))
        self.hand_out_soon()

    def preload(self, imported: list[str]) -> None:
        """A judgement imported modules on its way: processes forked from now on have them."""
        new = [name for name in imported if name not in self._imported]
        if new:
            self._imported.update(new)
            self._control.send(frame(["import", new]))

    def gone(self, worker: WorkerProcess) -> None:
        """A process has ended or is about to."""
        self._workers.discard(worker)
        self.hand_out_soon()

    async def ending(self, pid: int) -> int | None:
        """How a process ended, when the template says so in time."""
        known = self._endings.setdefault(pid, self._loop.create_future())
        await asyncio.wait([known], timeout=_NEWS_S)
        self._endings.pop(pid, None)
        return known.result() if known.done() else None

    def _hand_out(self) -> None:
        self._is_handing_out = False
        if self.is_gone:
            return
        for worker in sorted(self._workers, key=lambda each: len(each.queue)):
            while self._waiting and worker.has_room:
                worker.add(self._waiting.popleft())
            worker.send()
        while len(self._workers) < self._size and len(self._waiting) > self._coming:
            self._fork()

    @property
    def _coming(self) -> int:
        """Processes that were asked for and are not there yet."""
        return sum(not worker.is_there for worker in self._workers)

    def _fork(self) -> None:
        worker = WorkerProcess(self, self._setup.name)
        self._workers.add(worker)
        self._control.send(frame(["fork"]), worker.hand_over())
        worker.let_go()
        self._loop.call_later(self._start_s, self._expect, worker)

    def _expect(self, worker: WorkerProcess) -> None:
        if not worker.is_there and not worker.is_gone:
            end_group(self._process.pid)  # it forks no more, so it is no use to anybody

    def _give_up(self, asked: Asked) -> None:
        if asked in self._waiting:
            self._waiting.remove(asked)
        for worker in list(self._workers):
            if worker.queue and worker.queue[0] is asked:
                worker.end()

    async def _imports(self) -> None:
        """Waits until the user's file is imported. Raises EvaluatorFailure when it cannot be."""
        if not self._ready.done():
            either: list[asyncio.Future[Any]] = [self._ready, self._ended]
            await asyncio.wait(either, timeout=self._start_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done() and not self._ended.done():
            self._fate = f"{self._setup.name} took longer than {self._start_s:g} s to import"
            end_group(self._process.pid)
            raise EvaluatorFailure(self._death())
        if not self._ready.done():
            raise EvaluatorFailure(self._death())
        if self._ready.result():
            raise EvaluatorFailure(self._ready.result())

    def _death(self) -> str:
        how = f"{self._setup.name}: the process it is imported in {ending_of(self._process.poll())}"
        return (self._fate or how) + tail_of(_end_of(self._output))

    def _started(self, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], Line]:
        line, theirs = Line.pair(self._heard, lambda: None)
        command = [sys.executable, "-u", "-m", "agentv.evaluators.pool.template", str(theirs.fileno())]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**environment, "PYTHONPATH": os.pathsep.join(_python_path(environment))},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            line.close()
            raise
        finally:
            theirs.close()
        return process, line

    def _heard(self, message: Any) -> None:
        if message[0] == "ended":
            known = self._endings.setdefault(message[1], self._loop.create_future())
            if not known.done():
                known.set_result(message[2])
            if len(self._endings) > self._size * 4:
                self._endings.pop(next(iter(self._endings)))
        elif not self._ready.done():
            self._ready.set_result(message[1] if message[0] == "failed" else "")

    def _on_end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        self._process.poll()
        for worker in list(self._workers):
            worker.end()
        how = self._death()
        for asked in self._waiting:
            if not asked.done.done():
                asked.done.set_result(["failure", how])
        self._waiting.clear()


class WorkerProcess:
    """A process that judges, one answer at a time, each within its time."""

    def __init__(self, template: TemplateProcess, name: str) -> None:
        self._template = template
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._pid = 0
        self._started_at = 0.0
        self._is_quick = False
        self._unsent: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._line, self._theirs = Line.pair(self._heard, self._lost)
        self.queue: deque[Asked] = deque()
        self.is_gone = False

    @property
    def is_there(self) -> bool:
        """Whether it has said that it was forked."""
        return self._pid != 0

    def hand_over(self) -> list[int]:
        """The open files that the forked process gets: its line and what it prints to."""
        return [self._theirs.fileno(), self._output.fileno()]

    def let_go(self) -> None:
        """The other side has its own now."""
        self._theirs.close()

    @property
    def has_room(self) -> bool:
        """Whether it may be sent a judgement: it has none, or it is quick with them."""
        return self.is_there and len(self.queue) < (MOST_AHEAD if self._is_quick else 1)

    def add(self, asked: Asked) -> None:
        """Takes one more judgement, behind those it has."""
        if asked.done.done():
            return  # given up meanwhile
        self.queue.append(asked)
        self._unsent.append(asked.body)
        if len(self.queue) == 1:
            self._begin()

    def send(self) -> None:
        """Sends what it was given since the last time."""
        if self._unsent:
            self._line.send(b"".join(self._unsent))
            self._unsent.clear()

    def end(self) -> None:
        """Ends the process and what it started; the judgement in it fails."""
        self._fail(f"{self._name}: its process was ended")

    def _fail(self, message: str) -> None:
        """The judgement in it has failed, and with it the process; those behind it are for another."""
        if self.queue:
            self._settled(["failure", message])
        self._go()

    def _begin(self) -> None:
        """From here on the time of the first in the queue runs."""
        self._started_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self.queue[0].timeout_s, self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        # One timer for many judgements: making and cancelling one for each takes longer than some of them do.
        self._timer = None
        if not self.queue:
            return
        limit_s = self.queue[0].timeout_s
        left_s = self._started_at + limit_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look_at_the_clock)
            return
        self._fail(f"{self._name} took longer than {limit_s:g} s{tail_of(_end_of(self._output))}")

    def _heard(self, message: Any) -> None:
        match message:
            case ["hello", int(pid)] if not self._pid:
                self._pid = pid
                self._template.hand_out_soon()
            case ["score" | "failure" as kind, found, bool(spent), str(), list(imported)] if self.queue:
                self._is_quick = self._loop.time() - self._started_at < QUICK_S
                self._settled([kind, found])
                if spent:
                    self._template.preload(imported)
                    self._go()
                else:
                    self._template.hand_out_soon()
            case [str() as question, *arguments] if self.queue and self._answering is None:
                self._answering = self._loop.create_task(self._answer(self.queue[0], question, arguments))
            case _:
                self._fail(f"{self._name}: its process sent what is no message")

    async def _answer(self, asked: Asked, question: str, arguments: list[Any]) -> None:
        body = await asked.answer(question, arguments)
        self._answering = None
        if self.queue and self.queue[0] is asked:
            self._line.send(body)

    def _lost(self) -> None:
        """The process closed its line without a score: it has ended, or it is as good as ended."""
        if self.queue:
            self._explaining = self._loop.create_task(self._explain())
        else:
            self._go()

    async def _explain(self) -> None:
        said = tail_of(_end_of(self._output))
        code = await self._template.ending(self._pid)
        how = "closed its line" if code is None else ending_of(code)
        self._fail(f"{self._name}: its process {how} before it gave a score{said}")

    def _settled(self, outcome: list[Any]) -> None:
        asked = self.queue.popleft()
        if not asked.done.done():
            asked.done.set_result(outcome)
        if self.queue:
            self._begin()

    def _go(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            if self._timer is not None:
                self._timer.cancel()
            never_begun, self.queue = list(self.queue), deque()
            self._template.take_back(never_begun)
            if self._answering is not None:
                self._answering.cancel()
            self._line.close()
            self._output.close()
            if self._pid:
                end_group(self._pid)
            self._template.gone(self)


async def _all_ended(templates: list[TemplateProcess]) -> None:
    for template in templates:
        template.end()  # all at once, and before anything is waited for: a cancellation finds nothing to leave behind
    for template in templates:
        await template.ended()


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_of(file: IO[bytes]) -> bytes:
    if file.closed:
        return b""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))


def _python_path(environment: Mapping[str, str]) -> list[str]:
    """Where the template finds agentv itself, installed or not; its own search path comes with the setup."""
    given = environment.get("PYTHONPATH")
    return [str(Path(__file__).parents[3]), *([given] if given else [])]
