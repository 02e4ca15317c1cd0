"""Calls to targets as a run makes them: limited per endpoint, timed, tried again where that makes sense."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import msgspec

from agentv.engine.job import RunSpec
from agentv.engine.limits import Limiter
from agentv.engine.retry import RetryPolicy, policy_of
from agentv.model.response import Request, Responder, Response, TargetFailure
from agentv.targets.base import ModelApi, Target

API_START, API_MOST = 10, 200
API_TIMEOUT_S, PROCESS_TIMEOUT_S = 300.0, 1800.0
_REFUSALS = frozenset({"rate_limit"})
_OVERLOADED = frozenset({429, 503, 529})


class Answered(msgspec.Struct, frozen=True, gc=False):
    """A call that ended: with a response or a failure, after so many attempts."""

    response: Response | None
    failure: TargetFailure | None
    attempts: int


class LiveTarget:
    """A target that is open, with its limiter and its policy for trying again."""

    def __init__(self, settings: Target, responder: Responder, limiter: Limiter, spec: RunSpec) -> None:
        self.settings = settings
        self.responder = responder
        self.limiter = limiter
        self.policy: RetryPolicy = policy_of(settings, spec.max_retries)
        default = API_TIMEOUT_S if isinstance(settings, ModelApi) else PROCESS_TIMEOUT_S
        self.timeout_s = spec.timeout_s or settings.timeout_seconds or default

    async def call(self, request: Any, timeout_s: float | None = None) -> Answered:
        """One answer, or the failure of the last attempt."""
        request.timeout_s = timeout_s or self.timeout_s
        attempts = 0
        while True:
            attempts += 1
            request.attempt = attempts
            try:
                return Answered(await self._once(request), None, attempts)
            except TargetFailure as failure:
                delay = self.policy.delay_s(failure, attempts - 1)
                if delay is None:
                    return Answered(None, failure, attempts)
                await asyncio.sleep(delay)

    async def _once(self, request: Request) -> Response:
        limiter = self.limiter
        if not limiter.try_enter():
            await limiter.enter()
        started = time.perf_counter()
        try:
            response = await self.responder.respond(request)
        except TargetFailure as failure:
            refused = failure.error_class in _REFUSALS or failure.status in _OVERLOADED
            limiter.leave(ok=False, refused=refused, retry_after_s=failure.retry_after_s)
            raise
        except BaseException:
            limiter.leave(ok=False)
            raise
        limiter.leave()
        if response.duration_ms is None:
            elapsed = (time.perf_counter() - started) * 1000
            response = msgspec.structs.replace(response, duration_ms=round(elapsed, 3))
        return response


class Targets:
    """The open targets of a run. Those with the same endpoint share one limiter."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._live: dict[str, LiveTarget] = {}
        self._limiters: dict[str, Limiter] = {}

    def get(self, name: str) -> LiveTarget:
        """A target by name, opened on first use."""
        live = self._live.get(name)
        if live is None:
            settings = self._spec.target(name)
            responder = settings.open(self._spec.home)
            limiter = self._limiter(settings, responder.endpoint)
            live = self._live[name] = LiveTarget(settings, responder, limiter, self._spec)
        return live

    @property
    def concurrency(self) -> int:
        """Calls that may be in flight now, over all endpoints."""
        return sum(limiter.limit for limiter in self._limiters.values())

    async def aclose(self) -> None:
        """Closes what was opened; nothing keeps the others from closing."""
        live, self._live = list(self._live.values()), {}
        await asyncio.gather(*(each.responder.aclose() for each in live), return_exceptions=True)

    def _limiter(self, settings: Target, endpoint: str) -> Limiter:
        limiter = self._limiters.get(endpoint)
        if limiter is None:
            start, most = concurrency_of(settings, self._spec.workers)
            limiter = self._limiters[endpoint] = Limiter(start, most)
        return limiter


def concurrency_of(settings: Target, workers: int | None) -> tuple[int, int]:
    """Calls at once, at the start and at most: what the user says, else by the kind of target."""
    said = workers or settings.workers
    if said:
        return said, said
    if isinstance(settings, ModelApi) or settings.provider == "http":
        return API_START, API_MOST
    return (cores := os.cpu_count() or 1), cores
