"""How many calls an endpoint gets at once and how fast: grows while answers come back, backs off when told to.

Two controls work together. The limit on calls in flight doubles with every round trip, and is halved when the endpoint
is overloaded or refuses for the first time. The pace (calls started per second) is unlimited until that refusal; it
starts at the rate that was really let through, creeps up from there, and is what further refusals bring down: halving
the limit again would starve slow answers.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

_WINDOW_S = 3.0
_CUT = 0.1
_RECOVERY_S, _RECOVERY_CALLS = 8.0, 50
_FIRST_GROWTH = 1.4
_LATE_S = 0.005
_OVERLOAD_S = 0.5
_UNLIMITED = float("inf")


class Limiter:
    """The limit of one endpoint, shared by every target and judge that calls it. Lives in one event loop."""

    def __init__(self, start: int, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limit = float(start)
        self._most = max(start, most)
        self._in_flight = 0
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
    def most(self) -> int:
        """Calls that may ever be in flight."""
        return self._most

    @property
    def in_flight(self) -> int:
        """Calls that are in flight now."""
        return self._in_flight

    @property
    def closed_for_s(self) -> float:
        """How long nobody is let in, as the endpoint asked to be left alone; may be asked from another thread."""
        return max(0.0, self._closed_until - self._clock()) if self._closed_until else 0.0

    @property
    def has_room(self) -> bool:
        """Whether a call would have to wait for nothing but a place."""
        return not self._waiting and not self._pace.is_limited and self._closed_until <= self._clock()

    def renew(self, calls: int) -> None:
        """Count calls that were answered and whose places were taken again at once."""
        now = self._clock() if calls else 0.0
        for _ in range(calls):
            self._pace.started(now)
            if self._in_flight + 1 >= self.limit and self._limit < self._most:
                self._limit = min(self._most, self._limit + 1.0)
        if self._waiting:
            self._wake()

    def try_enter(self) -> bool:
        """Takes a place if one is free this moment: no waiting, no event loop."""
        if self._waiting or self._in_flight + 1 > self._limit:
            return False
        now = self._clock()
        if (self._closed_until or self._pace.is_limited) and self._delay_s(now) > 0:
            return False
        self._in_flight += 1
        self._pace.started(now)
        return True

    async def enter(self) -> None:
        """Waits for a place, in the order of asking."""
        if self.try_enter():
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._in_flight -= 1
            self._wake()
            raise

    def leave(
        self,
        *,
        ok: bool = True,
        refused: bool = False,
        overloaded: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        """Gives a place back and says how the call went: answered, refused as one too many, or met by an overload."""
        self._in_flight -= 1
        if refused or overloaded:
            self._back_off(self._clock(), refused, retry_after_s or 0.0)
        elif retry_after_s:
            # Answered, and told that there is no room for another: not too many, only too soon.
            self._closed_until = max(self._closed_until, self._clock() + retry_after_s)
        elif ok and self._in_flight + 2 >= self.limit and self._limit < self._most:
            # One more per answer doubles the limit with every round trip.
            self._limit = min(self._most, self._limit + 1.0)
        if self._waiting:
            self._wake()

    def _back_off(self, now: float, refused: bool, wait_s: float) -> None:
        self._closed_until = max(self._closed_until, now + wait_s)
        # Calls that were in flight together fail together: that is one event, not many.
        if now - self._halved_at > _OVERLOAD_S and not (refused and self._pace.is_limited):
            self._halved_at = now
            self._limit = max(1.0, self._limit / 2)
        if refused:
            self._pace.refused(now)

    def _delay_s(self, now: float) -> float:
        return max(self._closed_until - now, self._pace.delay_s(now))

    def _wake(self) -> None:
        """Lets in who may come in, and sets a timer for the rest when only time keeps them out."""
        while self._waiting and self._in_flight < self.limit:
            now = self._clock()
            delay_s = self._delay_s(now)
            if delay_s > 0:
                self._wake_later(delay_s)
                return
            place = self._waiting.popleft()
            if not place.done():
                self._in_flight += 1
                self._pace.started(now)
                place.set_result(None)

    def _wake_later(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)


class _Pace:
    """Calls started per second. Unlimited until a refusal shows that they are counted; then it follows TCP's CUBIC.

    A refusal takes a tenth off; the rate comes back to where it was refused within `_RECOVERY_S`, stays near it, and
    goes beyond it only then. Before there is such a rate, the first guess grows fast.
    """

    def __init__(self) -> None:
        self._rate = _UNLIMITED
        self._peak = 0.0
        self._next_start = 0.0
        self._grown_at = self._cut_at = float("-inf")
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
            # Timers are a little late: that must not add up, or a high rate would never be reached.
            on_time = now - self._next_start <= _LATE_S
            self._next_start = (self._next_start if on_time else now) + 1.0 / self._rate

    def refused(self, now: float) -> None:
        self._refusals.append(now)
        # Calls that were on their way when the first was refused say nothing new.
        if now - self._cut_at < 0.5:
            return
        if self._rate == _UNLIMITED:
            self._rate = 0.9 * max(1.0, self._let_through(now, min(now - self._starts[0], _WINDOW_S)))
        else:
            # A rate that was still growing overshot: what was let through is nearer the truth.
            self._peak = min(self._rate, max(self._let_through(now, 1.0), 0.8 * self._rate))
            self._rate = (1 - _CUT) * self._peak
        self._cut_at = self._grown_at = now

    def _grow(self, now: float) -> None:
        since_cut, elapsed = now - self._cut_at, now - self._grown_at
        if elapsed < 0.05:
            return
        self._grown_at = now
        if self._peak:
            recovery_s = max(_RECOVERY_S, _RECOVERY_CALLS / self._peak)
            self._rate = self._peak * (1.0 + _CUT * (since_cut / recovery_s - 1.0) ** 3)
        elif since_cut > 0.5:
            self._rate *= 1.0 + _FIRST_GROWTH * min(elapsed, 0.25)

    def _let_through(self, now: float, span: float) -> float:
        """Calls a second that were not refused lately."""
        span = max(span, 1.0)
        starts, refusals = (sum(moment >= now - span for moment in each) for each in (self._starts, self._refusals))
        return (starts - refusals) / span
