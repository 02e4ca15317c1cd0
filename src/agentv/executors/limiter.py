"""Adaptive concurrency and rate of the calls to an endpoint.

Two controls work together. The limit on calls in flight doubles with every round trip, and is halved when the endpoint
is overloaded or first refuses calls (429). The pace (calls started per second) is unlimited until that refusal. Then
it starts at the rate the endpoint accepted, grows slowly, and is cut by further refusals; halving the concurrency again
would starve slow calls. A few refusals among many calls change nothing, and a burst of them leaves no lasting mark.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

_WINDOW_S, _EVENT_S = 3.0, 0.5
"""Refusals are counted since the last cut, but in this window at most; those within an event count as one."""
_TOLERATED, _CLEAR, _CLOSED = 0.015, 0.1, 0.9
"""Fractions of refused calls: normal at any rate, certainly not normal, and so high that the rate does not matter."""
_MANY, _DEVIATIONS = 30, 1.3
"""From this many calls a second, the fraction is judged by its lower bound, this many deviations below."""
_LEAST_CUT, _MOST_CUT = 0.03, 0.1
_FLOOR, _SLOWEST = 0.02, 0.1
"""The lowest pace: a fraction of the known rate, but not less than this many calls a second."""
_QUIET_S, _DOUBLING_S = 1.0, 2.0
_LASTING_S, _FADING_S, _SURE = 10.0, 30.0, 0.5
"""The best rate is an average over a time, fades with a half-life, and is safe to return to in part."""
_RECOVERY_S, _RECOVERY_CALLS = 8.0, 50
_FIRST_GROWTH = 1.4
_LATE_S = 0.005
_OVERLOAD_S = 0.5
_UNLIMITED = float("inf")


class CallReport(NamedTuple):
    """How a call ended: answered, refused because of a rate limit, or failed because the endpoint is overloaded."""

    ok: bool = True
    refused: bool = False
    overloaded: bool = False
    retry_after_s: float | None = None


ANSWERED, UNANSWERED = CallReport(), CallReport(ok=False)


class Limiter:
    """The limit of one endpoint, shared by all targets and judges that call it. Used in one event loop only."""

    def __init__(self, start: int, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limit = float(start)
        self.most = max(start, most)
        self.in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed_until = 0.0
        self._halved_at = float("-inf")
        self._pace = _Pace()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return int(self._limit)

    @property
    def closed_for_s(self) -> float:
        """Seconds until calls may start again after a Retry-After; may be called from another thread."""
        return max(0.0, self._closed_until - self._clock()) if self._closed_until else 0.0

    @property
    def has_room(self) -> bool:
        """Whether a new call waits for nothing but the concurrency limit."""
        return not self._waiting and not self._pace.is_limited and self._closed_until <= self._clock()

    def renew(self, calls: int) -> None:
        """Count answered calls whose places were reused immediately."""
        now = self._clock() if calls else 0.0
        for _ in range(calls):
            self._pace.started(now)
            if self.in_flight + 1 >= self.limit and self._limit < self.most:
                self._limit = min(self.most, self._limit + 1.0)
        if self._waiting:
            self._wake()

    def try_enter(self) -> bool:
        """Take a place if one is free, without waiting."""
        if self._waiting or self.in_flight + 1 > self._limit:
            return False
        now = self._clock()
        if (self._closed_until or self._pace.is_limited) and self._delay_s(now) > 0:
            return False
        self.in_flight += 1
        self._pace.started(now)
        return True

    async def enter(self) -> None:
        """Wait for a place, first come, first served."""
        if self.try_enter():
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
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
        if report.refused or report.overloaded:
            self._back_off(self._clock(), report.refused, report.retry_after_s or 0.0)
        elif report.retry_after_s:
            # Answered, but the next call has to wait: the rate limit is used up, the concurrency is fine.
            self._closed_until = max(self._closed_until, self._clock() + report.retry_after_s)
        elif report.ok and self.in_flight + 2 >= self.limit and self._limit < self.most:
            # One more per answer doubles the limit with every round trip.
            self._limit = min(self.most, self._limit + 1.0)
        if self._waiting:
            self._wake()

    def _back_off(self, now: float, refused: bool, wait_s: float) -> None:
        self._closed_until = max(self._closed_until, now + wait_s)
        was_paced = self._pace.is_limited
        counts = self._pace.refused(now) and not was_paced if refused else True
        # Calls in flight together fail together: count them as one event.
        if counts and now - self._halved_at > _OVERLOAD_S:
            self._halved_at = now
            self._limit = max(1.0, self._limit / 2)

    def _delay_s(self, now: float) -> float:
        return max(self._closed_until - now, self._pace.delay_s(now))

    def _wake(self) -> None:
        """Start waiting calls that have a place, and set a timer if the others only wait for time to pass."""
        while self._waiting and self.in_flight < self.limit:
            now = self._clock()
            delay_s = self._delay_s(now)
            if delay_s > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)
                return
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                self._pace.started(now)
                place.set_result(None)


class _Pace:
    """Calls started per second: unlimited until calls are refused, then controlled as in TCP CUBIC.

    A few refusals among many calls change nothing. More cut the rate in proportion: it returns to the accepted rate
    within `_RECOVERY_S`, stays near it, and then exceeds it. Until a second cut sets that rate, the first estimate
    grows fast. If nearly all calls are refused, the endpoint is closed rather than slower: the rate is halved down to a
    floor. After a quiet moment, a rate far below the known ones doubles until it is near them.
    """

    def __init__(self) -> None:
        self._rate = _UNLIMITED
        self._peak = 0.0
        self._cut = _MOST_CUT
        self._best = self._best_at = 0.0
        self._next_start = 0.0
        self._grown_at = self._cut_at = self._refused_at = float("-inf")
        self._starts: deque[float] = deque(maxlen=4096)
        self._refusals: deque[float] = deque(maxlen=4096)

    @property
    def is_limited(self) -> bool:
        return self._rate != _UNLIMITED

    def delay_s(self, now: float) -> float:
        if self._rate == _UNLIMITED:
            return 0.0
        self._grow(now)
        return self._next_start - now

    def started(self, now: float) -> None:
        self._starts.append(now)
        if self._rate != _UNLIMITED:
            # Timers fire slightly late; do not let that add up, or high rates are never reached.
            on_time = now - self._next_start <= _LATE_S
            self._next_start = (self._next_start if on_time else now) + 1.0 / self._rate

    def refused(self, now: float) -> bool:
        """Count a refusal, and return whether it shows that the rate is too high."""
        self._refusals.append(now)
        self._refused_at = now
        # Calls that were already in flight when the first was refused carry no new information.
        if now - self._cut_at < _EVENT_S:
            return False
        span = max(_EVENT_S, min(now - max(self._cut_at, self._starts[0] if self._starts else now), _WINDOW_S))
        starts, refusals = self._counts(now, span)
        fraction = min(1.0, refusals / max(starts, 1))
        if starts >= _MANY * span and fraction < _CLEAR:
            # A lower bound of the true fraction: a few of many calls are refused at any rate.
            refusals -= _DEVIATIONS * refusals**0.5
        if refusals / max(starts, 1) < _TOLERATED:
            return False
        accepted = (starts - fraction * starts) / max(span, 1.0)
        self._remember(now)
        self._slow_down(fraction, accepted)
        self._cut_at = self._grown_at = now
        return True

    def _counts(self, now: float, span: float) -> tuple[int, float]:
        """Return the calls that started and those that were refused within the last seconds."""
        starts, refusals = (sum(moment >= now - span for moment in each) for each in (self._starts, self._refusals))
        return starts, refusals

    def _remember(self, now: float) -> None:
        """Update the best rate that the endpoint accepted for a while, which fades."""
        starts, refusals = (
            sum(moment >= now - _LASTING_S for moment in each) for each in (self._starts, self._refusals)
        )
        faded = self._best * 0.5 ** ((now - self._best_at) / _FADING_S) if self._best else 0.0
        self._best, self._best_at = max(faded, (starts - refusals) / _LASTING_S), now

    def _slow_down(self, fraction: float, accepted: float) -> None:
        if self._rate == _UNLIMITED:
            self._rate = (1 - _MOST_CUT) * max(1.0, accepted)
        elif fraction >= _CLOSED:
            self._peak = self._peak or self._rate
            self._rate = max(_FLOOR * self._peak, _SLOWEST, self._rate / 2)
        else:
            # A growing rate overshoots: the accepted rate is a better estimate.
            self._peak = max(_SLOWEST, min(self._rate, max(accepted, 0.8 * self._rate)))
            self._cut = min(_MOST_CUT, max(_LEAST_CUT, 4 * fraction))
            self._rate = max(_FLOOR * self._best, (1 - self._cut) * self._peak)

    def _grow(self, now: float) -> None:
        since_cut, elapsed = now - self._cut_at, now - self._grown_at
        if elapsed < 0.05:
            return
        self._grown_at = now
        back = max((1 - self._cut) * self._peak, _SURE * self._best) if self._peak else 0.0
        if self._rate < 0.99 * back:
            if now - self._refused_at > _QUIET_S:
                self._rate = min(back, self._rate * 2 ** (min(elapsed, 0.5) / _DOUBLING_S))
                self._peak = max(self._peak, self._rate / (1 - self._cut))
                self._cut_at = now - _EVENT_S
        elif self._peak:
            recovery_s = max(_RECOVERY_S, _RECOVERY_CALLS / self._peak)
            self._rate = self._peak * (1.0 + self._cut * (since_cut / recovery_s - 1.0) ** 3)
        elif since_cut > 0.5:
            self._rate *= 1.0 + _FIRST_GROWTH * min(elapsed, 0.25)
