"""Retry failed calls with exponential backoff, depending on the class of the failure."""

from __future__ import annotations

import asyncio
import random

import msgspec

from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.targets.target import Target

MAX_RETRIES = 3

_RETRYABLE = frozenset({"timeout", "rate_limit", "server", "network"})


class RetryPolicy(msgspec.Struct, frozen=True):
    """The retry settings of a target."""

    max_retries: int = MAX_RETRIES
    initial_delay_s: float = 1.0
    max_delay_s: float = 60.0
    backoff_factor: float = 2.0
    status_codes: tuple[int, ...] = ()

    def delay_s(self, failure: TargetFailure, retries: int) -> float | None:
        """Return the seconds to wait before the next attempt; None if the failure is final.

        Uses full jitter, so that calls that failed together are not retried together.
        """
        if retries >= self.max_retries or not self._is_retryable(failure):
            return None
        backoff = min(self.max_delay_s, self.initial_delay_s * self.backoff_factor**retries)
        return max(random.uniform(0, backoff), failure.retry_after_s or 0.0)  # noqa: S311  # not for secrets

    def _is_retryable(self, failure: TargetFailure) -> bool:
        if failure.status is not None and failure.error_class not in ("network", "timeout"):
            return failure.status in self.status_codes
        return failure.error_class in _RETRYABLE


def policy_of(target: Target, max_retries: int | None = None) -> RetryPolicy:
    """Return the retry policy of a target; `max_retries` overrides the target's own."""
    retries = target.max_retries if max_retries is None else max_retries
    return RetryPolicy(
        MAX_RETRIES if retries is None else retries,
        target.retry_initial_delay_ms / 1000,
        target.retry_max_delay_ms / 1000,
        target.retry_backoff_factor,
        tuple(target.retry_status_codes),
    )


class RetryWrapper(ResponderWrapper):
    """Repeats failed attempts. `request.attempt` is the number of the current one."""

    def __init__(self, inner: Responder, policy: RetryPolicy) -> None:
        super().__init__(inner)
        self.policy = policy

    async def respond(self, request: Request, final: frozenset[int] = frozenset()) -> Response:
        """Answer, or raise the last failure. Failures with a status in `final` are not retried."""
        request.attempt = 1
        failed: TargetFailure | None = None
        while True:
            try:
                response = await self._inner.respond(request)
                return response if failed is None else failed.added_to(response)
            except TargetFailure as failure:
                failed = failure.add_use(failed)
                delay_s = self.policy.delay_s(failure, request.attempt - 1)
                if delay_s is None or failure.status in final:
                    raise
            await asyncio.sleep(delay_s)
            request.attempt += 1
