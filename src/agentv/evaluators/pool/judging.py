"""A forked process as the run sees it: sent judgements, held to their time, given up when it goes wrong."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from typing import IO, Any, Protocol

from agentv.evaluators.pool.lines import Line
from agentv.support.processes.subprocesses import end_group, ending_of, tail_of

MOST_AHEAD = 8
QUICK_S = 0.002
"""A process whose judgements are this quick is sent the next ones ahead, so that it never waits for one."""

_TAIL_BYTES = 8000


class Asked:
    """One judgement on its way: what is sent, how long it may take, what it asks on the way, what comes of it."""

    def __init__(self, body: bytes, timeout_s: float, answer: Any) -> None:
        self.body = body
        self.timeout_s = timeout_s
        self.answer = answer
        self.done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()


class Owner(Protocol):
    """What a forked process tells the template it came from."""

    def hand_out_soon(self) -> None: ...

    def take_back(self, asked: list[Asked]) -> None: ...

    def preload(self, imported: list[str]) -> None: ...

    def gone(self, worker: WorkerProcess) -> None: ...

    async def ending(self, pid: int) -> int | None: ...


class WorkerProcess:
    """A process that judges, one answer at a time, each within its time."""

    def __init__(self, template: Owner, name: str) -> None:
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
        self.expected: asyncio.TimerHandle | None = None
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
        self._fail(f"{self._name} took longer than {limit_s:g} s{tail_of(end_of(self._output))}")

    def _heard(self, message: Any) -> None:
        match message:
            case ["hello", int(pid)] if not self._pid:
                self._pid = pid
                self._stop_expecting()
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
        said = tail_of(end_of(self._output))
        code = await self._template.ending(self._pid)
        how = "closed its line" if code is None else ending_of(code)
        self._fail(f"{self._name}: its process {how} before it gave a score{said}")

    def _settled(self, outcome: list[Any]) -> None:
        asked = self.queue.popleft()
        if not asked.done.done():
            asked.done.set_result(outcome)
        if self.queue:
            self._begin()

    def _stop_expecting(self) -> None:
        if self.expected is not None:
            self.expected.cancel()
            self.expected = None

    def _go(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._stop_expecting()
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


def end_of(file: IO[bytes]) -> bytes:
    """The last of what was printed into a file."""
    if file.closed:
        return b""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
