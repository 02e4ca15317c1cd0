"""The limit of an endpoint, as a wrapper: wait for a place, and report how the call went."""

from __future__ import annotations

import time

import msgspec

from agentv.executors.executor import EndpointLimit
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure

_OVERLOADED = frozenset({503, 529})


class LimitWrapper(ResponderWrapper):
    """Holds a place at the endpoint while the target answers, and measures how long that takes."""

    def __init__(self, inner: Responder, limiter: EndpointLimit) -> None:
        super().__init__(inner)
        self._limiter = limiter

    async def respond(self, request: Request) -> Response:
        limiter = self._limiter
        if not limiter.try_enter():
            await limiter.enter()
        try:
            started = time.perf_counter()
            response = await self._inner.respond(request)
        except TargetFailure as failure:
            limiter.leave(
                ok=False,
                refused=failure.error_class == "rate_limit",
                overloaded=failure.status in _OVERLOADED,
                retry_after_s=failure.retry_after_s,
            )
            raise
        except BaseException:
            limiter.leave(ok=False)
            raise
        limiter.leave(retry_after_s=response.wait_s)
        return response if response.duration_ms is not None else timed(response, started)


def timed(response: Response, started: float) -> Response:
    """Return a response with how long it took, for targets that do not say so."""
    elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
    return msgspec.structs.replace(response, duration_ms=elapsed_ms)
