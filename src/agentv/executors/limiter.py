"""Apply the rules of `load_control` to calls in an event loop: waiting requests are futures, and a timer wakes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from agentv.executors.lane import Failure, Lane, Ticket
from agentv.executors.load_control import Endpoint
from agentv.executors.shares import Lease, Owner


class EndpointLimit:
    """The limit of one lane: the calls to one model of an endpoint. `names` are the targets that make them."""

    def __init__(self, limiter: Limiter, lane: Lane) -> None:
        self.lane = lane
        self.last_failure: Any = None
        self.names: set[str] = set()
        self._limiter = limiter

    def ticket(self, patience_s: float = inf, *, opens_job: bool = False) -> Ticket:
        """Return a ticket for a request."""
        return Ticket(self.lane, patience_s, opens_job)

    def try_enter(self, patience_s: float = inf, *, opens_job: bool = False) -> Ticket:
        """Return a ticket for a request, which `has_place` if one is free."""
        limiter, ticket = self._limiter, Ticket(self.lane, patience_s, opens_job)
        if not limiter.is_stopped:
            limiter.endpoint.try_start(ticket, limiter.now())
        return ticket

    async def enter(self, ticket: Ticket) -> bool:
        """Wait for a place; return False if the request has ended: it `is_error`, or waited too long, `down_s`.

        Repeats an answered request first, if the endpoint has to be tested.
        """
        while await self._limiter.wait(ticket):
            if not ticket.repeats or self.lane.sample is None:
                return True
            failure: Failure | None = Failure()
            try:
                failure = await self.lane.sample(ticket)
            finally:
                self.leave(ticket, failure, is_answered=failure is None)
        return False

    def leave(self, ticket: Ticket, failure: Failure | None = None, *, is_answered: bool = False) -> None:
        """Give back the place of a request: answered, failed, or neither."""
        limiter, endpoint = self._limiter, self._limiter.endpoint
        if is_answered:
            if ended := endpoint.answered(ticket):
                limiter.end(ended)
        elif failure is None:
            endpoint.release(ticket)
        else:
            endpoint.failed(ticket, failure, limiter.now())
        if endpoint.waiting:
            limiter.wake()

    def close_for(self, wait_s: float) -> None:
        """Start no call for this time: its rate limit is used up, according to its answer."""
        endpoint = self._limiter.endpoint
        endpoint.closed_until = max(endpoint.closed_until, self._limiter.now() + wait_s)


class Limiter:
    """The limit of one endpoint, shared by all targets and judges that call it. Used in one event loop only."""

    def __init__(
        self, start: int, most: int, *, clock: Callable[[], float] = time.monotonic, lease: Lease | None = None
    ) -> None:
        self.now = clock
        self.endpoint = Endpoint(start, most)
        self.lanes: dict[str, EndpointLimit] = {}
        self._lease = lease
        self.endpoint.allowance = inf if lease is None else 0
        self._timer: asyncio.TimerHandle | None = None
        self._leasing: asyncio.Task[None] | None = None
        self.is_stopped = False

    def lane(self, name: str) -> EndpointLimit:
        """Return the lane of a model or target."""
        return self.lanes.setdefault(name, EndpointLimit(self, self.endpoint.lane(name)))

    async def wait(self, ticket: Ticket) -> bool:
        """Wait for a place; return False if the request has ended without one."""
        if self.is_stopped and ticket.opens_job:
            raise asyncio.CancelledError
        self.endpoint.add(ticket, self.now())
        if ticket.is_error:
            return False
        place = ticket.place = asyncio.get_running_loop().create_future()
        if self._lease is not None and self._leasing is None:
            self._leasing = asyncio.ensure_future(self._share(self._lease))
        self.wake()
        try:
            return bool(await place)
        except asyncio.CancelledError:
            self.endpoint.release(ticket)
            ticket.lane.remove(ticket)
            self.wake()
            raise

    def stop(self) -> None:
        """Cancel the first calls of jobs, now and later. Other calls go on: their jobs have been paid for."""
        self.is_stopped = True
        for ticket in [ticket for lane in self.endpoint.lanes.values() for ticket in lane.new]:
            ticket.place.cancel()

    def close(self) -> None:
        """Leave the limit to other processes."""
        for task in (self._timer, self._leasing):
            if task is not None:
                task.cancel()

    def wake(self) -> None:
        """Start waiting calls that may start, end those that must not wait any longer, and set a timer for the rest."""
        endpoint, now = self.endpoint, self.now()
        self.end(endpoint.settle(now))
        while (ticket := endpoint.next(now)) is not None:
            if ticket.place.done():
                endpoint.release(ticket)
            else:
                ticket.place.set_result(True)
        wake_at = endpoint.wake_at(now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at < inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wake_at - now), self.wake)

    def end(self, tickets: list[Ticket]) -> None:
        """End the wait of requests that are errors, or have waited too long."""
        for ticket in tickets:
            if not ticket.place.done():
                ticket.place.set_result(False)

    async def _share(self, lease: Lease) -> None:
        """Ask how many calls other processes leave to this one, again and again, while there are calls."""
        endpoint = self.endpoint
        try:
            while endpoint.in_flight or endpoint.waiting:
                need = endpoint.most if endpoint.waiting else min(endpoint.most, endpoint.in_flight)
                part = await lease.update(Owner(endpoint.most, need, endpoint.in_flight))
                endpoint.allowance = part.calls
                self.wake()
                await asyncio.sleep(part.ask_after_s)
        except Exception as error:  # the driver is gone
            for ticket in [ticket for lane in endpoint.lanes.values() for ticket in lane.tickets]:
                ticket.lane.remove(ticket)
                ticket.place.set_exception(error)
        finally:
            self._leasing = None
            endpoint.allowance = endpoint.in_flight
            with suppress(Exception):
                lease.release()
