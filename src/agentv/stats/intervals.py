"""Means of scores with their 95 % intervals: fed one by one, clustered, bounded to where scores can be."""

from __future__ import annotations

import math
from array import array
from functools import lru_cache

Interval = tuple[float, float]

CONFIDENCE = 0.95
Z95 = 1.959963984540054

_SERIES_FROM = 10_000
_TINY = 1e-300


class MeanAccumulator:
    """The mean of scores from 0 to 1 and its interval, in a memory that does not grow with their number.

    Scores of one cluster go up and down together (turns of a conversation, trials of a case) and count for less than
    as many independent ones. A cluster is a small number, counted from 0; scores without one stand alone. It takes 16
    bytes a cluster.
    """

    __slots__ = ("_alone", "_alone_mean", "_alone_squares", "_binary", "_counts", "_sums", "_total")

    def __init__(self) -> None:
        self._alone = 0
        self._alone_mean = 0.0
        self._alone_squares = 0.0
        self._binary = True
        self._counts = array("q")
        self._sums = array("d")
        self._total = 0

    def add(self, score: float, cluster: int | None = None) -> None:
        """One more score."""
        self._total += 1
        if score not in (0.0, 1.0):
            self._binary = False
        if cluster is None:
            # Welford's way: no difference of large sums.
            self._alone += 1
            off = score - self._alone_mean
            self._alone_mean += off / self._alone
            self._alone_squares += off * (score - self._alone_mean)
            return
        if cluster >= len(self._counts):
            room = bytes(8 * (cluster + 1 - len(self._counts)))
            self._counts.frombytes(room)
            self._sums.frombytes(room)
        self._counts[cluster] += 1
        self._sums[cluster] += score

    @property
    def n(self) -> int:
        """How many scores there are."""
        return self._total

    @property
    def clusters(self) -> int:
        """How many independent groups they fall into; a score that stands alone is one."""
        return self._alone + sum(1 for count in self._counts if count)

    @property
    def mean(self) -> float | None:
        """Their mean; None without any."""
        if not self._total:
            return None
        mean = (self._alone * self._alone_mean + math.fsum(self._sums)) / self._total
        return min(1.0, max(0.0, mean))

    @property
    def ci95(self) -> Interval | None:
        """The 95 % interval of the mean; None when there is too little to tell.

        Scores that are all 0 or 1 get Wilson's interval, any others one from the t distribution. Both use the
        variance between clusters, which is the ordinary one when every score stands alone.
        """
        mean = self.mean
        if mean is None:
            return None
        clusters = self.clusters
        if self._binary and clusters == self._total:
            return wilson(mean, self._total)
        if self._binary:
            return self._clustered_share(mean, clusters)
        if clusters < 2:
            return None
        half = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1) * math.sqrt(self._variance_of_mean(mean, clusters))
        return max(0.0, mean - half), min(1.0, mean + half)

    def _variance_of_mean(self, mean: float, clusters: int) -> float:
        """The cluster-robust variance, with the correction for few clusters."""
        squares = self._alone_squares + self._alone * (self._alone_mean - mean) ** 2
        squares += math.fsum((total - n * mean) ** 2 for n, total in zip(self._counts, self._sums, strict=True) if n)
        return clusters / (clusters - 1) * squares / self._total**2

    def _clustered_share(self, share: float, clusters: int) -> Interval | None:
        """Wilson's interval with as many scores as would have told as much, had they been independent."""
        worth = float(clusters)
        variance = self._variance_of_mean(share, clusters) if clusters > 1 else 0.0
        # All alike say nothing of how alike clusters are; then each counts as one score.
        if variance > 0 and 0 < share < 1:
            worth = min(float(self._total), share * (1 - share) / variance)
        critical = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1) if clusters > 1 else Z95
        return wilson(share, worth, critical)


def wilson(share: float, n: float, critical: float = Z95) -> Interval | None:
    """The interval of a share of n trials, which stays inside [0, 1] and is honest near its ends; None without any."""
    if n <= 0:
        return None
    spread = critical * critical / n
    middle = (share + spread / 2) / (1 + spread)
    half = critical / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    # At the ends the bound is exact; rounding would leave it a hair off.
    return (0.0 if share <= 0 else max(0.0, middle - half)), (1.0 if share >= 1 else min(1.0, middle + half))


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: float) -> float:
    """Where Student's t distribution has that probability to its left. Exact to about ten digits."""
    if not 0 < probability < 1 or degrees <= 0:
        raise ValueError("a probability is between 0 and 1, and there is at least part of a degree of freedom")
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    guess = _near_normal(probability, degrees)
    return guess if degrees >= _SERIES_FROM else _solve(probability, degrees, guess)


def t_cdf(t: float, degrees: float) -> float:
    """The probability to the left of t."""
    tail = _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def _near_normal(probability: float, degrees: float) -> float:
    """The normal quantile with the first terms of the series in 1 / degrees that leads to Student's."""
    from statistics import NormalDist  # late: it brings fractions and decimals with it

    z = Z95 if probability == 0.975 else NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def _solve(probability: float, degrees: float, guess: float) -> float:
    """Newton's steps, kept between two bounds that close in."""
    low, high = 0.0, max(guess, 1.0)
    while t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    t = min(max(guess, low), high)
    for _ in range(100):
        error = t_cdf(t, degrees) - probability
        low, high = (low, t) if error > 0 else (t, high)
        step = error / _t_density(t, degrees)
        t = t - step if low <= t - step <= high else (low + high) / 2
        if abs(step) <= 1e-13 * t:
            break
    return t


def _t_density(t: float, degrees: float) -> float:
    log = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    return math.exp(log - (degrees + 1) / 2 * math.log1p(t * t / degrees))


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log) / a * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation, two terms a step."""
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _apart(1 + term * d)
            c = _apart(1 + term / c)
            fraction *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return fraction


def _apart(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
