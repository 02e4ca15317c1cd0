"""Adaptive concurrency and rate of the calls to an endpoint.

Three controls work together. The limit on calls in flight doubles with every round trip, and is halved when the
endpoint is overloaded or first refuses calls (429). The pace (calls started per second) is unlimited until that
refusal. Then it starts at the rate the endpoint accepted, grows slowly, and is cut by further refusals; halving the
concurrency again would starve slow calls. A few failures among many calls change nothing. While an endpoint that has
answered before answers nothing at all, calls wait, except one probe at a time; then the former limit returns quickly.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from agentv.executors.call_pace import CallPace
from agentv.executors.lease_file import LeaseFile
from agentv.executors.outage import Congestion, EndpointDown, Outage

_TICK_S, _DOUBLING_S = 0.25, 2.0
"""While calls wait, the limit grows this often, and doubles in this time, whatever their latency."""
_HALVING_S = 0.5
_RESUMED = 0.5
"""The fraction of the former limit with which calls resume after an outage."""
UNLIMITED = float("inf")


class CallReport(NamedTuple):
    """How a call ended: answered, refused because of a rate limit, or failed: the endpoint is overloaded or down.

    A call that ended in another way, such as a cancelled one, does not count.
    """

    ok: bool = True
    refused: bool = False
    overloaded: bool = False
    retry_after_s: float | None = None


ANSWERED, UNANSWERED = CallReport(), CallReport(ok=False)


class WaitingCalls(deque[tuple["asyncio.Future[None]", float, bool]]):
    """Calls that wait for a place, first come, first served.

    Each has the longest outage it waits for, and whether it is the first call of its job.
    """

    def add(self, patience_s: float, opens_job: bool) -> asyncio.Future[None]:
        """Return a future that is done when the call may start."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append((place, patience_s, opens_job))
        return place

    def start_next(self) -> bool:
        """Let the first call start; return whether there was one."""
        while self:
            place, _, _ = self.popleft()
            if not place.done():
                place.set_result(None)
                return True
        return False

    def prune(self) -> int:
        """Remove cancelled calls; return the number of calls left."""
        left = [each for each in self if not each[0].done()]
        self.clear()
        self.extend(left)
        return len(self)

    @property
    def least_patience_s(self) -> float:
        """The shortest outage that one of the calls waits for."""
        return min((patience_s for _, patience_s, _ in self), default=UNLIMITED)

    def dismiss(self, down_for_s: float) -> None:
        """Fail the calls that do not wait for an outage of this length."""
        for place, patience_s, _ in self:
            if patience_s <= down_for_s and not place.done():
                place.set_exception(EndpointDown(down_for_s))
        self.prune()

    def drop_jobs(self) -> None:
        """Cancel the calls whose jobs have not made a call yet."""
        for place, _, opens_job in self:
            if opens_job:
                place.cancel()
        self.prune()

    def fail(self, error: Exception) -> None:
        """Fail all calls."""
        for place, _, _ in self:
            if not place.done():
                place.set_exception(error)
        self.clear()


class Limiter:
    """The limit of one endpoint, shared by all targets and judges that call it. Used in one event loop only.

    `answers` and `failures` count calls by how they ended.
    """

    def __init__(
        self, start: int, most: int, *, clock: Callable[[], float] = time.monotonic, lease: LeaseFile | None = None
    ) -> None:
        self._clock = clock
        self._lease = lease
        self._leased = UNLIMITED if lease is None else 0
        self._asking: asyncio.TimerHandle | None = None
        self._limit = float(start)
        self.most = max(start, most)
        self._is_fixed = start == most
        self.in_flight = 0
        self.answers = self.failures = 0
        self._waiting = WaitingCalls()
        self._is_stopped = False
        self._closed_until = 0.0
        self._halved_at = float("-inf")
        self._goal = float(self.most)
        self._pace = CallPace()
        self._outage = Outage()
        self._congestion = Congestion()
        self._timer: asyncio.TimerHandle | None = None
        self._ramp: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return int(self._limit)

    @property
    def closed_for_s(self) -> float:
        """Seconds until calls may start again after a Retry-After; may be called from another thread."""
        return max(0.0, self._closed_until - self._clock()) if self._closed_until else 0.0

    @property
    def down_for_s(self) -> float:
        """Seconds without an answer if the endpoint is down, else 0; may be called from another thread."""
        return self._outage.lasts_s(self._clock())

    @property
    def failures_in_a_row(self) -> int:
        """The number of failed calls since the last answer."""
        return self._outage.failures

    @property
    def has_room(self) -> bool:
        """Whether a new call waits for nothing but the concurrency limit."""
        is_open = self._closed_until <= self._clock() and self._outage.since is None
        return is_open and not self._waiting and not self._pace.is_limited

    def restrict(self, start: int, most: int) -> None:
        """Apply the limits of another target at this endpoint: configured before adaptive ones, then the lower ones."""
        is_fixed, was_fixed = start == most, self._is_fixed
        if is_fixed and (not was_fixed or most < self.most):
            self.most, self._is_fixed = most, True
            self._limit = float(most) if not was_fixed else min(self._limit, float(most))
            self._goal = min(self._goal, float(most))

    def renew(self, calls: int) -> None:
        """Count answered calls whose places were reused immediately."""
        if calls:
            now = self._clock()
            self.answers += calls
            if self._outage.failures:
                self._recover(self._outage)
            for _ in range(calls):
                self._pace.started(now)
                if self.in_flight + 1 >= self.limit and self._limit < self.most:
                    self._grow()
        if self._waiting:
            self._wake()

    def try_enter(self) -> bool:
        """Take a place if one is free, without waiting."""
        if self._waiting or self.in_flight + 1 > self._limit or self.in_flight >= self._leased or self._is_stopped:
            return False
        now = self._clock()
        is_free = not self._closed_until and self._outage.since is None and not self._pace.is_limited
        if not is_free:
            if self._delay_s(now) > 0:
                return False
            self._outage.probed(now)
        self.in_flight += 1
        self._pace.started(now)
        return True

    async def enter(self, patience_s: float = UNLIMITED, *, opens_job: bool = False) -> None:
        """Wait for a place, first come, first served. Raises EndpointDown after an outage of `patience_s`.

        After `stop`, a call that `opens_job` is cancelled.
        """
        if self.try_enter():
            return
        if self._is_stopped and opens_job:
            raise asyncio.CancelledError
        place = self._waiting.add(patience_s, opens_job)
        if self._lease is not None and self._asking is None:
            self._renew_lease(self._lease)
        self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.in_flight -= 1
            self._wake()
            raise

    def leave(self, report: CallReport = ANSWERED) -> None:
        """Give a place back and adapt the limits to how the call ended."""
        self.in_flight -= 1
        if report.ok:
            self.answers += 1
            if self._outage.failures:
                self._recover(self._outage)
            if report.retry_after_s:
                # Answered, but the next call has to wait: the rate limit is used up, the concurrency is fine.
                self._closed_until = max(self._closed_until, self._clock() + report.retry_after_s)
            elif self.in_flight + 2 >= self.limit and self._limit < self.most:
                self._grow()
        elif report.refused or report.overloaded:
            self._back_off(self._clock(), report.refused, report.retry_after_s or 0.0)
        elif report.retry_after_s:
            self._closed_until = max(self._closed_until, self._clock() + report.retry_after_s)
        if self._waiting:
            self._wake()

    def stop(self) -> None:
        """Cancel the first calls of jobs, now and later. Other calls go on: their jobs have been paid for."""
        self._is_stopped = True
        self._waiting.drop_jobs()

    def close(self) -> None:
        """Give back the calls leased for this process."""
        if self._asking is not None and self._lease is not None:
            self._asking.cancel()
            self._end_lease(self._lease)

    def _renew_lease(self, lease: LeaseFile) -> None:
        """Ask how many calls other processes leave to this one, and ask again later, until there are no more calls."""
        calls = self.in_flight + len(self._waiting)
        if not calls:
            self._end_lease(lease)
            return
        is_first = self._asking is None
        wanted = self.most if self._waiting else min(self.most, 2 * calls)
        self._leased, ask_after_s = lease.update(self.most, wanted, self.in_flight)
        if is_first and lease.rate is not None and not self._pace.is_limited:
            self._pace.begin(lease.rate, self._clock())
        self._asking = asyncio.get_running_loop().call_later(ask_after_s, self._renew_lease, lease)
        if not is_first:
            self._wake()

    def _end_lease(self, lease: LeaseFile) -> None:
        lease.release(self._pace.rate if self._pace.is_limited else None)
        self._leased, self._asking = 0, None

    def _recover(self, outage: Outage) -> None:
        """Return to the limits before an outage; after an overload, to the calls that the endpoint kept."""
        if outage.was_total:
            self._goal = outage.limit_before
            self._limit = max(self._limit, _RESUMED * self._goal)
            self._pace.restore(outage.rate_before)
            self._congestion.reset()
        elif self._limit < outage.limit_before and not self._congestion.is_trying:
            self._limit = max(self._limit, min(outage.limit_before, float(outage.survivors)))
        outage.answered()

    def _grow(self) -> None:
        """Allow one more call per answer, which doubles the limit with every round trip."""
        if self._congestion.may_grow(self._clock(), self.answers, self._limit):
            self._limit = min(self.most, self._limit + 1.0)

    def _back_off(self, now: float, refused: bool, wait_s: float) -> None:
        self.failures += 1
        self._closed_until = max(self._closed_until, now + wait_s)
        limit, outage = self._limit, self._outage
        if not outage.failures:
            outage.limit_before, outage.rate_before = limit, self._pace.rate
        outage.failed(now, self.answers > 0, self.in_flight, refused)
        if outage.since is not None:
            return  # probes do not change the limits
        if refused:
            was_paced = self._pace.is_limited
            # Calls in flight together fail together: count them as one event.
            if self._pace.refused(now) and not was_paced and now - self._halved_at > _HALVING_S:
                self._halved_at, self._limit = now, max(1.0, limit / 2)
        else:
            self._limit = self._congestion.failed(now, self.answers, self.in_flight, limit)
        if self._limit < limit:
            self._goal = 0.0

    def _delay_s(self, now: float) -> float:
        return max(self._closed_until - now, self._outage.probe_delay_s(now), self._pace.delay_s(now))

    def _start(self, now: float) -> None:
        self.in_flight += 1
        self._pace.started(now)
        self._outage.probed(now)

    def _wake(self) -> None:
        """Start waiting calls that have a place, and set a timer if the others only wait for time to pass."""
        if self._outage.since is not None:
            self._waiting.dismiss(self.down_for_s)
        while self._waiting and self.in_flight < self._room:
            now = self._clock()
            delay_s = self._delay_s(now)
            if delay_s > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)
                return
            if self._waiting.start_next():
                self._start(now)
        if self._waiting and self._ramp is None and self._limit < self._goal:
            self._ramp = asyncio.get_running_loop().call_later(_TICK_S, self._ramp_up)

    @property
    def _room(self) -> float:
        """The limit; during an outage the former one, because probes that hang must not prevent others."""
        return min(self._leased, self._limit if self._outage.since is None else self._outage.limit_before) // 1

    def _ramp_up(self) -> None:
        self._ramp = None
        if self._waiting and self._limit < self._goal:
            self._limit = min(self._goal, self._limit * 2 ** (_TICK_S / _DOUBLING_S))
            self._wake()
