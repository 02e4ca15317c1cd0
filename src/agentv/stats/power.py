"""Power analysis: sample sizes, the detectable difference, non-inferiority, and adjusted p-values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from agentv.stats.distributions import (
    binomial_cdf,
    bisect,
    check_fraction,
    check_nonnegative,
    normal_quantile,
    t_cdf,
    t_quantile,
)
from agentv.stats.intervals import rare_limit

if TYPE_CHECKING:
    from agentv.stats.means import Estimate  # its module imports numpy

ALPHA = 0.05
POWER = 0.8

CORRELATION = 0.5
"""The correlation of a case's scores between two runs that is assumed when only one run is known."""

FEWEST_CHANGES = 6
"""No test of six signs or fewer reaches 5 % unless all six agree, so fewer changed cases never show a difference."""

_MOST_CASES = 1 << 40


class NonInferiority(NamedTuple):
    """Whether a difference is above -margin; `shown` and `refuted` mean that the 95 % interval and the test agree."""

    outcome: Literal["shown", "refuted", "inconclusive"]
    margin: float
    p_value: float | None


class Noise(msgspec.Struct, frozen=True):
    """How much the difference of a case between two runs varies."""

    variance: float
    """The variance of the differences, measured in runs that differ by `difference`."""

    step: float = 0.0
    """The smallest change of a case: 1 for scores of 0 and 1, and 0 if every case may change by any amount."""

    difference: float = 0.0
    design_effect: float = 1.0
    """The factor by which clusters multiply the variance of the mean."""

    cluster_size: float = 1.0
    """Cases in a cluster, on average."""

    loss: float = 0.0
    """The size of losses that are too rare to appear but possible, see `rare_bound`; 0 for scores of 0 and 1 without
    clusters, whose test accounts for them.
    """

    correlation: float = CORRELATION
    """That of a case's scores in the two runs."""

    def variance_at(self, difference: float) -> float:
        """Return the variance of a case's difference if the means differ by this much.

        If cases change in steps of s, a mean difference δ alone has the variance v(δ) = sδ - δ²: for scores of 0 and 1
        that is δ(1-δ), however few cases changed before. The changes that make up δ come on top of the others, which
        gives V + v(δ). But two runs with the correlation r do not vary more than two without one, for which V is
        V / (1-r): if scores are only luck, the changes are among those that happen anyway.
        """
        own = self._of_steps(difference)
        least = max(self.variance, own)
        most = self.variance + own - self._of_steps(self.difference)
        luck = 1 - min(1.0, max(0.0, self.correlation))
        return max(least, most if luck * most <= self.variance else self.variance / luck)

    def _of_steps(self, difference: float) -> float:
        return max(0.0, self.step * abs(difference) - difference**2)


def detectable_difference(noise: Noise, cases: int, power: float = POWER) -> float | None:
    """Return the smallest true difference that a comparison on this number of cases shows with the given power.

    It is the δ for which `cases_needed` is the number of cases; None if even a difference of 1 would not show.
    """
    if not _is_enough(1.0, noise, cases, power):
        return None
    return bisect(lambda difference: not _is_enough(difference, noise, cases, power), 0.0, 1.0, steps=40)[1]


def cases_needed(difference: float, noise: Noise, power: float = POWER) -> int:
    """Return the number of paired cases that show a difference with the given power: n ≥ (t_{0.975} + z_{power})² V/δ².

    V is the variance of a case's difference, times the design effect; see `Noise`. For scores of 0 and 1, the first
    quantile is multiplied by √(V + δ²) instead of √V, and six or more cases must change with that probability.

    Miller (2024), arXiv:2411.00640, section 5; Connor (1987), Biometrics 43:207, for scores of 0 and 1.
    """
    check_nonnegative(abs(difference), "The size of a difference")
    if difference == 0:
        raise ValueError("A difference of 0 cannot be detected with any number of cases")
    check_nonnegative(noise.variance, "A variance")
    return _smallest(lambda cases: _is_enough(difference, noise, cases, power))


def cases_for_margin(margin: float, noise: Noise, power: float = POWER, difference: float = 0.0) -> int | None:
    """Return the number of paired cases that show non-inferiority: the interval lies above -margin.

    n ≥ (t_{0.975} + z_{power})² V / (δ + margin)², where δ is the true difference; None if that is -margin or less.
    """
    distance = difference + margin
    if distance <= 0:
        return None
    variance = noise.variance_at(difference)
    expected = _expected_variance(noise, variance, difference, -margin)
    return _smallest(lambda cases: _shown((expected, variance), noise, cases, power) <= distance)


def cases_for_gate(value: float, limit: float, variance: float | None = None, power: float = POWER) -> int | None:
    """Return the number of cases after which the interval of a mean lies above or below a limit; None if on the limit.

    For scores with this variance, n ≥ (t_{0.975} + z_{power})² V / (m - L)², and enough to exclude unseen values, see
    `rare_bound`. Without `variance` the mean is a proportion p with the exact interval:
    n ≥ (z_{0.975} √(L(1-L)) + z_{power} √(p(1-p)))² / (p - L)² + 1 / |p - L|.

    Fleiss, Levin & Paik (2003), Statistical Methods for Rates and Proportions, section 2.5.
    """
    check_fraction(limit, "A limit")
    distance = abs(value - limit)
    if not distance:
        return None
    if variance is not None:
        noise = Noise(variance, loss=value if value > limit else 1 - value)
        return _smallest(lambda cases: _shown((variance, variance), noise, cases, power) <= distance)
    on_limit, spread = math.sqrt(limit * (1 - limit)), math.sqrt(value * (1 - value))
    total = normal_quantile(1 - ALPHA / 2) * on_limit + normal_quantile(power) * spread
    return max(2, math.ceil((total / distance) ** 2 + 1 / distance - 1e-9))


def variance_between_runs(
    between: float, within: float = 0.0, trials: int = 1, correlation: float = CORRELATION
) -> float:
    """Return the variance of a case's difference between a run and a second run like it.

    `between` is the variance of the cases' true means, `within` that of the trials of one case; if trials are unknown,
    `between` is the variance of the scores. `correlation` is that of a case's scores in the two runs, with one trial
    each. It is at most between / (between + within), because trials are independent.
    """
    shared = min(between, correlation * (between + within))
    return variance_of_difference(2 * (between - shared), within, within, trials)


def _is_enough(difference: float, noise: Noise, cases: int, power: float) -> bool:
    """Return whether a comparison of this number of cases shows a difference with the given power."""
    clusters = int(cases / noise.cluster_size)
    if clusters < FEWEST_CHANGES:
        return False
    variance = noise.variance_at(difference)
    if noise.step > 0:
        changed = min(1.0, (variance + difference**2) / noise.step**2)
        if binomial_cdf(FEWEST_CHANGES - 1, clusters, changed) > 1 - power:
            return False
    expected = _expected_variance(noise, variance, difference, 0.0)
    return _shown((expected, variance), noise, cases, power) <= abs(difference)


def _expected_variance(noise: Noise, variance: float, difference: float, hypothesis: float) -> float:
    """Return the variance with which a hypothesis is tested; for scores of 0 and 1 it is the one expected under it."""
    if noise.loss or noise.step != 1:
        return variance
    changed = min(1.0, max(abs(difference), variance + difference**2))
    return restricted_variance((changed + difference) / 2, (changed - difference) / 2, hypothesis)


def restricted_variance(wins: float, losses: float, hypothesis: float) -> float:
    """Return the variance of a case's difference of 0 and 1 if the true mean difference is δ, the `hypothesis`.

    From the fractions of wins and losses, it is 2q + δ(1-δ), where q is the maximum-likelihood fraction of losses under
    the hypothesis. Tango (1998), Statistics in Medicine 17:891.
    """
    b = -wins - losses + (2 - wins + losses) * hypothesis
    c = -losses * hypothesis * (1 - hypothesis)
    q = (math.sqrt(max(0.0, b * b - 8 * c)) - b) / 4
    return 2 * q + hypothesis * (1 - hypothesis)


def _shown(variances: tuple[float, float], noise: Noise, cases: int, power: float) -> float:
    """Return the distance from a hypothesis that is shown with the given power: half an interval, plus z_{power} SE.

    The variances are those under the hypothesis, which decides the interval, and the true one. The interval varies
    with its standard error, which multiplies the second part by √(1 + t²/2d) with d degrees of freedom. Johnson & Welch
    (1940), Biometrika 31:362.
    """
    clusters = max(2.0, cases / noise.cluster_size)
    expected, error = (math.sqrt(variance * noise.design_effect / cases) for variance in variances)
    critical, degrees = t_quantile(1 - ALPHA / 2, clusters - 1), clusters - 1
    half = critical * expected
    if noise.loss:
        unseen = rare_limit(0, int(clusters))
        half = max(half, noise.loss * unseen / (1 - unseen))
    return half + normal_quantile(power) * math.sqrt(1 + critical**2 / (2 * degrees)) * error


def _smallest(is_enough: Callable[[int], bool]) -> int:
    """Return the smallest number of cases that is enough, by doubling and bisection."""
    high = 2
    while not is_enough(high):
        high *= 2
        if high > _MOST_CASES:
            raise ValueError("No number of cases is enough")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def variance_of_difference(between: float, within_before: float, within_after: float, trials: int = 1) -> float:
    """Return the variance of a case's difference with K trials on each side: ω² + σ²_A/K + σ²_B/K.

    ω² is the variance of the true difference between cases, σ² the variance between trials of one case.
    """
    if trials < 1:
        raise ValueError(f"The number of trials must be 1 or more, got {trials}")
    return between + (within_before + within_after) / trials


def non_inferiority(difference: Estimate, margin: float) -> NonInferiority:
    """Test whether the new side is worse by less than a margin: shown if the interval lies above -margin.

    The p-value is one-sided, for "worse by the margin or more"; None for differences that do not vary. It is that of a
    score test: t with the variance that a difference of -margin would have, SE² + slope · (d + margin) / G, because a
    few losses that are missing from G clusters raise the mean and hide the variance; see `clustered_mean`. Interval and
    test must agree. ICH E9 (1998), Statistical Principles for Clinical Trials, 3.3.2.
    """
    check_nonnegative(margin, "A margin")
    if difference.standard_error is None or difference.ci95 is None:
        return NonInferiority("inconclusive", margin, None)
    off = difference.value + margin
    variance = difference.standard_error**2 + (difference.variance_slope or 0.0) * max(0.0, off) / difference.clusters
    p = 1 - t_cdf(off / math.sqrt(variance), difference.degrees) if variance > 0 else None
    low, high = difference.ci95
    if low > -margin and (p is None or p < ALPHA / 2):
        return NonInferiority("shown", margin, p)
    is_refuted = high < -margin and (p is None or p > 1 - ALPHA / 2)
    return NonInferiority("refuted" if is_refuted else "inconclusive", margin, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted to control the probability of any false positive among all tests.

    The i-th smallest of m is multiplied by m - i + 1, and made no smaller than the one before. Holm (1979),
    Scandinavian Journal of Statistics 6:65.
    """
    for p_value in p_values:
        check_fraction(p_value, "A p-value")
    count, largest = len(p_values), 0.0
    adjusted = [0.0] * count
    for rank, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
