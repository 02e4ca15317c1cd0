"""Wrappers applied to every live target: the endpoint's limit, and the job's workspace."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import partial

import msgspec

from agentv.executors.lane import Failure, Ticket
from agentv.executors.limiter import EndpointLimit
from agentv.model.response import Hold, Prepare, Request, Responder, ResponderWrapper, Response, TargetFailure

_OVERLOADED = frozenset({"server", "network", "timeout"})
_RESPONDED = frozenset({"auth", "refused", "invalid_response"})
_UNAVAILABLE = frozenset({502, 503, 504})
_LONGEST_DOWN_S = 60.0
"""A server that is down does not know for how long: one call tries again after this time, whatever it asked for."""


class OutageFailure(TargetFailure):
    """A call that was not made, or not repeated, because its endpoint has been down for too long."""


class WorkspaceWrapper(ResponderWrapper):
    """Prepares the workspace of a job for each attempt, after the call got its place at the endpoint."""

    def respond(self, request: Request) -> Awaitable[Response]:
        prepare = request.prepare
        return self._inner.respond(request) if prepare is None else self._prepared(request, prepare)

    async def _prepared(self, request: Request, prepare: Prepare) -> Response:
        await prepare(request.attempt, request.timeout_s)
        started = time.perf_counter_ns()  # preparing the folder does not count as the target's time
        response = await self._inner.respond(request)
        if response.duration_ms is not None:
            return response
        return msgspec.structs.replace(response, duration_ms=_milliseconds_since(started))


class LimitWrapper(WorkspaceWrapper):
    """Waits for a place at the endpoint, prepares the workspace, measures the call, and reports how it ended.

    If the endpoint is down, calls wait for `patience_s` before they fail. `name` is the target's. The time of a call
    that is not `timed` is not measured: reading a recorded answer is not answering. An answered request may be sent
    again to test the endpoint if it `is_repeatable`.
    """

    is_repeatable = False

    def __init__(
        self, inner: Responder, limiter: EndpointLimit, patience_s: float, name: str = "NAME", *, timed: bool = True
    ) -> None:
        super().__init__(inner)
        self._name = name
        self._timed = timed
        self._limiter = limiter
        self._patience_s = patience_s

    async def respond(self, request: Request) -> Response:
        limiter = self._limiter
        ticket = request.ticket
        if ticket is None:
            ticket = request.ticket = limiter.try_enter(self._patience_s, opens_job=request.opens_job)
        if not ticket.has_place:
            await self._enter(ticket)
        if request.hold is not None and request.opens_job and request.hold.is_closed:
            await self._enter_later(request.hold, ticket)
        report: Failure | None = None
        is_answered, prepare = False, request.prepare
        try:
            started = time.perf_counter_ns()
            response = await (self._inner.respond(request) if prepare is None else self._prepared(request, prepare))
            is_answered = True
        except TargetFailure as failure:
            if failure.duration_ms is None:
                failure.duration_ms = _milliseconds_since(started)
            self._reclassify(failure)
            is_answered = failure.error_class in _RESPONDED and not failure.is_page
            report, ticket.reason = _report(failure), failure.error_class
            if ticket.extra is not None:
                failure.add_use(ticket.extra)
                ticket.extra = None
            limiter.last_failure = failure
            request.opens_job = False
            raise
        finally:
            limiter.leave(ticket, report, is_answered=is_answered)
        if response.wait_s:
            limiter.close_for(response.wait_s)
        if self.is_repeatable:
            limiter.lane.sample = partial(self._repeat, request)
        if ticket.extra is not None:
            response = ticket.extra.added_to(response)
        if response.duration_ms is not None or not self._timed:
            return response
        return msgspec.structs.replace(response, duration_ms=(time.perf_counter_ns() - started) // 1000 / 1000)

    async def _repeat(self, request: Request, ticket: Ticket) -> Failure | None:
        """Send an answered request again; its cost is that of the request that waits."""
        try:
            response = await super().respond(request)
        except TargetFailure as failure:
            self._reclassify(failure)
            ticket.extra = failure.add_use(ticket.extra)
            return None if failure.error_class in _RESPONDED and not failure.is_page else _report(failure) or Failure()
        ticket.extra = TargetFailure("server", "").add_use(response).add_use(ticket.extra)
        return None

    def _reclassify(self, failure: TargetFailure) -> None:
        """Treat a page from an endpoint that has answered before as an outage, and limit the wait for a server error.

        If the endpoint has never answered, its address is probably wrong.
        """
        if failure.is_page and self._limiter.lane.answers:
            failure.error_class, failure.status = "server", None
        if failure.retry_after_s is not None and failure.error_class == "server":
            # Half of the patience, so that a call tries again before jobs give up.
            failure.retry_after_s = min(failure.retry_after_s, self._patience_s / 2 or _LONGEST_DOWN_S, _LONGEST_DOWN_S)

    async def _enter_later(self, hold: Hold, ticket: Ticket) -> None:
        """Give the place back until the first calls of jobs may start."""
        while hold.is_closed:
            self._limiter.leave(ticket)
            await hold.wait()
            await self._enter(ticket)

    async def _enter(self, ticket: Ticket) -> None:
        if not await self._limiter.enter(ticket):
            raise outage_failure(self._limiter, ticket.down_s, self.endpoint, self._name)


def outage_failure(limit: EndpointLimit, down_for_s: float, endpoint: str, name: str) -> OutageFailure:
    """Return the failure of a call whose endpoint has been down for too long; `name` is the target's."""
    last, where = limit.last_failure, endpoint.partition("#")[0]
    if limit.lane.is_unreached:
        problem = f"{where}: no connection" if last is None else last.message
        hint = f"Check the address and the server with: agentv targets check {name}"
        return OutageFailure("network", f"{problem} (tried for {down_for_s:.0f} s). {hint}")
    message = f"{where} has been down for {down_for_s:.0f} s"
    if last is None:
        return OutageFailure("network", message)
    return OutageFailure(last.error_class, f"{message}: {last.message}", status=last.status)


def _report(failure: TargetFailure) -> Failure | None:
    """Return what a failure shows about the endpoint; None if nothing, or that it answers."""
    if failure.error_class != "rate_limit" and failure.error_class not in _OVERLOADED:
        return None
    is_refused = failure.error_class == "rate_limit"
    return Failure(failure.retry_after_s, is_refused, failure.is_unreachable, failure.status in _UNAVAILABLE)


def _milliseconds_since(started: int) -> float:
    return (time.perf_counter_ns() - started) // 1000 / 1000
