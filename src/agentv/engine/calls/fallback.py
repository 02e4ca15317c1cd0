"""Let other targets answer when all attempts of a call have failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from agentv.engine.calls.retry import RetryWrapper
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.targets.response_formats import FORMAT_REJECTED


class FallbackWrapper(ResponderWrapper):
    """Calls the fallbacks in order after a failure. If all of them fail, the failure is that of the target itself.

    `fallbacks` opens each by name. Attempts are counted over all targets of the call. With `has_schema`, a request
    whose response format the endpoint rejects has no fallback: the caller repeats it in another format.
    """

    def __init__(
        self, inner: RetryWrapper, fallbacks: Mapping[str, Callable[[], Responder]], *, has_schema: bool = False
    ) -> None:
        super().__init__(inner)
        self._target = inner
        self._fallbacks = fallbacks
        self._has_schema = has_schema

    async def respond(self, request: Request, final: frozenset[int] = frozenset()) -> Response:
        try:
            return await self._target.respond(request, final)
        except TargetFailure as failure:
            if self._has_schema and failure.status in FORMAT_REJECTED | final:
                raise
            first = failure
        attempts, reasons = request.attempt, []
        for name, opened in self._fallbacks.items():
            try:
                response = await opened().respond(request)
            except TargetFailure as failure:
                reasons.append(f"fallback '{name}' failed ({failure.error_class}): {failure.message}")
                first.add_use(failure)
            else:
                return first.added_to(msgspec.structs.replace(response, answered_by=name))
            finally:
                attempts = request.attempt = attempts + request.attempt
        message = "; ".join((first.message, *reasons))
        raise TargetFailure(first.error_class, message, status=first.status, stage=first.stage).add_use(first)
