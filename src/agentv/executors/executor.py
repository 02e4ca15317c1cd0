"""The executor interface: a spec and jobs go in as plain data, results come out. Workers are built where they run."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import ClassVar, Protocol

import msgspec

from agentv.executors.budget import Budget, BudgetTerms
from agentv.executors.limiter import EndpointLimit, Limiter
from agentv.executors.shares import FileLease, Lease
from agentv.model.job import Job
from agentv.model.result import Result
from agentv.support.byte_gate import ByteGate


class UnfinishedJob(msgspec.Struct, frozen=True):
    """A job without a record: the budget is used up, or its target or its judge is down (`outage` is the message).

    Its calls, if there were any, cost this much. A worker that cannot write to the run folder returns the `answer` that
    is not scored yet, as a line for the log of answers. `target` is the target that is down.
    """

    cost_usd: float = 0.0
    outage: str | None = None
    answer: bytes | None = None
    target: str | None = None


Emit = Callable[[Result | UnfinishedJob], bool | None]
"""Receives what a job ended with; returns True if the run has stopped, so that no other job should start."""

Jobs = Iterator[Job | None]

TURN_S = 0.02
"""How long a task may run without yielding to the event loop, which handles signals and timers."""


class RunBudget(Protocol):
    """The budget of a run; see `agentv.executors.budget.Budget`."""

    @property
    def is_exceeded(self) -> bool: ...

    async def start(self, target: str, expected_usd: float | None = ...) -> bool: ...

    def spend(self, cost: float, *, in_job: bool = ...) -> None: ...

    def end(self, target: str, cost: float, *, ok: bool) -> None: ...


MOST_LENT = 1000
"""Slots that can be lent: jobs that wait for a retry or for the end of an outage."""


class JobSlots:
    """The slots for concurrent jobs in a process. A job that waits for a retry lends its slot to another job.

    `changed` is called when a slot is lent or taken back.
    """

    def __init__(self) -> None:
        self.total = 1
        self._lent = 0
        self.changed: Callable[[], None] = lambda: None

    @property
    def lent(self) -> int:
        """The number of jobs that may run in addition to `total`."""
        return min(self._lent, MOST_LENT)

    async def sleep(self, seconds: float) -> None:
        """Wait without a slot. The job continues even if its slot is still in use."""
        if not seconds:
            return
        with self.lent_slot():
            await asyncio.sleep(seconds)

    @contextmanager
    def lent_slot(self) -> Iterator[None]:
        """Let another job use the slot while the context is active."""
        self._lent += 1
        self.changed()
        try:
            yield
        finally:
            self._lent -= 1
        self.changed()


class Limits(Protocol):
    """The endpoint limits of a worker, shared by all workers of a run. `cores` is the total of all workers.

    Calls to different models of an endpoint have different lanes. `on_stop` registers a function that drops jobs which
    have not made a call yet, when the run stops.
    """

    @property
    def cores(self) -> int: ...

    @property
    def slots(self) -> JobSlots: ...

    def limit(self, endpoint: str, start: int, most: int, lane: str = ...) -> EndpointLimit: ...

    def budget(self, terms: BudgetTerms) -> RunBudget: ...

    def report(self, text: str | None) -> None: ...

    def on_stop(self, drop: Callable[[], None]) -> None: ...


class StoppableLimits:
    """Base of the limits of a process. A stopped run drops the jobs that have not made a call yet."""

    def __init__(self) -> None:
        self.slots = JobSlots()
        self.memory = ByteGate()
        self.is_stopped = False
        self._drops: list[Callable[[], None]] = []

    def on_stop(self, drop: Callable[[], None]) -> None:
        """Call a function when the run stops; now, if it has stopped."""
        self._drops.append(drop)
        if self.is_stopped:
            drop()

    def stop(self) -> None:
        """Drop the jobs that have not made a call yet."""
        if not self.is_stopped:
            self.is_stopped = True
            for drop in self._drops:
                drop()


class Worker(Protocol):
    """Runs jobs in one process. `capacity` limits concurrent jobs; `missing` are the calls missing from a replay."""

    @property
    def capacity(self) -> int: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    def run(self, job: Job) -> Awaitable[Result | UnfinishedJob]: ...

    async def aclose(self) -> None: ...


class WorkSpec(Protocol):
    """The data a worker is built from. Can be pickled."""

    def open(self, limits: Limits) -> Worker: ...

    def failed(self, job: Job, message: str) -> Result:
        """Return the record of a job that no worker could run."""
        ...


class ExecutorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of executors."""

    processes: int | None = None
    ray_address: str | None = None


class Load(msgspec.Struct, frozen=True):
    """The load shown in the progress display: the concurrency, and how long an idle endpoint waits.

    `down` is the endpoint that has been down for the longest time, `down_s`, since the start if it is `unreached`.
    `down_targets` are the targets that call it. `text` is what else the run waits for, such as a batch. `failing` are
    the calls that wait for a retry at endpoints that are not down, by the class of their failure.
    """

    concurrency: int = 0
    waits_s: float = 0.0
    down: str | None = None
    down_s: float = 0.0
    unreached: bool = False
    text: str | None = None
    failing: dict[str, int] = {}
    down_targets: tuple[str, ...] = ()


class Executor(Protocol):
    """Runs every job once. `load` may be called from another thread.

    With `is_remote`, its workers run on other machines, and their spec contains no secrets.
    """

    is_remote: ClassVar[bool]

    def __init__(self, options: ExecutorOptions) -> None: ...

    async def run(self, spec: WorkSpec, jobs: Jobs, emit: Emit) -> tuple[str, ...]:
        """Run until every job has been emitted; return the calls missing from a replay.

        Jobs are pulled as workers become free, but not before a worker has opened its targets. None instead of a job
        means that no job is ready: pull again after the next result has been emitted. Cancelling this
        coroutine cancels the jobs in flight and lets them clean up.
        """
        ...

    def load(self) -> Load: ...


class LocalLimits(StoppableLimits):
    """The limiters of one process, by endpoint. With `shared`, other processes that call a URL count as well."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, shared: bool = True) -> None:
        super().__init__()
        self._clock = clock
        self._shared = shared
        self.cores = os.cpu_count() or 1
        self._limiters: dict[str, Limiter] = {}
        self._text: str | None = None
        self._budget: Budget | None = None

    def limit(self, endpoint: str, start: int, most: int, lane: str = "") -> EndpointLimit:
        """Return a lane of an endpoint. A configured limit replaces an adaptive one, and a lower one a higher."""
        limiter = self._limiters.get(endpoint)
        if limiter is None:
            lease = self._lease(endpoint)
            limiter = self._limiters[endpoint] = Limiter(start, most, clock=self._clock, lease=lease)
            self.on_stop(limiter.stop)
        else:
            limiter.endpoint.restrict(start, most)
        return limiter.lane(lane)

    def _lease(self, endpoint: str) -> Lease | None:
        return FileLease(endpoint) if self._shared and "://" in endpoint else None

    def budget(self, terms: BudgetTerms) -> RunBudget:
        """Return the budget of the run."""
        self._budget = Budget(terms.limit_usd, terms.share)
        return self._budget

    def close(self) -> None:
        """Leave the limits and the budget to other processes."""
        if self._budget is not None:
            self._budget.close()
        for limiter in self._limiters.values():
            limiter.close()

    def report(self, text: str | None) -> None:
        """Show what the run waits for in the progress display."""
        self._text = text

    def load(self) -> Load:
        """Return the load over all endpoints."""
        limiters, now = dict(self._limiters), self._clock()
        concurrency = sum(limiter.endpoint.limit(now) for limiter in limiters.values())
        idle = [limiter.endpoint for limiter in limiters.values() if not limiter.endpoint.in_flight]
        open_at = [endpoint.open_at for endpoint in idle if endpoint.waiting]
        waits_s = max([0.0, *(at - now for at in open_at if at < inf)])
        lanes = [(name, lane) for name, limiter in limiters.items() for lane in list(limiter.lanes.values())]
        down_for_s = [(down_s, name, lane) for name, lane in lanes if (down_s := lane.lane.down_for_s(now))]
        down_s, down, lane = max(down_for_s, key=lambda each: each[0], default=(0.0, None, None))
        up = [lane.lane for _, lane in lanes if not lane.lane.down_for_s(now)]
        failing = Counter(ticket.reason for lane in up for ticket in list(lane.failures))
        text = self._text or ("large answers wait for memory" if self.memory.waiting else None)
        if down is None or lane is None:
            return Load(concurrency, waits_s, text=text, failing=failing)
        where, names = down.partition("#")[0], tuple(sorted(lane.names))
        return Load(concurrency, waits_s, where, down_s, lane.lane.is_unreached, text, failing, names)
