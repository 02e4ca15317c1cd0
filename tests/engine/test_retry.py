"""Which failures are retried, and after which delay."""

import pytest

from agentv.engine.calls.retry import RetryPolicy, policy_of
from agentv.model.response import TargetFailure
from agentv.targets.mock import Mock

POLICY = policy_of(Mock(name="m", provider="mock"))


def failure(error_class, status=None, retry_after_s=None):
    return TargetFailure(error_class, "x", status=status, retry_after_s=retry_after_s)


@pytest.mark.parametrize(
    ("error_class", "status", "again"),
    [
        ("timeout", None, True),
        ("timeout", 408, True),
        ("network", None, True),
        ("network", 200, True),
        ("rate_limit", 429, True),
        ("rate_limit", None, True),
        ("server", 500, True),
        ("server", 502, True),
        ("server", 503, True),
        ("server", 504, True),
        ("server", 501, False),
        ("server", None, True),
        ("auth", 401, False),
        ("auth", None, False),
        ("refused", 200, False),
        ("refused", None, False),
        ("invalid_response", 200, False),
        ("invalid_response", None, False),
        ("process", None, False),
    ],
)
def test_retries_depend_on_the_error_class_and_status(error_class, status, again):
    assert POLICY.is_retryable(failure(error_class, status)) is again


def test_a_target_may_set_the_statuses_to_retry():
    policy = policy_of(Mock(name="m", provider="mock", retry_status_codes=(418,)))
    assert policy.is_retryable(failure("invalid_response", 418))
    assert not policy.is_retryable(failure("server", 500))


def test_the_number_of_retries_is_the_targets_or_the_commands():
    assert policy_of(Mock(name="m", provider="mock")).max_retries == 3
    assert policy_of(Mock(name="m", provider="mock", max_retries=5)).max_retries == 5
    assert policy_of(Mock(name="m", provider="mock", max_retries=5), 0).max_retries == 0


@pytest.mark.parametrize(("retries", "most"), [(0, 1.0), (1, 2.0), (2, 4.0), (3, 5.0), (30, 5.0)])
def test_the_delay_has_full_jitter(retries, most):
    policy = RetryPolicy(max_retries=100, initial_delay_s=1.0, max_delay_s=5.0, backoff_factor=2.0)
    waits = [policy.delay_s(failure("network"), retries) for _ in range(400)]
    assert all(0 <= wait <= most for wait in waits)
    assert min(waits) < 0.1 * most and max(waits) > 0.9 * most
    assert 0.4 * most < sum(waits) / len(waits) < 0.6 * most


def test_retry_after_is_respected():
    policy = RetryPolicy(max_retries=3, initial_delay_s=1.0, status_codes=(429,))
    waits = [policy.delay_s(failure("rate_limit", 429, retry_after_s=7.5), 0) for _ in range(50)]
    assert set(waits) == {7.5}
    waits = [policy.delay_s(failure("rate_limit", 429, retry_after_s=0.5), 0) for _ in range(200)]
    assert min(waits) == 0.5 and max(waits) > 0.9
