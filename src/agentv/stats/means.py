"""Means and paired differences of scores, with cluster-robust standard errors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentv.stats.distributions import Interval, binomial_cdf, t_p_value, t_quantile, vector
from agentv.stats.intervals import CONFIDENCE, ROUNDING_ERROR, ClusterSizes, rare_bound

_DRAWN_SIZE = 1.4
"""How many values a weighted one counts as in the bound for rare values: its error rate is then 0.1 instead of 0.04.
Draws in which B breaks cases that always passed, and gains as much elsewhere, had at most 5 % false verdicts."""


class Estimate(NamedTuple):
    """A mean with its standard error, interval and sample size. The error is None with fewer than two clusters.

    `variance_slope` is how much the variance of a cluster rises as the mean falls; see `clustered_mean`. A standard
    error of 0 means that all values were equal, which does not prove that there is no variance.
    """

    value: float
    standard_error: float | None
    ci95: Interval | None
    n: int
    clusters: int
    variance_slope: float | None = None

    @property
    def degrees(self) -> int:
        """The degrees of freedom of its t distribution."""
        return self.clusters - 1


class Difference(NamedTuple):
    """A paired difference: its mean, the p-value of "no difference", and the correlation of the two sides."""

    estimate: Estimate
    p_value: float | None
    correlation: float | None


def clustered_mean(
    scores: ArrayLike,
    clusters: ArrayLike | None = None,
    within: Interval | None = None,
    extremes: Interval | None = None,
    weights: NDArray[Any] | None = None,
) -> Estimate:
    """Return the mean with a cluster-robust 95 % confidence interval.

    SE² = G/(G-1) · Σ_c (Σ_{i∈c} (s_i - s̄))² / n², and t with G-1 degrees of freedom; G is the number of clusters.
    Without clusters, SE² is the ordinary s²/n. With clusters of unequal size it may be larger, and there is no interval
    if one or two clusters dominate; see `ClusterSizes`. `weights` are the inverse probabilities with which cases were
    drawn; the mean is then Σws / Σw, and each term of SE² has its weight and is divided by (1 - h)², where h is the
    cluster's share of all weights (HC3; MacKinnon & White 1985, Journal of Econometrics 29:305). With `within`, the
    range of possible values, the interval is clipped to it and widened by `rare_bound` for values that are too rare to
    appear; without, equal values have no interval. Such values are at the `extremes`, which are the ends of `within`
    unless given.

    The variance of a cluster rises as the mean falls if low values are rare. The slope is that of an exponential family
    through the clusters and one more at the lower extreme: -κ3 / κ2, from the third central moment and the variance;
    Efron (1981), Canadian Journal of Statistics 9:139. It is None without a range of possible values.

    Miller (2024), Adding Error Bars to Evals, arXiv:2411.00640; Liang & Zeger (1986), Biometrika 73:13.
    """
    values = vector(scores)
    if not values.size:
        raise ValueError("At least one score is needed, got no scores")
    factors = np.ones_like(values) if weights is None else weights * len(values) / weights.sum()
    mean = float((factors * values).mean())
    totals, sizes = cluster_sums(factors * values, clusters), cluster_sums(factors, clusters)
    count = len(totals)
    if count < 2:
        return Estimate(mean, None, None, len(values), count)
    residuals = totals - sizes * mean
    if weights is not None:
        residuals /= 1 - sizes / len(values)  # a large weight pulls the mean towards its value
    variance = count / (count - 1) * float(np.square(residuals).sum()) / len(values) ** 2
    layout = ClusterSizes(len(values), count, float(np.square(sizes).sum()), float((1 / sizes).sum()))
    if weights is None:
        inside = float(np.square(values).sum() - (np.square(totals) / sizes).sum())
        variance = layout.variance(variance, float((totals / sizes).var(ddof=1)), inside)
    error = math.sqrt(variance)
    if error <= ROUNDING_ERROR * max(1.0, abs(mean)):
        error = 0.0
    half = t_quantile(0.5 + CONFIDENCE / 2, count - 1) * error
    interval: Interval | None = (mean - half, mean + half)
    slope = None
    if weights is None and layout.is_dominated:
        interval = None
    elif within is not None:
        ends, shares = extremes or within, sizes * count / len(values)
        size = layout.effective if weights is None else _DRAWN_SIZE * layout.effective
        low, high = (_rare_bound(totals / sizes, shares, size, end) for end in ends)
        slope = _variance_slope(np.append(totals * count / len(values), ends[0]))
        interval = max(within[0], min(low, mean - half)), min(within[1], max(high, mean + half))
    elif error == 0:
        interval = None
    return Estimate(mean, error, interval, len(values), count, slope)


def _variance_slope(values: NDArray[Any]) -> float:
    """Return how much the variance of values rises as their mean falls; 0 if it does not."""
    off = values - values.mean()
    squares = float(np.square(off).sum())
    return max(0.0, -float((off**3).sum()) / squares) if squares > 0 else 0.0


def _rare_bound(values: NDArray[Any], factors: NDArray[Any], size: float, end: float) -> float:
    """Return the bound of the mean towards `end`. Values nearer to `end` than to the mean are rare.

    `factors` are the weights of the values, with a mean of 1.
    """
    weighted = factors * values
    mean = float(weighted.mean())
    is_rare = values < (mean + end) / 2 if end < mean else values > (mean + end) / 2
    others = float(weighted[~is_rare].sum() / factors[~is_rare].sum()) if not is_rare.all() else mean
    scale = size / len(values)
    return rare_bound(others, scale * float(weighted[is_rare].sum()), scale * float(factors[is_rare].sum()), size, end)


def paired_difference(before: ArrayLike, after: ArrayLike, clusters: ArrayLike | None = None) -> Difference:
    """Return the mean of after - before over the same cases, with clusters, and Student's test that it is 0.

    SE² is that of the differences, SE_A² + SE_B² - 2ρ·SE_A·SE_B: the higher the correlation ρ, the smaller the error.
    Miller (2024), arXiv:2411.00640, section 4.
    """
    first, second = paired_vectors(before, after)
    estimate = clustered_mean(second - first, clusters)
    return Difference(estimate, t_test(estimate), correlation(first, second))


def ratio_of_means(
    numerators: ArrayLike,
    denominators: ArrayLike,
    clusters: ArrayLike | None = None,
    weights: NDArray[Any] | None = None,
) -> tuple[float, Interval | None] | None:
    """Return the ratio of two means over the same cases with Fieller's 95 % interval; None if the second mean is 0.

    The interval has the ratios R for which the mean of a - R·b may be 0, with the clustered standard error; None if it
    is unbounded, because the second mean may be 0. Fieller (1954), Journal of the Royal Statistical Society B 16:175.
    """
    above, below = paired_vectors(numerators, denominators)
    first, second = (float(np.average(values, weights=weights)) for values in (above, below))
    if second == 0:
        return None
    # The variance of a mean of a - R·b is V_a - 2R·V_ab + R²·V_b; V_ab from that of the sum.
    sums = [clustered_mean(values, clusters, weights=weights) for values in (above, below, above + below)]
    errors = [each.standard_error for each in sums]
    if any(error is None for error in errors) or sums[1].clusters < 2:
        return first / second, None
    of_first, of_second, of_sum = (float(error or 0.0) ** 2 for error in errors)
    shared, critical = (of_sum - of_first - of_second) / 2, t_quantile(0.5 + CONFIDENCE / 2, sums[1].degrees) ** 2
    square, linear = second**2 - critical * of_second, first * second - critical * shared
    inner = linear**2 - square * (first**2 - critical * of_first)
    if square <= 0 or inner < 0:
        return first / second, None
    root = math.sqrt(inner)
    return first / second, (max(0.0, (linear - root) / square), (linear + root) / square)


def paired_vectors(before: ArrayLike, after: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two arrays of the same length. Raises ValueError for others."""
    first, second = vector(before), vector(after)
    if first.shape != second.shape:
        raise ValueError(f"Paired scores must have the same length, got {first.size} and {second.size}")
    return first, second


def quantile_interval(values: ArrayLike, share: float) -> Interval | None:
    """Return a 95 % confidence interval of a quantile from order statistics; None if there are too few values.

    The bounds are the values at ranks l and u for which the number of values below the quantile, Binomial(n, share),
    is at least l and less than u with 95 % probability. Outliers beyond them have no effect. Conover (1999), Practical
    Nonparametric Statistics, 3.2.
    """
    ordered = np.sort(vector(values, "Values"))
    n, tail = len(ordered), (1 - CONFIDENCE) / 2
    low = _rank(n, share, tail) - 1
    high = _rank(n, share, 1 - tail)
    if low < 0 or high >= n:
        return None
    return float(ordered[low]), float(ordered[high])


def _rank(n: int, share: float, probability: float) -> int:
    """Return the smallest k with P(X ≤ k) > probability, where X is Binomial(n, share)."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if binomial_cdf(middle, n, share) > probability else (middle, high)
    return high


def t_test(estimate: Estimate, expected: float = 0.0) -> float | None:
    """Return the two-sided p-value of the hypothesis that the mean is `expected`; None without a standard error.

    For equal values it is that of the sign-flip test, 2 / 2^G; Student's would be 0 for any two.
    """
    off, error = estimate.value - expected, estimate.standard_error
    if error is None:
        return None
    if error == 0:
        return 1.0 if abs(off) <= ROUNDING_ERROR else 2.0 ** (1 - estimate.clusters)
    return t_p_value(off / error, estimate.degrees)


def cluster_sums(values: NDArray[Any], clusters: ArrayLike | None) -> NDArray[Any]:
    """Return the sum of each cluster, or the values themselves without clusters."""
    if clusters is None:
        return values
    names = np.asarray(clusters)
    if names.shape != values.shape:
        raise ValueError(f"Each score needs a cluster, got {names.size} and {values.size}")
    if names.dtype.kind == "i" and names.size and names.min() >= 0 and names.max() < 2 * names.size:
        is_used = np.bincount(names) > 0  # already numbers: no need to sort them
        return np.bincount(names, values)[is_used]
    _, index = np.unique(names, return_inverse=True)
    return np.bincount(index, values)


def correlation(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """Return the correlation of two sides; None if one of them does not vary."""
    a, b = first - first.mean(), second - second.mean()
    spread = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return float((a * b).sum()) / spread if spread > 0 else None
