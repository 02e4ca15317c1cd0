"""Run jobs in other processes: the driver feeds workers and replaces lost ones; each worker has a queue of jobs."""

from __future__ import annotations

import asyncio
import pickle
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from io import BytesIO
from itertools import count
from math import ceil
from types import FunctionType
from typing import Any, Protocol

from agentv.errors import AgentvError, UsageError
from agentv.executors.executor import TURN_S, Emit, Jobs, StoppableLimits, UnfinishedJob, Worker, WorkSpec
from agentv.model.job import Job
from agentv.model.result import Result
from agentv.support.byte_gate import HeldBytes

NumberedJob = tuple[int, Job]
NumberedResult = tuple[int, Result | UnfinishedJob | None]
"""The number of a job, and what it ended with; None if it was dropped because the run has stopped."""


class JobQueue:
    """Starts jobs in the order they were added, at most `share` at a time, and more while slots are lent.

    `deliver` receives results. `fail` receives exceptions other than the failure of a job.
    """

    def __init__(
        self,
        worker: Worker,
        limits: StoppableLimits,
        deliver: Callable[[NumberedResult], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._limits = limits
        self._slots = limits.slots
        self._worker = worker
        self._deliver = deliver
        self._fail = fail
        self._queued: deque[NumberedJob] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, jobs: Iterable[NumberedJob]) -> None:
        """Queue jobs, and start as many as allowed."""
        self._queued.extend(jobs)
        self.fill()

    def begin(self, share: int) -> None:
        """Run at most this many jobs at a time from now on."""
        self._slots.total = share
        self.fill()

    def fill(self) -> None:
        """Start as many jobs as allowed."""
        free = self._slots.total + self._slots.lent - len(self._tasks)
        for _ in range(min(free, len(self._queued))):
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Drop the jobs that have not made a call yet; `deliver` receives None for each."""
        dropped, self._queued = self._queued, deque()
        for number, _ in dropped:
            self._deliver((number, None))
        self._limits.stop()

    async def _work(self) -> None:
        resumed, memory = time.monotonic(), HeldBytes(self._limits.memory)
        slots = self._slots
        try:
            while self._queued and len(self._tasks) <= slots.total + slots.lent:
                number, job = self._queued.popleft()
                self._deliver((number, await self._ended_with(job)))
                if memory.size:
                    await memory.end_job()
                if time.monotonic() - resumed > TURN_S:
                    await asyncio.sleep(0)
                    resumed = time.monotonic()
        finally:
            memory.release()

    async def _ended_with(self, job: Job) -> Result | UnfinishedJob | None:
        try:
            return await self._worker.run(job)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._limits.is_stopped or (task is not None and task.cancelling()):
                raise
            return None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._fail(error)
        self.fill()  # tasks that ended together may all have left their slots

    async def aclose(self) -> tuple[str, ...]:
        """Cancel running jobs, let them clean up, and close the worker; return the calls missing from a replay."""
        self._queued.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._worker.aclose()
        return self._worker.missing


class _Pickler(pickle.Pickler):
    """Rejects objects defined in `__main__`: a worker has a different one."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType | type) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"'{obj.__qualname__}' is defined in __main__")
        return NotImplemented


def pack(message: Any) -> bytes:
    """Pickle a message. Raises UsageError if it cannot be sent to another process."""
    buffer = BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        hint = "Define functions and classes at the top level of a module that workers can import, or use the executor "
        raise UsageError("The run cannot be sent to another process", str(error), f"{hint}'local'") from error
    return buffer.getvalue()


def portable(error: BaseException) -> BaseException:
    """Return an exception that can be unpickled anywhere: itself, or the traceback of a user exception as text."""
    if type(error).__module__.partition(".")[0] in ("agentv", "builtins"):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))


_MAX_LOSSES = 2
"""How many workers a job may lose before it is recorded as an error."""
_MOST_FAILED_STARTS = 3
_VACANT_S = 1.0
"""How long replacing a lost worker may take before the other workers take over its share of jobs."""


class WorkerLost(Exception):
    """A worker ended before its jobs; the message is the reason."""


class Link(Protocol):
    """A connection to a worker in another process. `capacity` is the number of jobs it can run concurrently.

    `lent` is the number of slots that can be used in addition, because their jobs wait for a retry.
    """

    capacity: int
    lent: int

    def begin(self, share: int) -> None:
        """Run at most this many jobs at a time; may be called again."""

    def send(self, jobs: list[NumberedJob]) -> None:
        """Queue jobs; they start in this order."""

    def stop(self) -> None:
        """Drop the jobs that have not made a call yet. They are received as None."""

    async def receive(self) -> list[NumberedResult]:
        """Wait for results, or until `lent` changes. Raises WorkerLost, or the exception the worker raised."""
        ...

    async def close(self) -> tuple[str, ...]:
        """Cancel the jobs and end the worker's processes; return the calls missing from a replay."""
        ...


Start = Callable[[], Coroutine[Any, Any, Link]]
"""Start a worker and wait until it is ready. Raises WorkerLost, or the error in the spec."""


class Window:
    """The number of jobs to queue for a worker: those it will start within `ahead_s`.

    Zero for long jobs, so that none waits for a busy worker while another is free; many for short ones.
    """

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s
        self._rate: float | None = None
        self._since = time.monotonic()
        self._done = 0

    @property
    def size(self) -> int:
        """The number of jobs to queue."""
        return int((self._rate or 0.0) * self._ahead_s)

    def count(self, jobs: int) -> None:
        """Update the rate with the number of jobs completed since the last call."""
        now = time.monotonic()
        self._done += jobs
        elapsed = now - self._since
        if elapsed < self._ahead_s / 10:
            return
        rate = self._done / elapsed
        self._rate = rate if self._rate is None else (self._rate + rate) / 2
        self._since, self._done = now, 0


class Crew:
    """Runs jobs on workers in other processes. A job whose worker is lost runs once more.

    A worker starts jobs in the order they were sent, so only the first `share` jobs of a lost worker can have started.
    These may have caused the loss and run separately from all other jobs; the rest are simply queued again.
    """

    def __init__(self, spec: WorkSpec, jobs: Jobs, emit: Emit, *, ahead_s: float) -> None:
        self._spec = spec
        self._jobs = jobs
        self._emit = emit
        self._ahead_s = ahead_s
        self._capacity = 1
        self._places = 1
        self._links: set[Link] = set()
        self._numbers = count()
        self._again: deque[NumberedJob] = deque()
        self._suspects: deque[NumberedJob] = deque()
        self._losses: Counter[int] = Counter()
        self._in_flight = 0
        self._is_exhausted = self._is_stopped = False
        self._changed = asyncio.Event()
        self._finished = asyncio.Event()
        self._failed_starts = 0
        self._missing: set[str] = set()

    async def run(self, start: Start, most: int) -> tuple[str, ...]:
        """Run every job on at most this many workers; return the calls missing from a replay.

        The first worker shows whether the spec is valid and how many workers are useful, before any job is taken.
        """
        first = await self._hire(start)
        self._capacity = first.capacity
        self._places = min(most, first.capacity)
        async with asyncio.TaskGroup() as group:
            for number in range(self._places):
                group.create_task(self._staff(start, first if number == 0 else None))
        return tuple(sorted(self._missing))

    @property
    def _share(self) -> int:
        """The number of jobs each worker runs at a time."""
        return ceil(self._capacity / max(1, self._places))

    def _change_places(self, change: int) -> None:
        self._places += change
        for link in self._links:
            link.begin(self._share)

    async def _staff(self, start: Start, link: Link | None) -> None:
        """Keep one place staffed until all jobs are done."""
        is_vacant = False
        while not self._finished.is_set():
            link = link or await self._replacement(start, is_vacant)
            if link is not None:
                self._links.add(link)
                try:
                    await self._feed(link)
                finally:
                    self._links.discard(link)
                    self._missing.update(await link.close())
            link, is_vacant = None, True

    async def _hire(self, start: Start) -> Link:
        while True:
            try:
                return await start()
            except WorkerLost as lost:
                self._failed_starts += 1
                if self._failed_starts == _MOST_FAILED_STARTS:
                    raise AgentvError("Worker processes die before they can run a job", str(lost)) from None

    async def _replacement(self, start: Start, is_vacant: bool) -> Link | None:
        """Wait for a new worker, or until all jobs are done. If it takes long, the other workers run more jobs."""
        hired, finished = asyncio.ensure_future(self._hire(start)), asyncio.ensure_future(self._finished.wait())
        both: set[asyncio.Future[Any]] = {hired, finished}
        try:
            ready, _ = await asyncio.wait(both, timeout=_VACANT_S, return_when=asyncio.FIRST_COMPLETED)
            if not ready and is_vacant:
                self._change_places(-1)
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not ready and is_vacant:
                self._change_places(+1)
            return hired.result() if hired.done() else None
        finally:
            hired.cancel()
            finished.cancel()

    async def _feed(self, link: Link) -> None:
        """Keep a worker busy until all jobs are done or it is lost."""
        link.begin(self._share)
        window, flight = Window(self._ahead_s), dict[int, Job]()
        try:
            while not self._finished.is_set():
                if batch := self._take(flight, self._share + link.lent + window.size):
                    flight.update(batch)
                    link.send(batch)
                if flight:
                    results = await link.receive()
                    window.count(len(results))
                    self._receive(results, flight)
                elif not self._finished.is_set():
                    self._changed.clear()
                    await self._changed.wait()
        except WorkerLost as lost:
            # With lent slots, more than the first jobs may have started.
            self._put_back(flight, len(flight) if link.lent else self._share, str(lost))

    def _take(self, flight: dict[int, Job], size: int) -> list[NumberedJob]:
        batch: list[NumberedJob] = []
        if self._suspects and not flight:
            batch = [self._suspects.popleft() for _ in range(min(len(self._suspects), max(1, self._share // 8)))]
        elif not (flight and next(iter(flight)) in self._losses):  # suspects run alone
            while len(flight) + len(batch) < size and (job := self._next()) is not None:
                batch.append(job)
        self._in_flight += len(batch)
        self._settle()
        return batch

    def _next(self) -> NumberedJob | None:
        if self._again:
            return self._again.popleft()
        job = None
        if not self._is_exhausted:
            try:
                job = next(self._jobs)
            except StopIteration:
                self._is_exhausted = True
        return None if job is None else (next(self._numbers), job)

    def _receive(self, results: list[NumberedResult], flight: dict[int, Job]) -> None:
        self._failed_starts = 0
        for number, result in results:
            if flight.pop(number, None) is not None:
                self._in_flight -= 1
                self._pass_on(result)
        self._settle()
        self._changed.set()  # a job may be ready now

    def _pass_on(self, result: Result | UnfinishedJob | None) -> None:
        """Emit a result; if the run has to stop, drop the jobs that have not made a call yet."""
        if result is None or not self._emit(result) or self._is_stopped:
            return
        self._is_stopped = self._is_exhausted = True
        self._again.clear()
        self._suspects.clear()
        for link in self._links:
            link.stop()

    def _put_back(self, flight: dict[int, Job], started: int, how: str) -> None:
        self._in_flight -= len(flight)
        for position, (number, job) in enumerate(flight.items()):
            if self._is_stopped:
                break
            if position >= started:
                self._again.append((number, job))
                continue
            self._losses[number] += 1
            if self._losses[number] < _MAX_LOSSES:
                self._suspects.append((number, job))
            else:
                self._pass_on(self._spec.failed(job, f"The worker process died twice while running this job: {how}"))
        self._settle()
        self._changed.set()

    def _settle(self) -> None:
        if self._is_exhausted and not (self._in_flight or self._again or self._suspects):
            self._finished.set()
            self._changed.set()
