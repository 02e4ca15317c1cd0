"""How many calls an endpoint gets at once and how fast: grows while answers come back, backs off when told to.

Two controls work together. The limit on calls in flight doubles until the first refusal, then follows the classic
additive increase and halving. The pace (calls started per second) is unlimited until a refusal shows that the endpoint
counts requests over time; then it starts at the rate that was really let through and creeps up from there.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

_WINDOW_S = 3.0
_QUIET_S = 30.0
_UNLIMITED = float("inf")


class Limiter:
    """The limit of one endpoint, shared by every target and judge that calls it. Lives in one event loop."""

    def __init__(self, start: int, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limit = float(start)
        self._most = max(start, most)
        self._refused = False
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed_until = 0.0
        self._halved_at = -1.0
        self._pace = _Pace(clock)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return max(1, int(self._limit))

    @property
    def most(self) -> int:
        """Calls that may ever be in flight."""
        return self._most

    @property
    def in_flight(self) -> int:
        """Calls that are in flight now."""
        return self._in_flight

    def try_enter(self) -> bool:
        """Takes a place if one is free this moment: no waiting, no event loop."""
        if self._waiting or self._in_flight >= self.limit or self._delay() > 0:
            return False
        self._in_flight += 1
        self._pace.started()
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

    def leave(self, *, ok: bool = True, refused: bool = False, retry_after_s: float | None = None) -> None:
        """Gives a place back and says how the call went."""
        self._in_flight -= 1
        now = self._clock()
        if refused:
            self._back_off(now, retry_after_s)
        elif ok and self._in_flight + 1 >= self.limit - 1 and self._limit < self._most:
            # One more per answer doubles the limit every round trip. After a refusal it is one more per round trip,
            # unless the pace already keeps the calls apart.
            slow = self._refused and not self._pace.is_limited
            self._limit = min(self._most, self._limit + (1.0 / self._limit if slow else 1.0))
        if self._waiting:
            self._wake()

    def _back_off(self, now: float, retry_after_s: float | None) -> None:
        self._refused = True
        if retry_after_s:
            self._closed_until = max(self._closed_until, now + retry_after_s)
        self._pace.refused(now)
        # Calls that were in flight together are refused together: that is one event, not many.
        if now - self._halved_at > 0.5:
            self._halved_at = now
            self._limit = max(1.0, self._limit / 2)

    def _delay(self) -> float:
        now = self._clock()
        return max(self._closed_until - now, self._pace.delay(now))

    def _wake(self) -> None:
        """Lets in who may come in, and sets a timer for the rest when only time keeps them out."""
        while self._waiting and self._in_flight < self.limit:
            delay = self._delay()
            if delay > 0:
                self._wake_later(delay)
                return
            place = self._waiting.popleft()
            if not place.done():
                self._in_flight += 1
                self._pace.started()
                place.set_result(None)

    def _wake_later(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay, self._wake)


class _Pace:
    """Calls started per second. Unlimited until a refusal; then what was let through, and slowly more.

    A rate that two refusals agree on is near the truth and left alone for long; before that it grows fast.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rate = _UNLIMITED
        self._ceiling = _UNLIMITED
        self._estimates = 0
        self._confirmed = False
        self._next_start = 0.0
        self._grown_at = 0.0
        self._refused_at = self._estimated_at = float("-inf")
        self._starts: deque[float] = deque(maxlen=4096)
        self._refusals: deque[float] = deque(maxlen=4096)

    @property
    def is_limited(self) -> bool:
        return self._rate != _UNLIMITED

    def delay(self, now: float) -> float:
        if self._rate == _UNLIMITED:
            return 0.0
        self._grow(now)
        return self._next_start - now

    def started(self) -> None:
        now = self._clock()
        self._starts.append(now)
        if self._rate != _UNLIMITED:
            self._next_start = max(now, self._next_start) + 1.0 / self._rate

    def refused(self, now: float) -> None:
        self._refusals.append(now)
        self._refused_at = now
        if now - self._estimated_at < 1.0:
            return
        # The latest second tells most while the rate is changing; few calls need a longer look.
        window = min(max(10.0 / self._rate, 1.0), _WINDOW_S)
        let_through = max(1, _recent(self._starts, now, window) - _recent(self._refusals, now, window))
        estimate = let_through / min(max(now - self._starts[0], 1.0), window)
        self._confirmed = self.is_limited and abs(estimate - self._ceiling) <= 0.15 * self._ceiling
        self._estimates += 1
        self._ceiling = estimate
        self._rate = estimate * (0.97 if self._confirmed else 0.9)
        self._estimated_at = self._grown_at = now

    def _grow(self, now: float) -> None:
        elapsed = now - self._grown_at
        if elapsed < 0.1:
            return
        self._grown_at = now
        quiet = now - self._refused_at
        if not self._confirmed:
            # The first estimate may be made from a handful of calls and far too low; later ones are close.
            if quiet > 1.5:
                self._rate *= 1.0 + (0.6 if self._estimates == 1 else 0.15) * elapsed
        elif self._rate < self._ceiling:
            self._rate += (self._ceiling - self._rate) * min(1.0, elapsed * 0.1)
        if self._confirmed and quiet > _QUIET_S:
            self._rate *= 1.0 + 0.01 * elapsed
        self._ceiling = max(self._ceiling, self._rate)


def _recent(moments: deque[float], now: float, window: float) -> int:
    """How many moments lie within the window; those out of every window are forgotten, but for the last of them."""
    while len(moments) > 1 and moments[1] < now - _WINDOW_S:
        moments.popleft()
    return sum(moment >= now - window for moment in moments)
