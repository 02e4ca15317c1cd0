"""Retry failed calls with exponential backoff, depending on the class of the failure; then call another target."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from agentv.engine.calls.wrappers import OutageFailure, outage_failure
from agentv.executors.executor import JobSlots
from agentv.executors.limiter import EndpointLimit
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.targets.response_formats import FORMAT_REJECTED
from agentv.targets.target import Target

MAX_RETRIES = 3

_RETRYABLE = frozenset({"timeout", "rate_limit", "server", "network"})


class RetryPolicy(msgspec.Struct, frozen=True):
    """The retry settings of a target.

    The timeout of an attempt is `command_timeout_s`, else that of the case, else `timeout_s`.
    """

    max_retries: int = MAX_RETRIES
    initial_delay_s: float = 1.0
    max_delay_s: float = 60.0
    backoff_factor: float = 2.0
    status_codes: tuple[int, ...] = ()
    timeout_s: float = 300.0
    command_timeout_s: float | None = None

    def delay_s(self, failure: TargetFailure, retries: int) -> float:
        """Return the seconds to wait before the next attempt.

        Uses full jitter, so that calls that failed together are not retried together.
        """
        backoff = min(self.max_delay_s, self.initial_delay_s * self.backoff_factor**retries)
        from random import uniform  # late: most calls succeed

        return max(uniform(0, backoff), failure.retry_after_s or 0.0)  # noqa: S311  # not for secrets

    def is_retryable(self, failure: TargetFailure) -> bool:
        """Whether a failure may go away."""
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
    """Repeats failed attempts. `request.attempt` is the number of the current one, without those lost to an outage.

    The rules of the endpoint decide when the next attempt starts, and whether there is one. A job that waits for it
    lends its slot. `name` is the target's. The target enforces the timeout of a request, because only the target can
    end what it started.
    """

    def __init__(
        self, inner: Responder, policy: RetryPolicy, limit: EndpointLimit, slots: JobSlots, name: str = "NAME"
    ) -> None:
        super().__init__(inner)
        self.policy = policy
        self.limit = limit
        self._slots = slots
        self._name = name

    async def respond(self, request: Request, final: frozenset[int] = frozenset()) -> Response:
        """Answer, or raise the last failure. Failures with a status in `final` are not retried."""
        policy = self.policy
        request.attempt = 1
        request.ticket = None
        request.timeout_s = policy.command_timeout_s or request.case.execution.timeout_seconds or policy.timeout_s
        failed: TargetFailure | None = None
        while True:
            try:
                try:
                    response = await self._inner.respond(request)
                finally:
                    if request.ticket is not None and request.ticket.has_place:  # not called, as with a cache
                        self.limit.leave(request.ticket)
                return response if failed is None else failed.added_to(response)
            except TargetFailure as failure:
                failed = failure.add_use(failed)
                is_final = failure.status in final or not policy.is_retryable(failure)
                if is_final or isinstance(failure, OutageFailure) or not await self._wait(request, failure):
                    raise

    async def _wait(self, request: Request, failure: TargetFailure) -> bool:
        """Wait for the next attempt; return False if there is none. Raises OutageFailure after a long outage."""
        ticket = request.ticket
        if ticket is None or ticket.failed_number != ticket.number:  # not called, as in a replay, or answered
            retries, request.ticket = request.attempt - 1, None
            if retries == self.policy.max_retries:
                return False
            request.attempt += 1
            await self._slots.sleep(self.policy.delay_s(failure, retries))
            return True
        ticket.retries = self.policy.max_retries
        ticket.delay_s = self.policy.delay_s(failure, 0 if ticket.is_isolated else max(0, len(ticket.counted) - 1))
        with self._slots.lent_slot():
            has_place = await self.limit.enter(ticket)
        if ticket.down_s:
            raise outage_failure(self.limit, ticket.down_s, self.endpoint, self._name).add_use(failure) from None
        if ticket.extra is not None:
            failure.add_use(ticket.extra)
            ticket.extra = None
        if has_place:
            request.attempt = 1 + len(ticket.counted)
        return has_place


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
