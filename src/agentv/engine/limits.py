"""How many calls an endpoint gets at once and how fast: grows while answers come back, backs off when told to.

Two controls work together. The limit on calls in flight doubles until the first refusal, then follows the classic
additive increase and halving. The pace (calls started per second) is unlimited until a refusal shows that the endpoint
counts requests over time; then it starts at the rate that was really served and creeps up to the last refusal.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

_WINDOW_S = 2.0
_PROBE_AFTER_S = 30.0


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
        elif ok:
            self._pace.served(now)
            if self._in_flight + 1 >= self.limit - 1 and self._limit < self._most:
                # One more per answer doubles the limit every round trip; after a refusal, one more per round trip.
                self._limit = min(self._most, self._limit + (1.0 / self._limit if self._refused else 1.0))
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
    """Calls started per second. Unlimited until the first refusal."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rate = float("inf")
        self._ceiling = float("inf")
        self._next_start = 0.0
        self._grown_at = 0.0
        self._refused_at = float("-inf")
        self._served: deque[float] = deque(maxlen=4096)

    def delay(self, now: float) -> float:
        if self._rate == float("inf"):
            return 0.0
        self._grow(now)
        return self._next_start - now

    def started(self) -> None:
        if self._rate != float("inf"):
            self._next_start = max(self._clock(), self._next_start) + 1.0 / self._rate

    def served(self, now: float) -> None:
        self._served.append(now)

    def refused(self, now: float) -> None:
        if now - self._refused_at < 0.5:
            self._refused_at = now
            return
        self._refused_at = self._grown_at = now
        while self._served and self._served[0] < now - _WINDOW_S:
            self._served.popleft()
        # Too few answers to know a rate by: the limit on calls in flight has to do.
        if len(self._served) >= 5:
            span = max(now - self._served[0], 0.1)
            self._ceiling = len(self._served) / span
            self._rate = 0.97 * self._ceiling

    def _grow(self, now: float) -> None:
        """Closes half of the gap to the last refusal every five seconds; past it, slowly, only after a long quiet."""
        elapsed = now - self._grown_at
        if elapsed < 0.25:
            return
        self._grown_at = now
        if self._rate < 0.995 * self._ceiling:
            self._rate += (self._ceiling - self._rate) * min(1.0, elapsed * 0.14)
        elif now - self._refused_at > _PROBE_AFTER_S:
            self._rate *= 1.0 + 0.02 * elapsed
            self._ceiling = max(self._ceiling, self._rate)
