"""The rules for calls to one endpoint: which call starts next, how many, how fast, and when the endpoint is down.

Pure: times are arguments, and nothing waits here. Calls are numbered as they start, so "later" needs no clock.

1. A request makes at most its retries + 1 calls. Calls that fail in a proven outage do not count.
2. A failure is isolated if a call that started later, or since the request last failed, was answered.
3. Different requests that fail one after another, not in isolation and without an answer between them, are evidence of
   an outage. It is proven if a repetition of a request that was answered before fails too. Without such a request, one
   that has never failed is tried. An endpoint that has never answered is down only if it replies so, or has no server.
4. A request whose last attempt failed is an error once a later call is answered. If no call is left, a probe decides.
5. Requests that have never failed come first; one start in a few is a retry.
6. The number of concurrent calls doubles while calls wait. Failures of calls that started above the highest number that
   was answered lately return it to that number; from there it grows slowly.
7. Refusals (429) are tested: after a pause, refused requests are sent alone. If one is answered, the rate was too high,
   and calls continue at the accepted rate, which grows slowly. If none is, these requests fail in isolation. If a
   repetition of a request that was answered is refused, the rate was too high, unless that lasts like an outage.
"""

from __future__ import annotations

from math import exp2, inf

import msgspec

from agentv.executors.lane import EVIDENCE, FEW, FRACTION, GRACE_S, PROBE_S, TICK_S, Failure, Lane, Ticket

DOUBLING_S = 0.6
"""While calls wait, their number doubles in this time."""
GROWTH_S, LEAST_STEP = 8.0, 0.5
"""After a cut, a limit grows by a FRACTION, or this step, in this time; then with the third power of the time."""
ERROR = 5
"""How much too low a measured rate may be."""
WINDOW_S, CHANCE = 4.0, 0.02
"""Refusals are counted for this time. If chance rarely explains it, requests refused again fail in isolation."""


class Growth(msgspec.Struct, frozen=True):
    """A limit after a cut: it grows slowly to the former limit, and then faster. An estimate doubles every second."""

    base: float = inf
    cut_at: float = 0.0
    is_estimate: bool = False

    def at(self, now: float) -> float:
        """Return the limit at a time."""
        if self.is_estimate:
            return self.base * exp2(min(now - self.cut_at, GRACE_S))
        step = max(FRACTION * self.base, LEAST_STEP) if self.base < inf else 0.0
        return self.base + step * (1 + ((now - self.cut_at) / GROWTH_S - 1) ** 3)


class Endpoint:
    """The limits of an endpoint, shared by its lanes: calls in flight, and calls started per second.

    It `is_slowed` if it refused requests because of the rate: it answered them later.
    """

    def __init__(self, start: int, most: int) -> None:
        self.most = max(start, most)
        self.is_fixed = start == most
        self.lanes: dict[str, Lane] = {}
        self.in_flight = self.starts = self.answers = self.waiting = self._queued = 0
        self._allowance, self._room = inf, 0
        self.closed_until = self._next_start = self._grown_at = 0.0
        self.is_slowed = self._is_unmeasured = False
        self._limit = float(start)
        self._slots = self._rate = self._former_rate = Growth()
        self._levels, self._marks, self._above = (0, 0), (0, 0), 0
        self._refusals: dict[Ticket, float | None] = {}
        self._window, self._level_at = (-inf, 0), -inf
        self._needed = FEW
        self._cut_number = self._refused_first = self._refused_again = self._accepted = 0
        self._trial: set[Ticket] = set()

    def lane(self, name: str) -> Lane:
        """Return the lane of a model."""
        return self.lanes.setdefault(name, Lane(self))

    @property
    def allowance(self) -> float:
        """The calls that other processes leave to this one."""
        return self._allowance

    @allowance.setter
    def allowance(self, calls: float) -> None:
        self._allowance, self._room = calls, 0

    def restrict(self, start: int, most: int) -> None:
        """Apply the limits of another target at this endpoint: configured before adaptive ones, then the lower ones."""
        if start == most and (not self.is_fixed or most < self.most):
            self._limit, self.most, self.is_fixed, self._room = float(most), most, True, 0

    def limit(self, now: float) -> int:
        """Return the calls that may be in flight now."""
        return int(min(self._limit, self._slots.at(now), self.most, self._allowance))

    def _is_full(self, now: float) -> bool:
        """Whether no more calls may be in flight. Until it is cut, the limit only grows, so an earlier one is safe."""
        if self.in_flight >= self._room:
            self._room = self.limit(now)
        return self.in_flight >= self._room

    def try_start(self, ticket: Ticket, now: float) -> bool:
        """Start a call if it has room, nothing waits, and nothing is limited."""
        lane = ticket.lane
        is_limited = lane.evidence or lane.suspect_since is not None or self._rate.base != inf
        if self.waiting or is_limited or now < self.closed_until:
            return False
        if self.in_flight >= self._room and self._is_full(now):
            return False
        self._start(ticket)
        return True

    def _start(self, ticket: Ticket) -> None:
        self.in_flight = ticket.level = self.in_flight + 1
        self.starts = ticket.number = self.starts + 1
        ticket.lane.in_flight += 1
        ticket.has_place = True

    def add(self, ticket: Ticket, now: float) -> None:
        """Queue a request: for its first call, or after a failed one. Sets `is_error` if it has failed for good."""
        lane = ticket.lane
        self._queued += 1
        ticket.queued = self._queued
        ticket.ready_at = ticket.ready_at if ticket.repeats else now + ticket.delay_s
        is_certain = not ticket.patience_s or lane.answered_number > ticket.failed_number or not lane.may_be_down
        if ticket.failed_number and ticket.is_spent and is_certain:
            ticket.is_error = True
            return
        lane.queue_of(ticket).append(ticket)
        ticket.is_waiting = True
        self.waiting += 1

    def settle(self, now: float) -> list[Ticket]:
        """Return requests whose wait has ended without a call: errors, and those that have waited too long."""
        return [ticket for lane in self.lanes.values() for ticket in lane.settle(now)]

    def next(self, now: float) -> Ticket | None:
        """Start the next call, if one may start now."""
        self._grow(now)
        if not self.waiting or self._is_full(now) or now < self.open_at:
            return None
        if self._is_unmeasured:
            self._is_unmeasured, accepted = False, self.answers - self._window[1] + self.in_flight
            self._rate = Growth(max(2 * EVIDENCE, accepted / max(1.0, now - self._window[0])), now, is_estimate=True)
        tickets = [ticket for lane in self.lanes.values() if (ticket := lane.pick(now)) is not None]
        ticket = min(tickets, key=lambda each: (each.opens_job, each.queued), default=None)
        if ticket is None:
            return None
        ticket.lane.remove(ticket)
        self._start(ticket)
        ticket.lane.started(ticket, now)
        rate = self._rate.at(now)
        if rate != inf:
            is_on_time = now - self._next_start <= 1 / rate
            self._next_start = (self._next_start if is_on_time else now) + 1 / rate
        return ticket

    @property
    def open_at(self) -> float:
        """The time from which a request may start."""
        rate_at = self._next_start if self._rate.base != inf else 0.0
        return max(self.closed_until, rate_at, min(lane.open_at for lane in self.lanes.values()))

    def wake_at(self, now: float) -> float:
        """Return the time at which waiting calls have to be looked at again."""
        if not self.waiting:
            return inf
        if self._is_full(now):
            start_at = now + PROBE_S if self._limit < self.most or self._slots.base < self.most else inf
        else:
            start_at = max(now, self.open_at)
        return min(start_at, *(lane.settle_at for lane in self.lanes.values()))

    def release(self, ticket: Ticket) -> None:
        """Give a place back without a result."""
        if ticket.has_place:
            ticket.has_place = False
            self.in_flight -= 1
            ticket.lane.in_flight -= 1

    def answered(self, ticket: Ticket) -> list[Ticket]:
        """Count an answered call; return the requests that are errors because of it."""
        lane, level, number = ticket.lane, 0 if ticket.repeats else ticket.level, ticket.number
        if ticket.has_place:
            ticket.has_place = False
            self.in_flight -= 1
            lane.in_flight -= 1
        self.answers += 1
        lane.answers += 1
        lane.answered_number = max(lane.answered_number, number)
        if level > self._levels[1]:
            self._levels = (self._levels[0], level)
        if self._trial and number > self._cut_number:
            self._accepted += 1
            if ticket in self._trial and not ticket.repeats:  # the rate was too high
                self._needed, self.is_slowed = FEW, True
                for other in self._trial:
                    other.counted = other.counted[:-1]
                self._trial = set()
        if not (lane.evidence or lane.failures or lane.suspect_since is not None):
            return []
        is_cut = level and lane.down_since is None and len(lane.evidence) > max(EVIDENCE, self.in_flight + 1)
        if is_cut and all(other.level > level for other in lane.evidence):  # the calls that failed were too many
            self._cut_slots(self.in_flight + 1, lane.failed_at)
        return lane.answered(number)

    def failed(self, ticket: Ticket, failure: Failure, now: float) -> None:
        """Count a failed call, and adapt the limits. If it repeats an answered request, this proves an outage."""
        lane = ticket.lane
        self.release(ticket)
        if ticket.repeats:
            lane.begin_outage(now)
            if failure.is_refused:  # not because of the requests: unless it lasts, this is a rate limit
                self._trial, self.is_slowed = set(), lane.down_for_s(now) < GRACE_S
            else:
                self._restore_rate(now)
            return
        was_down = lane.down_since is not None
        lane.failed(ticket, failure, now)
        if failure.is_refused and ticket in self._trial:
            self._refused_again += 1
            chance = (self._refused_first / (self._refused_first + self._accepted)) ** self._refused_again
            if chance < CHANCE and not any(other.has_place for other in self._trial):
                self._needed *= 2
                self._restore_rate(now)
        elif was_down or lane.down_since is not None:
            return
        elif failure.is_refused and (not ticket.is_isolated or (self.is_slowed and not (lane.begun or lane.new))):
            self._refused(ticket, failure, now)
        elif not (failure.is_refused or ticket.is_isolated):
            self._overloaded(ticket.level, now)

    def _cut_slots(self, calls: int, now: float) -> None:
        self._above, self._limit, self._room = 0, self.most, 0
        self._slots = Growth(calls, now)

    def _overloaded(self, level: int, now: float) -> None:
        if now - self._level_at > 1:
            self._levels, self._level_at = (self._levels[1], 0), now
            self._marks = (self._marks[1], self.answers)
        answered = max(self._levels)
        is_round = self.answers - self._marks[0] >= answered  # all calls in flight had time to end
        self._above = self._above + 1 if level > answered > 0 and is_round else 0
        if self._above >= FEW:
            self._cut_slots(answered, now)

    def _grow(self, now: float) -> None:
        if self._limit < self.most and self.waiting and self._grown_at:
            self._limit = min(self.most, self._limit * exp2((now - self._grown_at) / DOUBLING_S))
        self._grown_at = now if self.waiting else 0.0

    def _refused(self, ticket: Ticket, failure: Failure, now: float) -> None:
        if ticket.number <= self._cut_number:
            self._trial.add(ticket)
            return
        if now - self._window[0] > WINDOW_S:
            self._window, self._refusals = (now, self.answers), {}
        self._refused_first += ticket not in self._refusals
        self._refusals[ticket] = failure.retry_after_s
        refused, answers = len(self._refusals), self.answers - self._window[1]
        if refused < self._needed or refused / (refused + answers) < FRACTION:
            return
        waits = [wait_s for wait_s in self._refusals.values() if wait_s is not None]
        if len(waits) == refused > answers and self._rate.base == inf:
            self.closed_until = max(self.closed_until, now + min(waits))
        self._cut_rate(answers / (answers + refused), now)

    def _cut_rate(self, accepted: float, now: float) -> None:
        """Reduce the rate; the requests that were refused will show whether that was right."""
        rate = self._rate.at(now)
        if not self._trial:
            self._former_rate, self._refused_first, self._refused_again, self._accepted = self._rate, 1, 0, 0
        self._trial |= {*self._refusals}
        self._cut_number, self._refusals = self.starts, {}
        if rate == inf:
            self._is_unmeasured, self.closed_until = True, max(self.closed_until, now + TICK_S)
            return
        if self._rate.is_estimate or now - self._rate.cut_at < GROWTH_S:  # the last cut was too small
            rate *= max(accepted, 1 - 2 * FRACTION)
        self._rate, self._next_start = Growth(max(1.0, (1 - FEW * FRACTION) * rate), now), now

    def _restore_rate(self, now: float) -> None:
        """End a trial without an answer: the refusals were not due to the rate, which grows fast again."""
        if self._trial:
            faster = Growth(ERROR * self._rate.at(now), now, is_estimate=True)
            self._is_unmeasured, self._trial = False, set()
            self._rate = self._former_rate if self.is_slowed else faster
