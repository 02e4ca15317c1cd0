"""Adaptive concurrency and rate of the calls to an endpoint.

Three controls work together. The limit on calls in flight doubles with every round trip, and is halved when the
endpoint is overloaded or first refuses calls (429). The pace (calls started per second) is unlimited until that
refusal. Then it starts at the rate the endpoint accepted, grows slowly, and is cut by further refusals; halving the
concurrency again would starve slow calls. A few failures among many calls change nothing. While an endpoint that has
answered before answers nothing at all, calls wait, except one probe at a time; then the former limit returns quickly.
The calls to each model are a lane with an outage of its own; all lanes share the limit and the pace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

from agentv.executors.call_pace import CallPace
from agentv.executors.call_queue import UNLIMITED, WaitingCalls
from agentv.executors.lease_file import Adapted, LeaseFile
from agentv.executors.outage import ANSWERED, CallReport, Congestion, Outage
from agentv.model.response import FailedCalls

_TICK_S, _DOUBLING_S = 0.25, 2.0
"""While calls wait, the limit grows this often, and doubles in this time, whatever their latency."""
_HALVING_S = 0.5
_RESUMED = 0.5
"""The fraction of the former limit with which calls resume after an outage."""
GRACE_S = 10.0
"""How long calls wait for an endpoint that has not accepted a connection in this run: it may be starting."""
_DISMISSAL_S = 0.05
_AGREEMENT = 3
"""The requests in a row that have to ask for a wait (Retry-After) before others wait as well."""


class Lane:
    """The state of a lane. Calls to one model may fail while the endpoint answers those to another.

    `answers` counts answered calls, of which the one that started last started at `answered_start`. `answers_before`
    are those of the whole endpoint when the calls of this lane began to fail.
    """

    def __init__(self, endpoint: Limiter) -> None:
        self._endpoint = endpoint
        self.now = endpoint.now
        self.waiting = WaitingCalls()
        self.outage = Outage()
        self.in_flight = self.answers = self.answers_before = 0
        self.answered_start = -UNLIMITED
        self.ignores_outages = False

    @property
    def failures_in_a_row(self) -> int:
        """The number of failed calls since the last answer."""
        return self.outage.failures

    @property
    def down_for_s(self) -> float:
        """Seconds without an answer if the endpoint is down, else 0; may be called from another thread."""
        return self.outage.lasts_s(self._endpoint.now())

    @property
    def may_be_down(self) -> bool:
        """Whether failures may be an outage: the endpoint has answered calls like these, or none since they fail.

        If it only answers other calls, the model is wrong. If it never answered, the address may be wrong, unless a
        server there replied that it is unavailable.
        """
        if self.ignores_outages:
            return False
        answers, outage = self._endpoint.answers, self.outage
        has_no_others = answers == self.answers_before
        return bool(self.answers or outage.is_unreached or (has_no_others and (answers or outage.is_unavailable)))

    @property
    def longest_wait_s(self) -> float:
        """How long calls may wait for an answer: not long if the endpoint has never accepted a connection."""
        return GRACE_S if self.outage.is_unreached else UNLIMITED

    def ignore_outages(self) -> None:
        """Never wait for this endpoint: failures are not an outage."""
        self.ignores_outages = True

    def try_enter(self) -> bool:
        """Take a place if one is free, without waiting."""
        return self._endpoint.try_enter(self)

    async def enter(
        self, patience_s: float = UNLIMITED, *, opens_job: bool = False, failed: FailedCalls | None = None
    ) -> None:
        """Wait for a place; see `Limiter.enter`."""
        await self._endpoint.enter(patience_s, opens_job=opens_job, failed=failed, lane=self)

    def leave(self, report: CallReport = ANSWERED, started: float = -UNLIMITED) -> None:
        """Give a place back, with the time at which the call started; see `Limiter.leave`."""
        if report.ok and started > self.answered_start:
            self.answered_start = started
        self._endpoint.leave(report, self)


class Limiter:
    """The limit of one endpoint, shared by all targets and judges that call it. Used in one event loop only.

    `answers` counts answered calls. Methods without a lane use the first one.
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
        self.answers = 0
        self.lanes: dict[str, Lane] = {}
        self._unresumed = 0  # calls in `enter`: those that wait, and those that go on in this turn of the loop
        self._first_lane = self.lane("")
        self._is_stopped = False
        self._closed_until = 0.0
        self._waits: dict[Hashable, float] = {}
        self._halved_at = float("-inf")
        self._goal = float(self.most)
        self._pace = CallPace()
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

    def now(self) -> float:
        """Return the time of the limiter's clock."""
        return self._clock()

    def lane(self, name: str) -> Lane:
        """Return the lane of a model or target."""
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(self)
        return lane

    def has_room(self, lane: Lane) -> bool:
        """Whether a new call waits for nothing but the concurrency limit."""
        is_open = self._closed_until <= self._clock() and lane.outage.since is None
        return is_open and not self._waiting and not self._pace.is_limited

    @property
    def _waiting(self) -> int:
        """The number of calls that wait."""
        return sum(map(len, [lane.waiting for lane in self.lanes.values()]))

    def restrict(self, start: int, most: int) -> None:
        """Apply the limits of another target at this endpoint: configured before adaptive ones, then the lower ones."""
        is_fixed, was_fixed = start == most, self._is_fixed
        if is_fixed and (not was_fixed or most < self.most):
            self.most, self._is_fixed = most, True
            self._limit = float(most) if not was_fixed else min(self._limit, float(most))
            self._goal = min(self._goal, float(most))

    def renew(self, calls: int, lane: Lane | None = None) -> None:
        """Count answered calls whose places were reused immediately."""
        if calls:
            now, lane = self._clock(), lane or self._first_lane
            self.answers += calls
            lane.answers += calls
            if lane.outage.failures:
                self._recover(lane)
            for _ in range(calls):
                self._pace.started(now)
                if self.in_flight + 1 >= self.limit and self._limit < self.most:
                    self._grow()
        if self._waiting:
            self._wake()

    def try_enter(self, lane: Lane | None = None) -> bool:
        """Take a place if one is free, without waiting."""
        if self.in_flight + 1 > self._limit or self.in_flight >= self._leased or self._is_stopped:
            return False
        lane = lane or self._first_lane
        if self._unresumed:
            # The calls of a lane that is down do not keep others out.
            for each in self.lanes.values():
                if each.waiting and (each is lane or each.outage.since is None):
                    return False
        now = self._clock()
        is_free = not self._closed_until and lane.outage.since is None and not self._pace.is_limited
        if not is_free:
            if self._delay_s(lane, now) > 0:
                return False
            lane.outage.probed(now)
        self.in_flight += 1
        lane.in_flight += 1
        self._pace.started(now)
        return True

    async def enter(
        self,
        patience_s: float = UNLIMITED,
        *,
        opens_job: bool = False,
        failed: FailedCalls | None = None,
        lane: Lane | None = None,
    ) -> None:
        """Wait for a place; see `WaitingCalls` for the order. Raises EndpointDown after an outage of `patience_s`.

        After `stop`, a call that `opens_job` is cancelled.
        """
        lane = lane or self._first_lane
        if (failed is None or not self._waiting) and self.try_enter(lane):
            return
        if self._is_stopped and opens_job:
            raise asyncio.CancelledError
        place = lane.waiting.add(patience_s, opens_job, failed)
        if self._lease is not None and self._asking is None:
            self._renew_lease(self._lease)
        self._unresumed += 1
        self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.in_flight -= 1
                lane.in_flight -= 1
            self._wake()
            raise
        finally:
            self._unresumed -= 1

    def leave(self, report: CallReport = ANSWERED, lane: Lane | None = None) -> None:
        """Give a place back and adapt the limits to how the call ended."""
        lane = lane or self._first_lane
        self.in_flight -= 1
        lane.in_flight -= 1
        if report.ok:
            self.answers += 1
            lane.answers += 1
            self._waits.clear()
            if lane.outage.failures:
                self._recover(lane)
            if report.retry_after_s:
                # Answered, but the next call has to wait: the rate limit is used up, the concurrency is fine.
                self._closed_until = max(self._closed_until, self._clock() + report.retry_after_s)
            elif self.in_flight + 2 >= self.limit and self._limit < self.most:
                self._grow()
        elif report.refused or report.overloaded:
            self._back_off(lane, report)
        else:
            self._close(report)
        if self._unresumed:
            self._wake()

    def stop(self) -> None:
        """Cancel the first calls of jobs, now and later. Other calls go on: their jobs have been paid for."""
        self._is_stopped = True
        for lane in self.lanes.values():
            lane.waiting.drop_jobs()

    def close(self) -> None:
        """Give back the calls leased for this process."""
        if self._asking is not None and self._lease is not None:
            self._asking.cancel()
            self._end_lease(self._lease)

    def _renew_lease(self, lease: LeaseFile) -> None:
        """Ask how many calls other processes leave to this one, and ask again later, until there are no more calls."""
        calls = self.in_flight + self._waiting
        if not calls:
            self._end_lease(lease)
            return
        is_first = self._asking is None
        wanted = self.most if self._waiting else min(self.most, 2 * calls)
        now, pace = self._clock(), self._pace
        rate = pace.rate if pace.is_limited else None
        adapted = Adapted(self._limit, rate, pace.started_per_s(now), bool(self._waiting) and pace.delay_s(now) > 0)
        part = lease.update(self.most, wanted, self.in_flight, adapted)
        self._leased = part.calls
        self._congestion.scale(part.limit / self._limit)
        self._limit = part.limit
        if part.rate is not None:
            pace.take(part.rate, part.total_rate, now)
        self._asking = asyncio.get_running_loop().call_later(part.ask_after_s, self._renew_lease, lease)
        if not is_first:
            self._wake()

    def _end_lease(self, lease: LeaseFile) -> None:
        lease.release(self._pace.rate if self._pace.is_limited else None)
        self._leased, self._asking = 0, None

    def _recover(self, lane: Lane) -> None:
        """Return to the limits before an outage; after an overload, to the calls that the endpoint kept."""
        outage = lane.outage
        if outage.was_total:
            self._goal = float(self.most) if outage.is_unreached else outage.limit_before
            self._limit = max(self._limit, _RESUMED * min(self._goal, outage.limit_before))
            self._pace.restore(outage.rate_before)
            self._congestion.reset()
        elif self._limit < outage.limit_before and not self._congestion.is_trying:
            self._limit = max(self._limit, min(outage.limit_before, float(outage.survivors)))
        outage.answered()

    def _grow(self) -> None:
        """Allow one more call per answer, which doubles the limit with every round trip."""
        if self._congestion.may_grow(self._clock(), self.answers, self._limit):
            self._limit = min(self.most, self._limit + 1.0)

    def _back_off(self, lane: Lane, report: CallReport) -> None:
        now, limit, outage, refused = self._clock(), self._limit, lane.outage, report.refused
        self._close(report)
        if not outage.failures:
            outage.limit_before, outage.rate_before = limit, self._pace.rate
            lane.answers_before = self.answers
        outage.survivors = self.in_flight
        if report.unreached and not self.answers and not lane.ignores_outages:
            outage.unreached(now)
            return
        outage.is_unavailable = outage.is_unavailable or report.unavailable
        outage.failed(now, lane.may_be_down, lane.in_flight, report)
        if outage.since is not None or report.was_isolated:
            return  # probes do not change the limits, nor do requests that fail whatever the limits are
        if refused:
            was_paced = self._pace.is_limited
            # Calls in flight together fail together: count them as one event.
            if self._pace.refused(now) and not was_paced and now - self._halved_at > _HALVING_S:
                self._halved_at, self._limit = now, max(1.0, limit / 2)
        else:
            self._limit = self._congestion.failed(now, self.answers, self.in_flight, limit)
        if self._limit < limit:
            self._goal = 0.0

    def _close(self, report: CallReport) -> None:
        """Start no calls for the longest time that several requests in a row have asked for."""
        wait_s = report.retry_after_s
        if not wait_s or report.was_isolated:
            return
        if report.request is not None:
            self._waits[report.request] = wait_s
            if len(self._waits) < max(_AGREEMENT, self.in_flight):
                return
            wait_s = sorted(self._waits.values())[-_AGREEMENT]
        self._closed_until = max(self._closed_until, self._clock() + wait_s)

    def _delay_s(self, lane: Lane, now: float) -> float:
        return max(self._closed_until - now, lane.outage.probe_delay_s(now), self._pace.delay_s(now))

    def _start(self, lane: Lane, now: float) -> None:
        self.in_flight += 1
        lane.in_flight += 1
        self._pace.started(now)
        if lane.outage.since is not None:
            lane.outage.probed(now)

    def _wake(self) -> None:
        """Start waiting calls that have a place, and set a timer if the others only wait for time to pass."""
        down = [lane for lane in self.lanes.values() if lane.outage.since is not None]
        has_more = [lane.waiting.dismiss(lane.down_for_s, lane.longest_wait_s) for lane in down]
        if any(has_more):
            asyncio.get_running_loop().call_later(_DISMISSAL_S, self._wake)
        while (lane := self._next_lane()) is not None:
            now = self._clock()
            delay_s = self._delay_s(lane, now)
            if delay_s > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)
                return
            if lane.waiting.start_next(lane.outage.since is not None):
                self._start(lane, now)
        if self._ramp is None and self._limit < self._goal and self._waiting:
            self._ramp = asyncio.get_running_loop().call_later(_TICK_S, self._ramp_up)

    def _next_lane(self) -> Lane | None:
        """Return the lane whose next call starts first: after the shortest delay, then in the order of the calls."""
        best: Lane | None = None
        best_key = (UNLIMITED, (0, 0))
        for lane in self.lanes.values():
            order = lane.waiting.next_in_line(lane.outage.since is not None)
            if order is not None and self.in_flight < self._room(lane):
                key = (max(0.0, lane.outage.probe_delay_s(self._clock())), order)
                best, best_key = (lane, key) if best is None or key < best_key else (best, best_key)
        return best

    def _room(self, lane: Lane) -> float:
        """The limit; during an outage the former one, because probes that hang must not prevent others."""
        return min(self._leased, self._limit if lane.outage.since is None else lane.outage.limit_before) // 1

    def _ramp_up(self) -> None:
        self._ramp = None
        if self._waiting and self._limit < self._goal:
            self._limit = min(self._goal, self._limit * 2 ** (_TICK_S / _DOUBLING_S))
            self._wake()
