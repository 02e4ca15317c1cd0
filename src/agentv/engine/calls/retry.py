"""Retry failed calls with exponential backoff, depending on the class of the failure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from agentv.engine.calls.wrappers import OutageFailure
from agentv.executors.executor import EndpointLimit
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.targets.target import Target

MAX_RETRIES = 3

_RETRYABLE = frozenset({"timeout", "rate_limit", "server", "network"})
_DISTURBED = 0.25
"""How much an attempt counts that failed among other failures, or timed out while there was no answer."""
_IN_COMPANY = 3
_CHANCE, _MANY_ANSWERS = frozenset({"server", "network"}), 4
"""A failure of these classes is isolated if this many times more other calls were answered meanwhile."""
_ALONE_S, _SUSPECT_S = 60.0, 15.0
"""How long a request waits for an outage of which it may be the cause."""

Sleep = Callable[[float], Awaitable[None]]


class RetryPolicy(msgspec.Struct, frozen=True):
    """The retry settings of a target."""

    max_retries: int = MAX_RETRIES
    initial_delay_s: float = 1.0
    max_delay_s: float = 60.0
    backoff_factor: float = 2.0
    status_codes: tuple[int, ...] = ()

    def delay_s(self, failure: TargetFailure, retries: int, *, is_isolated: bool = False) -> float | None:
        """Return the seconds to wait before the next attempt; None if the failure is final.

        Uses full jitter, so that calls that failed together are not retried together. The delay of an isolated failure
        does not grow: the endpoint answers other calls.
        """
        if retries >= self.max_retries or not self._is_retryable(failure):
            return None
        growth = 1.0 if is_isolated else self.backoff_factor**retries
        backoff = min(self.max_delay_s, self.initial_delay_s * growth)
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


class SpentAttempts:
    """Counts the failed attempts of a request by what happened to other calls since its last failure.

    If the endpoint answered them, the request itself fails. If it answered none, it is down, and the attempt does not
    count, up to `max_outage_s`. An endpoint that has never answered is not down, but may be starting.
    """

    __slots__ = (
        *("_answers", "_down_since", "_failures", "_is_suspect", "_limit", "_max_outage_s", "_own"),
        *("count", "is_isolated"),
    )

    def __init__(self, limit: EndpointLimit, answers: int, failures: int, max_outage_s: float) -> None:
        self.count = 0.0
        self._limit = limit
        self._answers = answers
        self._failures = failures
        self._max_outage_s = max_outage_s
        self._own = 0
        self._is_suspect = False
        self.is_isolated = False
        self._down_since = 0.0

    def add(self, failure: TargetFailure) -> None:
        """Count a failed attempt."""
        limit = self._limit
        answered, failed = limit.answers - self._answers, limit.failures - self._failures - 1
        self._answers, self._failures = limit.answers, limit.failures
        self.is_isolated = failure.error_class in _CHANCE and answered > _MANY_ANSWERS * (failed + 1)
        if answered or not self._own:
            # It failed before, and then others were answered.
            self._is_suspect = self._own > 0
            self._own, self._down_since = 0, asyncio.get_running_loop().time()
        self._own += 1
        if not (limit.may_be_down and self._max_outage_s and failure.error_class in _RETRYABLE):
            self.count += 1
        elif answered:
            in_company = failed > answered or limit.failures_in_a_row >= _IN_COMPANY
            self.count += _DISTURBED if in_company else 1
        elif self._is_final() or not (limit.answers or self.count):  # one failure is not yet an outage
            self.count += 1
        elif failure.error_class == "timeout":
            self.count += _DISTURBED

    def _is_final(self) -> bool:
        """Whether the request is probably the cause of the outage. The limit ends the wait for a long outage."""
        waited_s = asyncio.get_running_loop().time() - self._down_since
        is_alone = self._limit.failures_in_a_row <= self._own
        return (is_alone and waited_s > _ALONE_S) or (self._is_suspect and waited_s > _SUSPECT_S)


class RetryWrapper(ResponderWrapper):
    """Repeats failed attempts. `request.attempt` is the number of the current one, without those lost to an outage.

    `sleep` waits for the next attempt. Attempts that failed because the endpoint was down or overloaded count less or
    not at all, unless `max_outage_s` is 0.
    """

    def __init__(
        self, inner: Responder, policy: RetryPolicy, limit: EndpointLimit, sleep: Sleep, max_outage_s: float
    ) -> None:
        super().__init__(inner)
        self.policy = policy
        self.limit = limit
        self._sleep = sleep
        self._max_outage_s = max_outage_s

    async def respond(self, request: Request, final: frozenset[int] = frozenset()) -> Response:
        """Answer, or raise the last failure. Failures with a status in `final` are not retried."""
        request.attempt = 1
        limit = self.limit
        answers, failures = limit.answers, limit.failures
        failed: TargetFailure | None = None
        spent: SpentAttempts | None = None
        while True:
            try:
                response = await self._inner.respond(request)
                return response if failed is None else failed.added_to(response)
            except TargetFailure as failure:
                failed = failure.add_use(failed)
                spent = spent or SpentAttempts(limit, answers, failures, self._max_outage_s)
                spent.add(failure)
                retries = max(0, int(spent.count) - 1)
                delay_s = self.policy.delay_s(failure, retries, is_isolated=spent.is_isolated)
                if delay_s is None or failure.status in final or isinstance(failure, OutageFailure):
                    raise
            await self._sleep(delay_s)
            request.attempt = 1 + int(spent.count)
