"""Combine concurrent requests into batches, for targets that answer many cases with one call."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeGuard

from agentv.executors.limiter import EndpointLimit
from agentv.model.response import BatchResponder, Request, Responder, ResponderWrapper, Response, TargetFailure

if TYPE_CHECKING:
    from agentv.engine.calls.line_log import LineLog

MAX_BATCH = 500
"""Requests per call."""

_QUIET_S, _RETRY_QUIET_S = 0.05, 1.0
"""Delay after the last request before a batch is sent; longer for retries, which are spread over about a second."""


def is_batching(responder: Responder) -> TypeGuard[BatchResponder]:
    """Whether a target answers many cases with one call."""
    return getattr(responder, "batching", False) is True


class BatchWrapper(ResponderWrapper):
    """Sends requests in batches. A batch takes one place at the endpoint.

    Requests that need preparation, such as a workspace, are passed to `single` one at a time.
    """

    def __init__(
        self, inner: BatchResponder, single: Responder, limiter: EndpointLimit, log: LineLog | None = None
    ) -> None:
        super().__init__(inner)
        self._log = log
        self._batch_inner = inner
        self._single = single
        self._limiter = limiter
        self._open: dict[Hashable, list[_Batch]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def respond(self, request: Request) -> Response:
        """Add a request to a batch, and wait for its response."""
        if request.prepare is not None:
            return await self._single.respond(request)
        if self._log is not None and request.attempt == 1 and (answer := self._log.take(request)) is not None:
            return answer
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._add(request, response)
        return await response

    async def aclose(self) -> None:
        """Cancel unfinished calls, and close the target."""
        for batches in self._open.values():
            for batch in batches:
                batch.stop_timer()
        self._open.clear()
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        if self._log is not None:
            self._log.close()
        await self._single.aclose()

    def _add(self, request: Request, response: asyncio.Future[Response]) -> None:
        # A call has one folder, one trial, one attempt number and one set of guidelines.
        key = (request.case.path, request.trial, request.attempt, request.guidelines)
        batches = self._open.setdefault(key, [])
        batch = next((batch for batch in batches if request.case.id not in batch.waiting), None)
        if batch is None:
            batch = _Batch()
            batches.append(batch)
        batch.waiting[request.case.id] = (request, response)
        batch.stop_timer()
        if len(batch.waiting) >= MAX_BATCH:
            self._start(key, batch)
        else:
            quiet_s = _QUIET_S if request.attempt == 1 else _RETRY_QUIET_S
            batch.timer = asyncio.get_running_loop().call_later(quiet_s, self._start, key, batch)

    def _start(self, key: Hashable, batch: _Batch) -> None:
        self._open[key].remove(batch)
        if not self._open[key]:
            del self._open[key]
        call = asyncio.ensure_future(self._call(batch))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, batch: _Batch) -> None:
        opens_job = all(request.opens_job for request, _ in batch.waiting.values())
        ticket = self._limiter.ticket(opens_job=opens_job)
        try:
            await self._limiter.enter(ticket)
        except asyncio.CancelledError:
            batch.drop()
            raise
        outcomes: dict[str, Response | TargetFailure] | Exception
        try:
            requests = [request for request, response in batch.waiting.values() if not response.done()]
            outcomes = await self._respond_many(requests) if requests else {}
        except Exception as error:
            outcomes = error
        finally:
            self._limiter.leave(ticket, is_answered=True)
        batch.settle(outcomes)

    async def _respond_many(self, requests: list[Request]) -> dict[str, Response | TargetFailure]:
        """Call the target. Answers are stored as they arrive, and withdrawn if the call fails."""
        log = self._log
        if log is None:
            return await self._batch_inner.respond_many(requests)
        by_id, arrived = {request.case.id: request for request in requests}, set[str]()

        def store(id: str, response: Response) -> None:
            if id in by_id and id not in arrived:
                arrived.add(id)
                log.add(by_id[id], response)

        outcomes = await self._batch_inner.respond_many(requests, store)
        if wrong := [by_id[id] for id in arrived if isinstance(outcomes[id], TargetFailure)]:
            log.void(wrong)
        return outcomes


class _Batch:
    """The requests of one call by case id, and the futures of their responses."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[Request, asyncio.Future[Response]]] = {}
        self.timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def drop(self) -> None:
        """Cancel the requests: the run has stopped before the call."""
        for _, response in self.waiting.values():
            response.cancel()

    def settle(self, outcomes: dict[str, Response | TargetFailure] | Exception) -> None:
        for id, (request, response) in self.waiting.items():
            if response.done():
                continue  # cancelled
            request.opens_job = False
            # A copy of the exception for each request, because each raise adds to its traceback.
            outcome = copy.copy(outcomes) if isinstance(outcomes, Exception) else outcomes[id]
            if isinstance(outcome, Exception):
                response.set_exception(outcome)
            else:
                response.set_result(outcome)
