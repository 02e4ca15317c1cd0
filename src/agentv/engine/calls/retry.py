"""Retry failed calls with exponential backoff, depending on the class of the failure."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import msgspec

from agentv.engine.calls.wrappers import OutageFailure
from agentv.executors.executor import EndpointLimit
from agentv.model.response import FailedCalls, Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.targets.target import Target

MAX_RETRIES = 3

_RETRYABLE = frozenset({"timeout", "rate_limit", "server", "network"})
_CERTAIN_S = 2.0
"""An outage that has begun is certain after this time."""

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
    """Counts the failed attempts of a request.

    Those in an outage do not count, up to `max_outage_s`. Others count; but as long as no other call is answered,
    they may be the beginning of one, and are taken back once it is certain. An endpoint that has never answered is not
    down, but may be starting.
    """

    __slots__ = ("_count", "_limit", "_max_outage_s", "_undecided", "_undecided_since", "is_isolated")

    def __init__(self, limit: EndpointLimit, max_outage_s: float) -> None:
        self.is_isolated = False
        self._count = self._undecided = 0
        self._undecided_since = 0.0
        self._limit = limit
        self._max_outage_s = max_outage_s

    @property
    def count(self) -> int:
        """The attempts outside outages."""
        return self._count + self._undecided

    def add(self, failure: TargetFailure, calls: FailedCalls | None) -> None:
        """Count a failed attempt, given the failed calls of its request, this one included."""
        self.is_isolated = calls is not None and calls.is_isolated
        limit = self._limit
        if not (limit.may_be_down and self._max_outage_s and failure.error_class in _RETRYABLE):
            self._decide()
        elif limit.down_for_s:
            self._undecided = 0
        elif calls is not None and calls.others_answered:
            self._decide()
        else:
            if not self._undecided:
                self._undecided_since = limit.now()
            self._undecided += 1

    def _decide(self) -> None:
        self._count += self._undecided + 1
        self._undecided = 0

    @property
    def least_delay_s(self) -> float:
        """How long the last attempt has to wait at least: until an outage that has begun is certain."""
        return self._undecided_since + _CERTAIN_S - self._limit.now() if self._undecided else 0.0


class RetryWrapper(ResponderWrapper):
    """Repeats failed attempts. `request.attempt` is the number of the current one, without those lost to an outage.

    `sleep` waits for the next attempt. Attempts that failed because the endpoint was down do not count, unless
    `max_outage_s` is 0.
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
        request.failed_calls = None
        failed: TargetFailure | None = None
        spent: SpentAttempts | None = None
        while True:
            try:
                response = await self._inner.respond(request)
                return response if failed is None else failed.added_to(response)
            except TargetFailure as failure:
                failed = failure.add_use(failed)
                spent = spent or SpentAttempts(limit, self._max_outage_s)
                spent.add(failure, request.failed_calls)
                retries = max(0, spent.count - 1)
                delay_s = self.policy.delay_s(failure, retries, is_isolated=spent.is_isolated)
                if delay_s is None or failure.status in final or isinstance(failure, OutageFailure):
                    raise
            if spent.count == self.policy.max_retries:
                delay_s = max(delay_s, spent.least_delay_s)
            await self._sleep(delay_s)
            request.attempt = 1 + spent.count
