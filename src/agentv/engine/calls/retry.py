"""Which failures are worth another try, and how long to wait before it. Pure."""

from __future__ import annotations

import random

import msgspec

from agentv.model.response import TargetFailure
from agentv.targets.target import Target

MAX_RETRIES = 3

_WORTH_RETRYING = frozenset({"timeout", "rate_limit", "server", "network"})


class RetryPolicy(msgspec.Struct, frozen=True):
    """A target's settings for trying again."""

    max_retries: int = MAX_RETRIES
    initial_delay_s: float = 1.0
    max_delay_s: float = 60.0
    backoff_factor: float = 2.0
    status_codes: tuple[int, ...] = ()

    def delay_s(self, failure: TargetFailure, retries: int) -> float | None:
        """Seconds to wait before the next try after so many retries; None when it is not to be tried again.

        Full jitter: anything between nothing and the backoff, so that calls that failed together do not meet again.
        """
        if retries >= self.max_retries or not self._worth_it(failure):
            return None
        backoff = min(self.max_delay_s, self.initial_delay_s * self.backoff_factor**retries)
        return max(random.uniform(0, backoff), failure.retry_after_s or 0.0)  # noqa: S311  # not for secrets

    def _worth_it(self, failure: TargetFailure) -> bool:
        if failure.status is not None and failure.error_class not in ("network", "timeout"):
            return failure.status in self.status_codes
        return failure.error_class in _WORTH_RETRYING


def policy_of(target: Target, max_retries: int | None = None) -> RetryPolicy:
    """The policy in a target's settings; how often may be said elsewhere."""
    said = target.max_retries if max_retries is None else max_retries
    return RetryPolicy(
        MAX_RETRIES if said is None else said,
        target.retry_initial_delay_ms / 1000,
        target.retry_max_delay_ms / 1000,
        target.retry_backoff_factor,
        tuple(target.retry_status_codes),
    )
