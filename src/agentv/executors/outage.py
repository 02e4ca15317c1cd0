"""Detect that an endpoint is overloaded or down, from the calls that fail. An answered call costs nothing here."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

_LEAST_FAILURES, _LEAST_S, _LEAST_REFUSED_S = 5, 0.5, 1.5
"""An outage begins after this many requests failed and this much time without an answer; more if refused (429)."""
_FIRST_PROBE_S, _LAST_PROBE_S, _PROBE_FRACTION = 0.25, 5.0, 0.1
"""The interval of probes: a fraction of the outage so far, within limits."""


class EndpointDown(Exception):
    """An endpoint has not answered for longer than a call may wait."""

    def __init__(self, down_for_s: float) -> None:
        super().__init__(f"The endpoint has been down for {down_for_s:.0f} s")
        self.down_for_s = down_for_s


class CallReport(NamedTuple):
    """How a call ended: answered, refused because of a rate limit, or failed: the endpoint is overloaded or down.

    `unreached` if there was no server at its address, `unavailable` if a server replied that it cannot answer now. A
    call that ended in another way, such as a cancelled one, does not count. `request` identifies the request if it
    failed: it is not evidence of an outage if it `is_isolated`, and changes no limit if it `was_isolated` before.
    """

    ok: bool = True
    refused: bool = False
    overloaded: bool = False
    retry_after_s: float | None = None
    unreached: bool = False
    unavailable: bool = False
    request: Hashable = None
    is_isolated: bool = False
    was_isolated: bool = False


ANSWERED, UNANSWERED = CallReport(), CallReport(ok=False)


class Outage:
    """Whether an endpoint is down.

    It has to have answered once, never accepted a connection (`is_unreached`), or replied so (`is_unavailable`).
    `failures` counts those since the last answer. The different requests among them that do not fail in isolation are
    evidence. `since` is the time of the first of these once the endpoint is down; `limit_before` and `rate_before` are
    the limits on calls in flight and on calls per second at that time.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.failures = 0
        self._evidence: set[Hashable] = set()
        self.limit_before = self.rate_before = float("inf")
        self.survivors = 0
        self.is_unreached = self.is_unavailable = False
        self._has_refusals = False
        self._first_at = self._probe_at = 0.0

    def unreached(self, now: float) -> None:
        """Count a call that found no server, while no call has found one: that is an outage immediately."""
        if self.since is None:
            self.since = self._first_at = now
            self._probe_at = now + _FIRST_PROBE_S
        self.failures += 1
        self.is_unreached = True

    def failed(self, now: float, may_be_down: bool, in_flight: int, report: CallReport) -> None:
        """Count a failed call, given whether there may be an outage, and the number of calls that may be answered."""
        if not self.failures:
            self._has_refusals = False
        self.failures += 1
        self._has_refusals = self._has_refusals or report.refused
        if not report.is_isolated:
            if not self._evidence:
                self._first_at = now
            self._evidence.add(self.failures if report.request is None else report.request)
        least_s = _LEAST_REFUSED_S if report.refused else _LEAST_S
        is_clear = len(self._evidence) >= max(_LEAST_FAILURES, in_flight) and now - self._first_at >= least_s
        if not may_be_down:
            self.since = None
        elif self.since is None and is_clear:
            self.since, self._probe_at = self._first_at, now + _FIRST_PROBE_S

    def answered(self) -> None:
        """Take note that a call was answered."""
        self.since, self.failures, self.is_unreached, self.is_unavailable = None, 0, False, False
        self._evidence.clear()

    @property
    def was_total(self) -> bool:
        """Whether all calls failed, even if only for a moment. Refusals are a matter of the rate."""
        had_none = self.failures >= _LEAST_FAILURES and not self.survivors and not self._has_refusals
        return had_none or self.since is not None

    def lasts_s(self, now: float) -> float:
        """Return how long the endpoint has been down; 0 if it is not."""
        since = self.since
        return 0.0 if since is None else now - since

    def probe_delay_s(self, now: float) -> float:
        """Return the seconds until a call may start as a probe."""
        return 0.0 if self.since is None else self._probe_at - now

    def probed(self, now: float) -> None:
        """Take note that a probe started. The next one does not wait for its end: it may hang."""
        self._probe_at = now + min(_LAST_PROBE_S, max(_FIRST_PROBE_S, _PROBE_FRACTION * self.lasts_s(now)))


_WINDOW_S, _LEAST_RATE_S, _EXEMPT_S = 3.0, 0.5, 30.0
_FEW, _KNOWN, _ROUNDS = 3, 30, 1.5
"""The failures that a decision needs; the answers that a rate needs, also as a multiple of the limit."""
_TOLERATED, _CERTAIN, _DEVIATIONS = 0.15, 0.6, 1.5
"""Fractions of failed calls: not worth a cut, even if this many deviations higher, and certainly caused by too many."""
_USELESS = 0.75
"""If half of the calls get less than this fraction of the answers, their number is not the cause of the failures."""
_NEAR, _CUT, _SMALL_CUT = 1.2, 0.5, 0.85
_CLOSE, _PAST, _STEP_S, _LONGEST_STEP_S = 0.9, 1.5, 5.0, 60.0
"""Between these multiples of a limit that was too high, the limit grows by one call in this time; later more rarely."""


class _Trial(NamedTuple):
    """An experiment: the limit and the rate of answers before it, and the answers with which its effect begins."""

    limit: float
    rate: float
    begins: int


class Congestion:
    """Decides when failures mean that too many calls are in flight.

    Most calls fail: certainly. Some fail: the limit is halved as an experiment. If the endpoint still answers as many
    calls per second, the cut stays; if it answers fewer, the failures have another cause, and the limit is restored.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._from = (0.0, 0, 0)
        self._grown_at = self._exempt_until = float("-inf")
        self._ceiling = 0.0
        self._step_s = _STEP_S
        self._trial: _Trial | None = None

    @property
    def is_trying(self) -> bool:
        """Whether the limit is lower only as an experiment."""
        return self._trial is not None

    def reset(self) -> None:
        """Forget the limit that was too high."""
        self._ceiling, self._step_s, self._trial = 0.0, _STEP_S, None

    def scale(self, factor: float) -> None:
        """Take note that the limit was multiplied, because of other processes."""
        self._ceiling *= factor
        if self._trial is not None and factor != 1.0:
            self._trial = _Trial(self._trial.limit * factor, self._trial.rate * factor, self._trial.begins)

    def failed(self, now: float, answers: int, in_flight: int, limit: float) -> float:
        """Count a failed call; return the new limit on calls in flight."""
        self._failures += 1
        trial = self._trial
        if answers < trial.begins if trial else now - self._from[0] > _WINDOW_S:
            self._from = (now, answers, self._failures - 1)
        answered, failed = answers - self._from[1], self._failures - self._from[2]
        # Calls often fail faster than they are answered.
        fraction = failed / (answered + failed + in_flight)
        if failed < _FEW or (fraction * (1 - _DEVIATIONS / failed**0.5) < _TOLERATED and fraction < _CERTAIN):
            return limit
        if fraction >= _CERTAIN:
            is_near = self._ceiling / _NEAR < limit < self._ceiling * _NEAR
            self._trial = None
            self._step_s = min(_LONGEST_STEP_S, 2 * self._step_s) if is_near else _STEP_S
            return self._cut(now, answers, limit, _SMALL_CUT if is_near else _CUT)
        elapsed = now - self._from[0]
        is_known = elapsed >= _LEAST_RATE_S and answered >= max(_KNOWN, _ROUNDS * limit)
        return self._tried(now, answers, limit, answered / elapsed) if is_known and now > self._exempt_until else limit

    def _tried(self, now: float, answers: int, limit: float, rate: float) -> float:
        """Start an experiment, or end it."""
        trial = self._trial
        if trial is not None and rate < _USELESS * trial.rate:
            self.reset()
            self._exempt_until = now + _EXEMPT_S
            return trial.limit
        self._trial = _Trial(limit, rate, answers + int(limit))
        return self._cut(now, answers, limit, _CUT)

    def _cut(self, now: float, answers: int, limit: float, factor: float) -> float:
        self._ceiling, self._grown_at = limit, now
        self._from = (now, answers, self._failures)
        return max(1.0, limit * factor)

    def may_grow(self, now: float, answers: int, limit: float) -> bool:
        """Whether the limit may grow with an answer: always, except near a limit that was too high."""
        trial = self._trial
        if trial is not None:
            if answers < trial.begins + 2 * max(_KNOWN, _ROUNDS * limit):
                return False
            self._trial = None  # no call has failed since
        if not self._ceiling or limit < _CLOSE * self._ceiling:
            return True
        if now - self._grown_at < self._step_s:
            return False
        self._grown_at = now
        self._from = (now, answers, self._failures)
        if limit > _PAST * self._ceiling:
            self._ceiling = 0.0
        return True
