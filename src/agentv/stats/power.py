"""Power analysis: power, minimum detectable difference, sample size, non-inferiority, and adjusted p-values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from agentv.stats.distributions import check_fraction, check_nonnegative, normal_cdf, normal_quantile, t_cdf, t_quantile
from agentv.stats.means import Estimate

ALPHA = 0.05
POWER = 0.8

_MANY = 30


class NonInferiority(NamedTuple):
    """Whether a difference is above -margin; `shown` and `refuted` mean that the whole 95 % interval agrees."""

    outcome: Literal["shown", "refuted", "inconclusive"]
    margin: float
    p_value: float | None


def power_to_detect(difference: float, standard_error: float, alpha: float = ALPHA) -> float:
    """Return the power of a two-sided test to detect a true difference: Φ(δ/SE - z) + Φ(-δ/SE - z).

    Cohen (1988), Statistical Power Analysis for the Behavioral Sciences.
    """
    check_nonnegative(standard_error, "A standard error")
    if standard_error == 0:
        return 1.0 if difference else alpha
    ratio, critical = abs(difference) / standard_error, normal_quantile(1 - alpha / 2)
    return normal_cdf(ratio - critical) + normal_cdf(-ratio - critical)


def minimum_detectable_difference(
    standard_error: float, degrees: float | None = None, *, alpha: float = ALPHA, wanted: float = POWER
) -> float:
    """Return the smallest true difference detected with the wanted power: (t_{1-α/2} + t_{power}) · SE.

    With degrees of freedom the quantiles are Student's, for small samples; otherwise normal. Bloom (1995), Evaluation
    Review 19:547.
    """
    check_nonnegative(standard_error, "A standard error")
    if degrees is None:
        return (normal_quantile(1 - alpha / 2) + normal_quantile(wanted)) * standard_error
    return (t_quantile(1 - alpha / 2, degrees) + t_quantile(wanted, degrees)) * standard_error


def cases_needed(difference: float, variance: float, *, alpha: float = ALPHA, wanted: float = POWER) -> int:
    """Return the number of paired cases to detect a difference: n = (z_{1-α/2} + z_{power})² · Var(d) / δ², rounded up.

    Var(d) is the variance of a case's difference, see `variance_of_difference`. Below 30 cases the quantiles are
    Student's, as in `minimum_detectable_difference`; above, that would add about two cases.

    Miller (2024), arXiv:2411.00640, section 5.
    """
    if difference == 0:
        raise ValueError("A difference of 0 cannot be detected with any number of cases")
    check_nonnegative(abs(difference), "The size of a difference")
    check_nonnegative(variance, "A variance")
    total = normal_quantile(1 - alpha / 2) + normal_quantile(wanted)
    cases = max(2, math.ceil(total**2 * variance / difference**2 - 1e-9))
    while cases < _MANY:
        error = math.sqrt(variance / cases)
        if minimum_detectable_difference(error, cases - 1, alpha=alpha, wanted=wanted) <= abs(difference):
            break
        cases += 1
    return cases


def variance_of_difference(between: float, within_before: float, within_after: float, trials: int = 1) -> float:
    """Return the variance of a case's difference with K trials on each side: ω² + σ²_A/K + σ²_B/K.

    ω² is the variance of the true difference between cases, σ² the variance between trials of one case.
    """
    if trials < 1:
        raise ValueError(f"The number of trials must be 1 or more, got {trials}")
    return between + (within_before + within_after) / trials


def non_inferiority(difference: Estimate, margin: float) -> NonInferiority:
    """Test whether the new side is worse by less than a margin: shown if the interval lies above -margin.

    The p-value is one-sided, for "worse by the margin or more"; None for differences that do not vary. ICH E9 (1998),
    Statistical Principles for Clinical Trials, 3.3.2.
    """
    check_nonnegative(margin, "A margin")
    error, interval = difference.standard_error, difference.ci95
    if error is None or interval is None:
        return NonInferiority("inconclusive", margin, None)
    off = difference.value + margin
    p = 1 - t_cdf(off / error, difference.degrees) if error > 0 else None
    low, high = interval
    return NonInferiority("shown" if low > -margin else "refuted" if high < -margin else "inconclusive", margin, p)


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
