"""The requests to one model of an endpoint: which may start next, which have failed for good, and when it is down.

The rules 1 to 5 of `load_control`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from agentv.executors.load_control import Endpoint

TICK_S = 0.5
"""How often an owner asks for its share, and how long calls pause after the first refusals."""
EVIDENCE, FEW = 5, 3
"""Requests that have to fail before an outage is suspected; failures or refusals before a limit is cut."""
PROBE_S, FRACTION = 0.25, 0.05
"""The interval of probes: at least this, at most a second, and between them a fraction of the outage so far."""
GRACE_S = 10.0
"""How long calls wait for an endpoint that has not accepted a connection in this run: it may be starting."""


class Failure(msgspec.Struct, frozen=True):
    """How a call failed. `is_refused` because of a rate limit, `is_unreached` if there was no server at the address,
    `is_unavailable` if a server replied that it cannot answer now."""

    retry_after_s: float | None = None
    is_refused: bool = False
    is_unreached: bool = False
    is_unavailable: bool = False


class Ticket(msgspec.Struct, eq=False):
    """A request. Its last call has a `number`, and started with `level` calls in flight, itself included.

    `counted` are its failed calls outside outages: how many calls had been answered before each. `is_error` once they
    are too many, and the endpoint is known to answer others. If it `repeats`, its task first repeats an answered one.
    `down_s` is how long the endpoint had been down when the request had waited too long.
    """

    lane: Lane
    patience_s: float = inf
    opens_job: bool = False
    has_place: bool = False
    number: int = 0
    level: int = 0
    failed_number: int = 0
    retries: int = 0
    queued: int = 0
    failed_at: float = 0.0
    ready_at: float = 0.0
    delay_s: float = 0.0
    down_s: float = 0.0
    is_isolated: bool = False
    is_forgiven: bool = False
    is_error: bool = False
    is_waiting: bool = False
    is_probe: bool = False
    repeats: bool = False
    counted: tuple[int, ...] = ()
    place: Any = None
    extra: Any = None
    reason: str = ""

    @property
    def is_spent(self) -> bool:
        """Whether it may not be called again."""
        return len(self.counted) > self.retries


class Lane:
    """The calls to one model of an endpoint: its queues and its outage.

    `sample` repeats an answered request for a ticket, and returns how it failed, if it did.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.sample: Callable[[Ticket], Awaitable[Failure | None]] | None = None
        self.is_unreached = False
        self.answers = self.in_flight = self.answered_number = 0
        self.begun: deque[Ticket] = deque()
        self.new: deque[Ticket] = deque()
        self.failures: list[Ticket] = []
        self.evidence: dict[Ticket, Failure] = {}
        self.down_since: float | None = None
        self.suspect_since: float | None = None
        self._down_number = 0
        self._probe_at = self.failed_at = self._started_at = 0.0

    @property
    def tickets(self) -> Iterator[Ticket]:
        """The requests that wait."""
        yield from (*self.begun, *self.new, *self.failures)

    @property
    def _spent(self) -> list[Ticket]:
        return [ticket for ticket in self.failures if ticket.is_spent]

    def down_for_s(self, now: float) -> float:
        """Return how long the endpoint has been down; 0 if it is not."""
        return 0.0 if self.down_since is None else now - self.down_since

    def longest_wait_s(self, ticket: Ticket) -> float:
        """Return how long a request may wait for this outage."""
        return min(ticket.patience_s, GRACE_S) if self.is_unreached else ticket.patience_s

    @property
    def may_be_down(self) -> bool:
        """Whether failures may be an outage: not if the address or the model is probably wrong."""
        is_stated = any(failure.is_unavailable or failure.is_unreached for failure in self.evidence.values())
        return self.answers > 0 or (not self.endpoint.answers and is_stated)

    def answered(self, number: int) -> list[Ticket]:
        """Count an answer after failures; return the requests that are errors because of it."""
        if self.down_since is not None and number <= self._down_number:
            return []
        self.evidence, self.down_since, self.suspect_since, self.is_unreached = {}, None, None, False
        return self._end([ticket for ticket in self._spent if ticket.failed_number <= number])

    def _end(self, tickets: list[Ticket], down_s: float = 0.0) -> list[Ticket]:
        for ticket in tickets:
            ticket.is_error, ticket.down_s = not down_s, down_s
            self.remove(ticket)
        return tickets

    def failed(self, ticket: Ticket, failure: Failure, now: float) -> None:
        """Count a failed call."""
        in_outage = self.is_proven and (self.down_since is not None or ticket.number <= self._down_number)
        if not in_outage and self.answered_number > (ticket.failed_number or ticket.number):
            ticket.is_isolated = True
        ticket.is_forgiven = failure.is_refused and self.endpoint.is_slowed and not ticket.is_forgiven
        if not in_outage and not ticket.is_forgiven and not (ticket.is_probe and ticket.failed_number):
            ticket.counted += (self.answers,)
        ticket.failed_number, ticket.failed_at = ticket.number, now
        if not ticket.patience_s or ticket.is_isolated:
            return
        self.evidence[ticket] = failure
        self.failed_at = now
        if failure.is_unreached and not self.endpoint.answers:
            self.is_unreached, self.suspect_since = True, self.suspect_since or now
            self.begin_outage(now)
        elif ticket.is_probe:
            self.begin_outage(now)
        elif len(self.evidence) >= max(EVIDENCE, self.in_flight) and self.suspect_since is None and self.may_be_down:
            self.suspect_since, self._probe_at = now, now + PROBE_S

    @property
    def is_proven(self) -> bool:
        """Whether a failed probe proves an outage."""
        return self.sample is not None or self.is_unreached

    def begin_outage(self, now: float) -> None:
        """Begin or continue an outage: a probe failed. If it is proven, the failures since the last answer are void."""
        if self.suspect_since is None or not self.may_be_down:
            return
        if self.down_since is None:
            self.down_since = min((ticket.failed_at for ticket in self.evidence), default=now)
            retry_at = [t.failed_at + f.retry_after_s for t, f in self.evidence.items() if f.retry_after_s is not None]
            self._probe_at = now + self._interval_s(now)
            if len(retry_at) >= max(FEW, len(self.evidence) - len(retry_at)):
                self._probe_at = max(self._probe_at, min(retry_at))
        self._down_number = self.endpoint.starts
        if self.is_proven:
            for ticket in {*self.evidence, *self.failures}:
                ticket.counted = tuple(answers for answers in ticket.counted if answers < self.answers)

    def _interval_s(self, now: float) -> float:
        since = self.suspect_since if self.down_since is None else self.down_since
        return min(1.0, max(PROBE_S, FRACTION * (now - (since or now))))

    @property
    def _idle_at(self) -> float:
        """The time from which only requests that may not be called again have been left for a moment."""
        is_empty = not (self.begun or self.new or self.in_flight) and self.suspect_since is None
        if not is_empty or not all(ticket.is_spent for ticket in self.failures):
            return inf
        return max((ticket.failed_at + PROBE_S for ticket in self.failures), default=inf)

    def settle(self, now: float) -> list[Ticket]:
        """Return requests that end without a call: nothing else can decide about them, or they have waited too long."""
        if down_s := self.down_for_s(now):
            return self._end([ticket for ticket in self.tickets if down_s >= self.longest_wait_s(ticket)], down_s)
        if now < self._idle_at:
            return []
        if self.sample is None:
            return self._end(self._spent)
        self.suspect_since = self._probe_at = now
        return []

    def pick(self, now: float) -> Ticket | None:
        """Return the request of this lane that may start now."""
        if now < self.open_at:
            return None
        fresh = self.begun or self.new
        if self.suspect_since is not None:
            return fresh[0] if fresh else min(self.failures, key=lambda each: (each.is_isolated, each.failed_at))
        is_turn = not fresh or self.endpoint.starts % FEW == 0
        if is_turn and (ready := [each for each in self.failures if each.ready_at <= now and not each.is_spent]):
            return min(ready, key=lambda each: (each.is_isolated, each.ready_at))
        return fresh[0] if fresh else None

    def started(self, ticket: Ticket, now: float) -> None:
        """Take note that a request of this lane starts. While the endpoint may be down, it is a probe."""
        self._started_at, is_tested = now, self.suspect_since is not None
        ticket.repeats = is_tested and self.sample is not None
        ticket.is_probe = is_tested and not ticket.repeats
        if is_tested:
            self._probe_at = now + self._interval_s(now)

    @property
    def open_at(self) -> float:
        """The time from which a request may start."""
        if self.suspect_since is not None:
            return self._probe_at if self.begun or self.new or self.failures else inf
        # While several requests in a row have failed, calls that started before may show why.
        is_braked = self.in_flight and len(self.evidence) >= EVIDENCE and self._started_at < self.failed_at
        braked_until = self.failed_at + PROBE_S if is_braked else 0.0
        if self.begun or self.new:
            return braked_until
        waits = [ticket.ready_at for ticket in self.failures if not ticket.is_spent]
        return max(braked_until, min(waits, default=inf))

    @property
    def settle_at(self) -> float:
        """The time at which a request that waits may end without a call."""
        if self.down_since is None:
            return self._idle_at
        return self.down_since + min((self.longest_wait_s(ticket) for ticket in self.tickets), default=inf)

    def remove(self, ticket: Ticket) -> None:
        """Remove a request from its queue, if it waits."""
        if ticket.is_waiting:
            ticket.is_waiting = False
            self.endpoint.waiting -= 1
            self.queue_of(ticket).remove(ticket)

    def queue_of(self, ticket: Ticket) -> list[Ticket] | deque[Ticket]:
        """Return the queue in which a request waits."""
        return self.failures if ticket.failed_number else self.new if ticket.opens_job else self.begun
