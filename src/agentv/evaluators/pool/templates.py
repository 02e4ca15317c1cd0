"""A template process as the run sees it: one imported file, and the processes forked from it, each kept busy."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agentv.evaluators.code.isolation import prefix, scratch_folder
from agentv.evaluators.pool.judging import Asked, WorkerProcess, end_of
from agentv.evaluators.pool.lines import Line
from agentv.evaluators.pool.setup import Limits, Setup
from agentv.evaluators.pool.wire import frame
from agentv.model.evaluator import EvaluatorFailure
from agentv.support.processes.subprocesses import GRACE_S, certain, end_group, ending_of, tail_of, when_ended

MOST_JUDGEMENTS = 1000
"""After so many a process is replaced: what no check can see does not pile up."""

MAX_PRINTED_BYTES = 64 * 1024 * 1024
_HOME = str(Path(__file__).parents[3])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from agentv.evaluators.pool.template import main; main()"
"""Finds agentv itself, installed or not. Not by PYTHONPATH, which programs that a judge starts would inherit."""

_NEWS_S = 1.0
"""How long to wait for word of how a process ended, once its line is closed."""


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
        self._scratch = ExitStack()
        self._limits = Limits(
            judgements=MOST_JUDGEMENTS,
            file_bytes=MAX_PRINTED_BYTES,
            scratch=self._scratch.enter_context(scratch_folder(setup.way)),
        )
        self._process, self._control = self._started(environment)
        self._stop_watching = when_ended(self._process, self._on_end)
        self._control.send(frame(["setup", setup, self._limits, sys.path]))

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
            self._scratch.close()

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
        worker.expected = self._loop.call_later(self._start_s, self._give_up_on, worker)

    def _give_up_on(self, worker: WorkerProcess) -> None:
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
        return (self._fate or how) + tail_of(end_of(self._output))

    def _started(self, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], Line]:
        line, theirs = Line.pair(self._heard, lambda: None)
        before = prefix(self._setup.way, self._limits.scratch, self._setup.cwd, None)
        if self._setup.way == "landlock":
            before = []  # it restricts itself, once it is there
        command = [*before, sys.executable, "-u", "-c", _START, _HOME, str(theirs.fileno())]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=environment,
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
