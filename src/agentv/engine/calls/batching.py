"""Many cases in one call, for targets that answer so: what is asked at about the same time goes out together."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Hashable
from typing import TypeGuard

from agentv.executors.executor import EndpointLimit
from agentv.model.response import BatchResponder, Request, Responder, ResponderWrapper, Response, TargetFailure

MOST_IN_BATCH = 500
"""As many answers as one command holds back until it ends, and as a kill can cost."""

_QUIET_S, _QUIET_AGAIN_S = 0.05, 1.0
"""So long after the last question a call is made. Those that failed together come back spread over a second or so."""


def is_batching(responder: Responder) -> TypeGuard[BatchResponder]:
    """Whether a target answers many cases with one call."""
    return getattr(responder, "batching", False) is True


class BatchWrapper(ResponderWrapper):
    """In front of a target that answers many cases at once: a call takes one place at the endpoint, not one a case.

    `alone` answers what needs something of its own made ready before it is asked, one by one.
    """

    def __init__(self, inner: BatchResponder, alone: Responder, limiter: EndpointLimit) -> None:
        super().__init__(inner)
        self._batch_inner = inner
        self._alone = alone
        self._limiter = limiter
        self._open: dict[Hashable, list[_Batch]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def respond(self, request: Request) -> Response:
        """Waits for the call that this question goes into."""
        if request.prepare is not None:
            return await self._alone.respond(request)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._add(request, answer)
        return await answer

    async def aclose(self) -> None:
        """Ends calls whose answers nobody waits for any more, and closes the target."""
        for batches in self._open.values():
            for batch in batches:
                batch.stop_waiting()
        self._open.clear()
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        await self._alone.aclose()

    def _add(self, request: Request, answer: asyncio.Future[Response]) -> None:
        # One call is told one folder, one set of guidelines and one number of the attempt.
        key = (request.case.path, request.trial, request.attempt, request.guidelines)
        batches = self._open.setdefault(key, [])
        batch = next((batch for batch in batches if request.case.id not in batch.questions), None)
        if batch is None:
            batch = _Batch()
            batches.append(batch)
        batch.questions[request.case.id] = (request, answer)
        if len(batch.questions) >= MOST_IN_BATCH:
            self._begin(key, batch)
        else:
            quiet_s = _QUIET_S if request.attempt == 1 else _QUIET_AGAIN_S
            batch.wait(quiet_s, lambda: self._begin(key, batch))

    def _begin(self, key: Hashable, batch: _Batch) -> None:
        batch.stop_waiting()
        self._open[key].remove(batch)
        if not self._open[key]:
            del self._open[key]
        call = asyncio.ensure_future(self._call(batch))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, batch: _Batch) -> None:
        await self._limiter.enter()
        try:
            asked = [request for request, answer in batch.questions.values() if not answer.done()]
            outcomes = await self._batch_inner.respond_many(asked) if asked else {}
        except Exception as error:
            batch.fail(error)
        else:
            batch.answer(outcomes)
        finally:
            self._limiter.leave()


class _Batch:
    """Questions for one call, by the id of their case, and who waits for the answers."""

    def __init__(self) -> None:
        self.questions: dict[str, tuple[Request, asyncio.Future[Response]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, quiet_s: float, begin: Callable[[], None]) -> None:
        self.stop_waiting()
        self._timer = asyncio.get_running_loop().call_later(quiet_s, begin)

    def stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def answer(self, outcomes: dict[str, Response | TargetFailure]) -> None:
        for id, (_, answer) in self.questions.items():
            if answer.done():
                continue  # cancelled: nobody waits
            outcome = outcomes[id]
            if isinstance(outcome, TargetFailure):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

    def fail(self, error: Exception) -> None:
        for _, answer in self.questions.values():
            if not answer.done():
                # One exception for many would gather the traceback of each.
                answer.set_exception(copy.copy(error))
