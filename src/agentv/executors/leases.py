"""Share endpoint limits between workers: permits live in one hub and are leased to workers in batches.

A worker keeps a permit for its next call while the endpoint has room, so that most calls need no message at all. It
returns permits at the latest `_FLUSH_S` after it has no use for them, or at once when another worker waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from agentv.executors.executor import Load, LocalLimits
from agentv.executors.limiter import Limiter

_FLUSH_S = 0.1

Call = Callable[..., Awaitable[Any]]
"""Calls a method of the hub: `await call("take", endpoint, wanted)`."""


class Endpoint(NamedTuple):
    """An endpoint and its limits: calls in flight at the start, and at most."""

    name: str
    start: int
    most: int


class CallReport(NamedTuple):
    """How a call ended, as `Limiter.leave` wants to know it."""

    ok: bool = True
    refused: bool = False
    overloaded: bool = False
    retry_after_s: float | None = None


UNUSED = CallReport(ok=False)


class LimitHub:
    """The limits of a run. Workers take permits and return them; a lost worker's permits are returned for it."""

    def __init__(self) -> None:
        self._limits = LocalLimits()
        self._held: dict[str, Counter[Endpoint]] = {}
        self._lost: set[str] = set()

    def load(self) -> Load:
        """Return the load over all endpoints."""
        return self._limits.load()

    async def take(self, worker: str, endpoint: Endpoint, wanted: int) -> tuple[int, bool]:
        """Wait for at least one permit; return how many there are and whether they may be kept between calls."""
        limiter = self._limits.limit(*endpoint)
        await limiter.enter()
        granted = 1
        while granted < wanted and limiter.try_enter():
            granted += 1
        self._held.setdefault(worker, Counter())[endpoint] += granted
        if worker in self._lost:
            self.lose(worker)
        return granted, limiter.has_room

    async def give(self, worker: str, endpoint: Endpoint, reports: list[CallReport], reused: int) -> bool:
        """Return permits with how their last calls ended, and the number of calls answered under permits kept."""
        limiter = self._limits.limit(*endpoint)
        limiter.renew(reused)
        held = self._held.get(worker, Counter[Endpoint]())
        for report in reports[: held[endpoint]]:
            held[endpoint] -= 1
            _leave(limiter, report)
        return limiter.has_room

    def lose(self, worker: str) -> None:
        """Return all permits of a worker that is gone."""
        self._lost.add(worker)
        for endpoint, count in self._held.pop(worker, {}).items():
            for _ in range(count):
                _leave(self._limits.limit(*endpoint), UNUSED)


def _leave(limiter: Limiter, report: CallReport) -> None:
    limiter.leave(
        ok=report.ok, refused=report.refused, overloaded=report.overloaded, retry_after_s=report.retry_after_s
    )


class LeasedLimits:
    """The limits of one worker, leased from the hub. `cores` are those of all workers."""

    def __init__(self, call: Call, cores: int) -> None:
        self.cores = cores
        self._call = call
        self._limits: dict[str, LeasedLimit] = {}

    def limit(self, endpoint: str, start: int, most: int) -> LeasedLimit:
        """Return the limit of an endpoint."""
        if endpoint not in self._limits:
            self._limits[endpoint] = LeasedLimit(Endpoint(endpoint, start, most), self._call)
        return self._limits[endpoint]


class LeasedLimit:
    """The limit of one endpoint in one worker."""

    def __init__(self, endpoint: Endpoint, call: Call) -> None:
        self._endpoint = endpoint
        self._call = call
        self._idle = 0
        self._least_idle = 0
        self._may_keep = False
        self._reused = 0
        self._reports: list[CallReport] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taking: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None

    def try_enter(self) -> bool:
        """Use a permit that is here, if there is one."""
        if not self._idle:
            return False
        self._idle -= 1
        self._least_idle = min(self._least_idle, self._idle)
        return True

    async def enter(self) -> None:
        """Wait for a permit."""
        if self.try_enter():
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._return(UNUSED)
            raise

    def leave(
        self, *, ok: bool = True, refused: bool = False, overloaded: bool = False, retry_after_s: float | None = None
    ) -> None:
        """Keep the permit for the next call here when no call waits for one, else return it to the hub."""
        if ok and self._may_keep and not self._waiting and not retry_after_s:
            self._reused += 1
            self._idle += 1
            self._flush_later()
        else:
            self._return(CallReport(ok, refused, overloaded, retry_after_s))

    def _return(self, report: CallReport) -> None:
        self._reports.append(report)
        self._flush_later()

    def _add(self, permits: int) -> None:
        self._idle += permits
        while self._idle and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                self._idle -= 1
                place.set_result(None)

    async def _take(self) -> None:
        try:
            while wanted := sum(not place.done() for place in self._waiting):
                granted, self._may_keep = await self._call("take", self._endpoint, wanted)
                self._add(granted)
        except Exception as error:  # the hub is gone: every call that waits for it fails
            for place in self._waiting:
                if not place.done():
                    place.set_exception(error)

    def _flush_later(self) -> None:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        """Report until nothing is left to report: returned permits at once, kept ones when they had a chance."""
        while self._reports or self._reused or self._idle:
            if not self._reports:
                self._least_idle = self._idle
                await asyncio.sleep(_FLUSH_S)
            unused = min(self._least_idle, self._idle) if self._may_keep else self._idle
            self._idle -= unused
            reports, reused = [*self._reports, *[UNUSED] * unused], self._reused
            self._reports, self._reused = [], 0
            self._may_keep = await self._call("give", self._endpoint, reports, reused)
