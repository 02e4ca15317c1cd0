"""Means and paired differences of scores, with errors that know which scores belong together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentv.stats.distributions import Interval, row, t_p_value, t_quantile
from agentv.stats.intervals import ALIKE, CONFIDENCE, NO_ERROR, of_equals

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Estimate(NamedTuple):
    """A mean, how far it may be off, and what it stands on. Without two clusters there is no error to tell.

    An error of 0 is that of equal values, which show no spread and do not prove that there is none.
    """

    value: float
    standard_error: float | None
    ci95: Interval | None
    n: int
    clusters: int

    @property
    def degrees(self) -> int:
        """Degrees of freedom of the t distribution that belongs to it."""
        return self.clusters - 1


class Difference(NamedTuple):
    """A paired difference: its mean, the p-value of "there is none", and how far the two sides go together."""

    estimate: Estimate
    p_value: float | None
    correlation: float | None


def clustered_mean(scores: ArrayLike, clusters: ArrayLike | None = None, within: Interval | None = None) -> Estimate:
    """The mean with a cluster-robust 95 % interval.

    SE² = G/(G-1) · Σ_c (Σ_{i∈c} (s_i - s̄))² / n², and t with G-1 degrees of freedom; G is the number of clusters.
    Without clusters every score is its own, and SE² is the ordinary s²/n. The interval stays `within` where values can
    be. Clusters that are all equal have the one of `of_equals`, or none where values have no bounds; where they have,
    values that differ by less than 0.001 count as equal.

    Miller (2024), Adding Error Bars to Evals, arXiv:2411.00640; Liang & Zeger (1986), Biometrika 73:13.
    """
    values = row(scores)
    if not values.size:
        raise ValueError("There are no scores")
    mean = float(values.mean())
    sums = cluster_sums(values - mean, clusters)
    count = len(sums)
    if count < 2:
        return Estimate(mean, None, None, len(values), count)
    error = math.sqrt(count / (count - 1) * float(np.square(sums).sum())) / len(values)
    alike = within is not None and float(np.ptp(values)) < ALIKE
    if alike or error <= NO_ERROR * max(1.0, abs(mean)):
        return Estimate(mean, 0.0, None if within is None else of_equals(mean, count, within), len(values), count)
    half = t_quantile(0.5 + CONFIDENCE / 2, count - 1) * error
    low, high = within or (-math.inf, math.inf)
    return Estimate(mean, error, (max(low, mean - half), min(high, mean + half)), len(values), count)


def paired_difference(before: ArrayLike, after: ArrayLike, clusters: ArrayLike | None = None) -> Difference:
    """The mean of after - before over the same cases, clustered, with Student's test that it is 0.

    SE² is that of the differences, which is SE_A² + SE_B² - 2ρ·SE_A·SE_B: the more the two go together, the less is
    left to chance. Miller (2024), arXiv:2411.00640, section 4.
    """
    first, second = row(before), row(after)
    if first.shape != second.shape:
        raise ValueError(f"Pairs are needed, got {first.size} and {second.size} scores")
    estimate = clustered_mean(second - first, clusters)
    return Difference(estimate, t_test(estimate), correlation(first, second))


def t_test(estimate: Estimate, expected: float = 0.0) -> float | None:
    """The two-sided p-value of a mean that is `expected`; None where there is no error to measure it by.

    Of equal values it is the one of all sign flips, 2 / 2^G: Student's would be 0 of any two.
    """
    off, error = estimate.value - expected, estimate.standard_error
    if error is None:
        return None
    if error == 0:
        return 1.0 if abs(off) <= NO_ERROR else 2.0 ** (1 - estimate.clusters)
    return t_p_value(off / error, estimate.degrees)


def cluster_sums(values: NDArray[Any], clusters: ArrayLike | None) -> NDArray[Any]:
    """The sum of each cluster; the values themselves when each stands alone."""
    if clusters is None:
        return values
    names = np.asarray(clusters)
    if names.shape != values.shape:
        raise ValueError(f"A cluster for each score is needed, got {names.size} and {values.size}")
    _, index = np.unique(names, return_inverse=True)
    return np.bincount(index, values)


def correlation(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """How far two sides go together, from -1 to 1; None where one does not vary."""
    a, b = first - first.mean(), second - second.mean()
    spread = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return float((a * b).sum()) / spread if spread > 0 else None
