"""Share endpoint limits between workers: one hub holds the permits and leases them to workers in batches.

While the endpoint has room, a worker keeps a permit for its next call, so most calls need no message to the hub. It
returns unused permits within `_FLUSH_S`, or immediately if another worker waits for one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from agentv.executors.budget import BudgetHub, BudgetTerms, LeasedBudget
from agentv.executors.call_queue import UNLIMITED, WaitingCalls
from agentv.executors.executor import Load, LocalLimits, StoppableLimits
from agentv.executors.limiter import Lane, Limiter
from agentv.executors.outage import ANSWERED, UNANSWERED, CallReport, EndpointDown
from agentv.model.response import FailedCalls

_FLUSH_S = 0.1

Call = Callable[..., Awaitable[Any]]
"""Call a method of the hub: `await call("take", endpoint, wanted)`."""


class Endpoint(NamedTuple):
    """A lane of an endpoint and its limits: calls in flight at the start, and at most. It may have no outages."""

    name: str
    start: int
    most: int
    lane: str = ""
    ignores_outages: bool = False


class EndpointState(NamedTuple):
    """The state of a lane: whether permits may be kept between calls, its counters, and its outage."""

    has_room: bool = False
    answers: int = 0
    failures_in_a_row: int = 0
    down_for_s: float = 0.0
    may_be_down: bool = False
    longest_wait_s: float = UNLIMITED

    @classmethod
    def of(cls, limiter: Limiter, lane: Lane) -> EndpointState:
        """Return the state of a lane."""
        counts = (lane.answers, lane.failures_in_a_row)
        return cls(limiter.has_room(lane), *counts, lane.down_for_s, lane.may_be_down, lane.longest_wait_s)


class LimitHub(BudgetHub):
    """The limits and the budget of a run. Workers take and return permits; those of lost workers are taken back."""

    def __init__(self) -> None:
        super().__init__()
        self._limits = LocalLimits()
        self._held: dict[str, Counter[Endpoint]] = {}
        self._lost: set[str] = set()

    def close(self) -> None:
        """Leave the limits and the budget to other processes."""
        super().close()
        self._limits.close()

    def load(self) -> Load:
        """Return the load over all endpoints."""
        return self._limits.load()

    async def take(
        self,
        worker: str,
        endpoint: Endpoint,
        wanted: int,
        patience_s: float = UNLIMITED,
        first: tuple[bool, FailedCalls | None] = (False, None),
    ) -> tuple[int, EndpointState]:
        """Wait for a permit; return the number granted, 0 after an outage of `patience_s`.

        `first` is whether the first call that waits opens a job, and its failed calls.
        """
        limiter, lane = self._lane(endpoint)
        try:
            await lane.enter(patience_s, opens_job=first[0], failed=first[1])
        except EndpointDown:
            return 0, EndpointState.of(limiter, lane)
        granted = 1
        while granted < wanted and lane.try_enter():
            granted += 1
        self._held.setdefault(worker, Counter())[endpoint] += granted
        if worker in self._lost:
            self.lose(worker)
        return granted, EndpointState.of(limiter, lane)

    async def give(self, worker: str, endpoint: Endpoint, reports: list[CallReport], reused: int) -> EndpointState:
        """Take permits back, with how their last calls ended; `reused` counts calls made with kept permits."""
        limiter, lane = self._lane(endpoint)
        limiter.renew(reused, lane)
        held = self._held.get(worker, Counter[Endpoint]())
        for report in reports[: held[endpoint]]:
            held[endpoint] -= 1
            lane.leave(report if report.request is None else report._replace(request=(worker, report.request)))
        return EndpointState.of(limiter, lane)

    def _lane(self, endpoint: Endpoint) -> tuple[Limiter, Lane]:
        limiter = self._limits.limiter(endpoint.name, endpoint.start, endpoint.most)
        lane = limiter.lane(endpoint.lane)
        lane.ignores_outages = endpoint.ignores_outages
        return limiter, lane

    def lose(self, worker: str) -> None:
        """Take back all permits of a lost worker, and what its jobs reserved of the budget."""
        super().lose(worker)
        self._lost.add(worker)
        for endpoint, count in self._held.pop(worker, {}).items():
            for _ in range(count):
                self._lane(endpoint)[1].leave(UNANSWERED)


class LeasedLimits(StoppableLimits):
    """The limits of one worker, leased from the hub. `cores` is the total of all workers."""

    def __init__(self, call: Call, cores: int) -> None:
        super().__init__()
        self.cores = cores
        self._call = call
        self._limits: dict[tuple[str, str], LeasedLimit] = {}

    def limit(self, endpoint: str, start: int, most: int, lane: str = "") -> LeasedLimit:
        """Return a lane of an endpoint."""
        limit = self._limits.get((endpoint, lane))
        if limit is None:
            limit = self._limits[endpoint, lane] = LeasedLimit(Endpoint(endpoint, start, most, lane), self._call)
            self.on_stop(limit.stop)
        return limit

    def report(self, text: str | None) -> None:
        """Do nothing: each worker waits for something else."""

    def budget(self, terms: BudgetTerms) -> LeasedBudget:
        """Return the budget of the run."""
        return LeasedBudget(terms, self._call)


class LeasedLimit:
    """The limit of one lane in one worker. Its counters are those of the hub, as of the last message.

    `answered_start` is the start of the last call that was answered in this worker.
    """

    def __init__(self, endpoint: Endpoint, call: Call) -> None:
        self._endpoint = endpoint
        self._call = call
        self._state = EndpointState()
        self._idle = 0
        self._least_idle = 0
        self._reused = 0
        self._reports: list[CallReport] = []
        self._waiting = WaitingCalls()
        self._taking: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.answered_start = -UNLIMITED

    @property
    def answers(self) -> int:
        """The number of answered calls."""
        return self._state.answers

    @property
    def failures_in_a_row(self) -> int:
        """The number of failed calls since the last answer."""
        return self._state.failures_in_a_row

    @property
    def down_for_s(self) -> float:
        """Seconds without an answer if the endpoint is down, else 0."""
        return self._state.down_for_s

    @property
    def may_be_down(self) -> bool:
        """Whether failures may be an outage."""
        return self._state.may_be_down

    @property
    def longest_wait_s(self) -> float:
        """How long calls may wait for an answer."""
        return self._state.longest_wait_s

    def now(self) -> float:
        """Return the time of a clock of this process."""
        return time.monotonic()

    def ignore_outages(self) -> None:
        """Never wait for this endpoint: failures are not an outage."""
        self._endpoint = self._endpoint._replace(ignores_outages=True)

    def try_enter(self) -> bool:
        """Use a kept permit, if there is one."""
        if not self._idle or self._is_stopped:
            return False
        self._idle -= 1
        self._least_idle = min(self._least_idle, self._idle)
        return True

    async def enter(
        self, patience_s: float = UNLIMITED, *, opens_job: bool = False, failed: FailedCalls | None = None
    ) -> None:
        """Wait for a permit. Raises EndpointDown after an outage of `patience_s`.

        After `stop`, a call that `opens_job` is cancelled.
        """
        if self.try_enter():
            return
        if self._is_stopped and opens_job:
            raise asyncio.CancelledError
        place = self._waiting.add(patience_s, opens_job, failed)
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._return(UNANSWERED)
            raise

    def leave(self, report: CallReport = ANSWERED, started: float = -UNLIMITED) -> None:
        """Keep the permit for the next call if the endpoint has room, else return it to the hub."""
        if report.ok and started > self.answered_start:
            self.answered_start = started
        if report.ok and self._state.has_room and not self._waiting and not report.retry_after_s:
            self._reused += 1
            self._idle += 1
            self._flush_later()
        else:
            self._return(report)

    def stop(self) -> None:
        """Cancel the first calls of jobs, now and later. Other calls go on: their jobs have been paid for."""
        self._is_stopped = True
        self._waiting.drop_jobs()

    def _return(self, report: CallReport) -> None:
        self._reports.append(report)
        self._flush_later()

    def _add(self, permits: int) -> None:
        self._idle += permits
        while self._idle and self._waiting.start_next(self._state.down_for_s > 0):
            self._idle -= 1

    async def _take(self) -> None:
        waiting = self._waiting
        try:
            while wanted := waiting.prune():
                patience_s, first = waiting.least_patience_s, waiting.first_kind
                granted, self._state = await self._call("take", self._endpoint, wanted, patience_s, first)
                self._add(granted)
                if not granted and waiting.dismiss(self._state.down_for_s, self._state.longest_wait_s):
                    await asyncio.sleep(_FLUSH_S)  # the run may stop
        except Exception as error:  # the hub is gone
            waiting.fail(error)

    def _flush_later(self) -> None:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        """Send returned permits to the hub immediately, and kept ones if they stay unused for a while."""
        while self._reports or self._reused or self._idle:
            if not self._reports:
                self._least_idle = self._idle
                await asyncio.sleep(_FLUSH_S)
            unused = min(self._least_idle, self._idle) if self._state.has_room else self._idle
            self._idle -= unused
            reports, reused = [*self._reports, *[UNANSWERED] * unused], self._reused
            self._reports, self._reused = [], 0
            self._state = await self._call("give", self._endpoint, reports, reused)
