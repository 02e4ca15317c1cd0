"""Wrappers applied to every live target: the endpoint's limit, the timeout of an attempt, the job's workspace."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from itertools import count

import msgspec

from agentv.executors.call_queue import UNLIMITED
from agentv.executors.executor import EndpointLimit
from agentv.executors.outage import ANSWERED, UNANSWERED, CallReport, EndpointDown
from agentv.model.response import (
    FailedCalls,
    Hold,
    Prepare,
    Request,
    Responder,
    ResponderWrapper,
    Response,
    TargetFailure,
)

_OVERLOADED = frozenset({"server", "network", "timeout"})
_RESPONDED = frozenset({"auth", "refused", "invalid_response"})
_UNAVAILABLE = frozenset({502, 503, 504})
_LONGEST_DOWN_S = 60.0
"""A server that is down does not know for how long: one call tries again after this time, whatever it asked for."""


_numbers = count(1)


class OutageFailure(TargetFailure):
    """A call that was not made, or not repeated, because its endpoint has been down for too long."""


class LimitWrapper(ResponderWrapper):
    """Waits for a place at the endpoint, measures the duration of the call, and reports how it ended.

    If the endpoint is down, calls wait for `patience_s` before they fail. `name` is the target's. The time of a call
    that is not `timed` is not measured: reading a recorded answer is not answering.
    """

    def __init__(
        self, inner: Responder, limiter: EndpointLimit, patience_s: float, name: str = "NAME", *, timed: bool = True
    ) -> None:
        super().__init__(inner)
        self._name = name
        self._timed = timed
        self._limiter = limiter
        self._patience_s = patience_s
        self._last_failure: TargetFailure | None = None

    async def respond(self, request: Request) -> Response:
        limiter = self._limiter
        if request.failed_calls is not None or not limiter.try_enter():
            await self._enter(request)
        if request.hold is not None and request.opens_job and request.hold.is_closed:
            await self._enter_later(request, request.hold)
        report, entered_at = UNANSWERED, limiter.now()
        try:
            started = time.perf_counter()
            response = await self._inner.respond(request)
            report = ANSWERED if response.wait_s is None else CallReport(retry_after_s=response.wait_s)
        except TargetFailure as failure:
            if failure.duration_ms is None:
                failure.duration_ms = _milliseconds_since(started)
            self._reclassify(failure)
            report = self._report(failure, request, entered_at)
            self._last_failure = failure
            request.opens_job = False
            raise
        finally:
            limiter.leave(report, entered_at)
        return response if response.duration_ms is not None or not self._timed else _timed(response, started)

    def _reclassify(self, failure: TargetFailure) -> None:
        """Treat a page from an endpoint that has answered before as an outage, and limit the wait for a server error.

        If the endpoint has never answered, its address is probably wrong.
        """
        if failure.is_page and self._limiter.answers:
            failure.error_class, failure.status = "server", None
        if failure.retry_after_s is not None and failure.error_class == "server":
            # Half of the patience, so that a call tries again before jobs give up.
            failure.retry_after_s = min(failure.retry_after_s, self._patience_s / 2 or _LONGEST_DOWN_S, _LONGEST_DOWN_S)

    def _report(self, failure: TargetFailure, request: Request, started: float) -> CallReport:
        """Return how a call failed, and take note whether its request fails in isolation."""
        refused, overloaded = failure.error_class == "rate_limit", failure.error_class in _OVERLOADED
        ok, wait_s = failure.error_class in _RESPONDED and not failure.is_page, failure.retry_after_s
        report = CallReport(ok, refused, overloaded, wait_s, failure.is_unreachable, failure.status in _UNAVAILABLE)
        if ok:
            return report
        past = request.failed_calls or FailedCalls(next(_numbers), started)
        was_isolated = past.is_isolated
        past.others_answered = self._limiter.answered_start >= past.started
        past.is_isolated = was_isolated or past.others_answered
        past.started, request.failed_calls = started, past
        return report._replace(request=past.number, is_isolated=past.is_isolated, was_isolated=was_isolated)

    async def _enter_later(self, request: Request, hold: Hold) -> None:
        """Give the place back until the first calls of jobs may start."""
        while hold.is_closed:
            self._limiter.leave(UNANSWERED)
            await hold.wait()
            await self._enter(request)

    async def _enter(self, request: Request) -> None:
        try:
            await self._limiter.enter(self._patience_s, opens_job=request.opens_job, failed=request.failed_calls)
        except EndpointDown as down:
            raise self._outage_failure(down.down_for_s) from None

    def _outage_failure(self, down_for_s: float) -> OutageFailure:
        last, where = self._last_failure, self.endpoint.partition("#")[0]
        if self._limiter.longest_wait_s < UNLIMITED:
            problem = f"{where}: no connection" if last is None else last.message
            hint = f"Check the address and the server with: agentv targets check {self._name}"
            return OutageFailure("network", f"{problem} (tried for {down_for_s:.0f} s). {hint}")
        message = f"{where} has been down for {down_for_s:.0f} s"
        if last is None:
            return OutageFailure("network", message)
        return OutageFailure(last.error_class, f"{message}: {last.message}", status=last.status)


class TimeoutWrapper(ResponderWrapper):
    """Sets the timeout of a request: the command's, else the case's, else the target's.

    The target enforces it, because only the target can end what it started.
    """

    def __init__(self, inner: Responder, own_s: float, command_s: float | None) -> None:
        super().__init__(inner)
        self.own_s = own_s
        self._command_s = command_s

    def respond(self, request: Request) -> Awaitable[Response]:
        request.timeout_s = self._command_s or request.case.execution.timeout_seconds or self.own_s
        return self._inner.respond(request)


class WorkspaceWrapper(ResponderWrapper):
    """Prepares the workspace of a job for each attempt, after the call got its place at the endpoint."""

    def respond(self, request: Request) -> Awaitable[Response]:
        prepare = request.prepare
        return self._inner.respond(request) if prepare is None else self._prepared(request, prepare)

    async def _prepared(self, request: Request, prepare: Prepare) -> Response:
        await prepare(request.attempt, request.timeout_s)
        started = time.perf_counter()  # preparing the folder does not count as the target's time
        response = await self._inner.respond(request)
        return response if response.duration_ms is not None else _timed(response, started)


def _timed(response: Response, started: float) -> Response:
    """Return a response with its duration, for targets that do not report it."""
    return msgspec.structs.replace(response, duration_ms=_milliseconds_since(started))


def _milliseconds_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
