"""The pace of calls to an endpoint: calls started per second, limited once the endpoint refuses calls (429)."""

from __future__ import annotations

from collections import deque
from itertools import takewhile

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
_UNLIMITED = float("inf")


class CallPace:
    """Calls started per second: unlimited until calls are refused, then controlled as in TCP CUBIC.

    A few refusals among many calls change nothing. More cut the rate in proportion: it returns to the accepted rate
    within `_RECOVERY_S`, stays near it, and then exceeds it. Until a second cut sets that rate, the first estimate
    grows fast. If nearly all calls are refused, the endpoint is closed rather than slower: the rate is halved down to a
    floor. After a quiet moment, a rate far below the known ones doubles until it is near them.
    """

    def __init__(self) -> None:
        self.rate = _UNLIMITED
        self._part = 1.0
        self._peak = 0.0
        self._cut = _MOST_CUT
        self._best = self._best_at = 0.0
        self._next_start = 0.0
        self._grown_at = self._cut_at = self._refused_at = float("-inf")
        self._starts: deque[float] = deque(maxlen=4096)
        self._refusals: deque[float] = deque(maxlen=4096)

    @property
    def is_limited(self) -> bool:
        return self.rate != _UNLIMITED

    def started_per_s(self, now: float) -> float:
        """Return the calls that started within the last second."""
        return sum(1 for _ in takewhile(lambda moment: moment > now - 1.0, reversed(self._starts)))

    def take(self, rate: float, total: float, now: float) -> None:
        """Continue at another rate: a known one, or the part of it that other processes leave."""
        if self.rate == _UNLIMITED:
            self._grown_at = self._cut_at = now
            self._peak = rate if rate < total else 0.0
        else:
            self._peak, self._best = self._peak * rate / self.rate, self._best * rate / self.rate
        self.rate, self._part = rate, rate / total
        self._next_start = min(self._next_start, now + 1.0 / rate)

    def restore(self, rate: float) -> None:
        """Return to an earlier rate, after an outage."""
        self.rate = max(self.rate, rate)
        self._next_start = 0.0

    def delay_s(self, now: float) -> float:
        if self.rate == _UNLIMITED:
            return 0.0
        self._grow(now)
        return self._next_start - now

    def started(self, now: float) -> None:
        self._starts.append(now)
        if self.rate != _UNLIMITED:
            # Timers fire slightly late; do not let that add up, or high rates are never reached.
            on_time = now - self._next_start <= _LATE_S
            self._next_start = (self._next_start if on_time else now) + 1.0 / self.rate

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
        if self.rate == _UNLIMITED:
            self.rate = (1 - _MOST_CUT) * max(1.0, accepted)
        elif fraction >= _CLOSED:
            self._peak = self._peak or self.rate
            self.rate = max(_FLOOR * self._peak, _SLOWEST, self.rate / 2)
        else:
            # A growing rate overshoots: the accepted rate is a better estimate.
            self._peak = max(_SLOWEST, min(self.rate, max(accepted, 0.8 * self.rate)))
            self._cut = min(_MOST_CUT, max(_LEAST_CUT, 4 * fraction))
            self.rate = max(_FLOOR * self._best, (1 - self._cut) * self._peak)

    def _grow(self, now: float) -> None:
        since_cut, elapsed = now - self._cut_at, now - self._grown_at
        if elapsed < 0.05:
            return
        self._grown_at = now
        back = max((1 - self._cut) * self._peak, _SURE * self._best) if self._peak else 0.0
        if self.rate < 0.99 * back:
            if now - self._refused_at > _QUIET_S:
                self.rate = min(back, self.rate * 2 ** (min(elapsed, 0.5) / _DOUBLING_S))
                self._peak = max(self._peak, self.rate / (1 - self._cut))
                self._cut_at = now - _EVENT_S
        elif self._peak:
            recovery_s = max(_RECOVERY_S, _RECOVERY_CALLS * self._part / self._peak)
            self.rate = self._peak * (1.0 + self._cut * (since_cut / recovery_s - 1.0) ** 3)
        elif since_cut > 0.5:
            self.rate *= 1.0 + _FIRST_GROWTH * min(elapsed, 0.25)
