"""Means and proportions with 95 % confidence intervals, with clusters, in constant memory."""

from __future__ import annotations

import math
from array import array
from math import comb

from agentv.stats.distributions import Z95, Interval, beta_quantile, check_fraction, t_quantile

CONFIDENCE = 0.95

ROUNDING_ERROR = 1e-12
"""Standard errors up to this are rounding errors of values that do not vary."""

NEGLIGIBLE_RANGE = 1e-3
"""Scores within a smaller range count as equal: their variance carries no information."""


class MeanAccumulator:
    """The mean of scores from 0 to 1 and its interval, in memory that does not grow with the number of scores.

    Scores of one cluster (turns of a conversation, trials of a case) are correlated, and carry less information than
    independent ones. Clusters are small integers from 0 and take 16 bytes each; scores without one are independent.
    """

    __slots__ = (
        *("_binary", "_counts", "_highest", "_lowest", "_ones", "_other_mean", "_other_squares", "_others"),
        *("_sums", "_clustered", "_zeros"),
    )

    def __init__(self) -> None:
        # Most scores are 0 or 1. Without a cluster they are only counted, which is fast.
        self._zeros = self._ones = self._others = 0
        self._other_mean = self._other_squares = 0.0
        self._binary = True
        self._lowest, self._highest = 1.0, 0.0
        self._clustered = 0
        self._counts = array("q")
        self._sums = array("d")

    def add(self, score: float, cluster: int | None = None) -> None:
        """Add a score."""
        if cluster is not None:
            self._add_clustered(cluster, score)
        elif score == 1.0:
            self._ones += 1
        elif score == 0.0:
            self._zeros += 1
        else:
            self._update_range(score)
            # Welford's algorithm, which avoids differences of large sums.
            self._others += 1
            off = score - self._other_mean
            self._other_mean += off / self._others
            self._other_squares += off * (score - self._other_mean)

    def _add_clustered(self, cluster: int, score: float) -> None:
        self._update_range(score)
        if cluster >= len(self._counts):
            room = bytes(8 * (cluster + 1 - len(self._counts)))
            self._counts.frombytes(room)
            self._sums.frombytes(room)
        self._clustered += 1
        self._counts[cluster] += 1
        self._sums[cluster] += score

    def _update_range(self, score: float) -> None:
        if not 0 <= score <= 1:
            raise ValueError(f"A score must be from 0 to 1, got {score}")
        if score not in (0.0, 1.0):
            self._binary = False
        self._lowest = min(self._lowest, score)
        self._highest = max(self._highest, score)

    @property
    def n(self) -> int:
        """The number of scores."""
        return self._unclustered + self._clustered

    @property
    def _unclustered(self) -> int:
        return self._zeros + self._ones + self._others

    @property
    def _unclustered_sum(self) -> float:
        return self._ones + self._others * self._other_mean

    @property
    def clusters(self) -> int:
        """The number of clusters; a score without a cluster counts as one."""
        return self._unclustered + sum(1 for count in self._counts if count)

    @property
    def mean(self) -> float | None:
        """The mean; None without scores."""
        if not self.n:
            return None
        mean = (self._unclustered_sum + math.fsum(self._sums)) / self.n
        return min(1.0, max(0.0, mean))

    @property
    def mean_of_clusters(self) -> float | None:
        """The mean of the cluster means, so that each cluster has the same weight. None without scores."""
        if not self.n:
            return None
        pairs = zip(self._counts, self._sums, strict=True)
        return (self._unclustered_sum + math.fsum(total / n for n, total in pairs if n)) / self.clusters

    @property
    def ci95(self) -> Interval | None:
        """The 95 % confidence interval of the mean; None if there are too few scores.

        Scores that are all 0 or 1 get Wilson's interval, others a t interval. Both use the variance between clusters,
        which is the ordinary variance if there are none. If that is 0, or if scores differ by less than 0.001, the
        interval is that of `interval_of_equal_values`.
        """
        mean = self.mean
        if mean is None:
            return None
        clusters = self.clusters
        if self._binary and clusters == self.n:
            return wilson(mean, self.n)
        if self._binary:
            return self._clustered_share(mean, clusters)
        if clusters < 2:
            return None
        error = math.sqrt(self._variance_of_mean(mean, clusters))
        span = (1.0 if self._ones else self._highest) - (0.0 if self._zeros else self._lowest)
        if error <= ROUNDING_ERROR or span < NEGLIGIBLE_RANGE:
            return interval_of_equal_values(mean, clusters, (0.0, 1.0))
        half = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1) * error
        return max(0.0, mean - half), min(1.0, mean + half)

    def _variance_of_mean(self, mean: float, clusters: int) -> float:
        """Return the cluster-robust variance of the mean, corrected for a small number of clusters."""
        squares = self._other_squares + self._others * (self._other_mean - mean) ** 2
        squares += self._ones * (1 - mean) ** 2 + self._zeros * mean**2
        squares += math.fsum((total - n * mean) ** 2 for n, total in zip(self._counts, self._sums, strict=True) if n)
        return clusters / (clusters - 1) * squares / self.n**2

    def _clustered_share(self, share: float, clusters: int) -> Interval | None:
        """Return Wilson's interval with the effective sample size of the clustered scores."""
        effective = float(clusters)
        variance = self._variance_of_mean(share, clusters) if clusters > 1 else 0.0
        # Equal scores do not show the correlation within clusters; then each cluster counts as one score.
        if variance > 0 and 0 < share < 1:
            effective = min(float(self.n), share * (1 - share) / variance)
        critical = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1) if clusters > 1 else Z95
        return wilson(share, effective, critical)


def wilson(share: float, n: float, critical: float = Z95) -> Interval | None:
    """Return Wilson's score interval of a proportion of n trials, which stays within [0, 1]; None without trials.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n). Wilson (1927), Journal of the American Statistical Association
    22:209.
    """
    if n <= 0:
        return None
    check_fraction(share, "A proportion")
    spread = critical * critical / n
    middle = (share + spread / 2) / (1 + spread)
    half = critical / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    # At 0 and 1 the bound is exact; computing it would add a rounding error.
    return (0.0 if share <= 0 else max(0.0, middle - half)), (1.0 if share >= 1 else min(1.0, middle + half))


def interval_of_equal_values(value: float, n: int, within: Interval) -> Interval:
    """Return a 95 % confidence interval of the mean when all n observed values are equal.

    Equal values do not prove that there is no variance. The proportion of values equal to v is at least
    L = (α/2)^(1/n), the lower Clopper-Pearson bound for n of n; the rest may be anywhere `within`. So the interval is
    from L·v + (1-L)·low to L·v + (1-L)·high. For values from -1 to 1 it can exclude 0 only with six or more values,
    like a sign-flip test at 5 %.
    """
    share = ((1 - CONFIDENCE) / 2) ** (1 / n)
    low, high = (share * value + (1 - share) * end for end in within)
    return low, high


def clopper_pearson(hits: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the exact (conservative) confidence interval of a proportion.

    From the beta quantiles B(α/2; k, n-k+1) and B(1-α/2; k+1, n-k). Clopper & Pearson (1934), Biometrika 26:404.
    """
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"There must be 1 or more trials with 0 to n hits, got {hits} of {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"The confidence level must be between 0 and 1, got {confidence}")
    tail = (1 - confidence) / 2
    low = beta_quantile(tail, hits, n - hits + 1) if hits else 0.0
    high = beta_quantile(1 - tail, hits + 1, n - hits) if hits < n else 1.0
    return low, high


def pass_at_k(trials: int, passed: int, k: int) -> float:
    """Estimate, without bias, the probability that at least one of k trials passes: 1 - C(n-c, k) / C(n, k), n ≥ k.

    Chen et al. (2021), Evaluating Large Language Models Trained on Code, arXiv:2107.03374.
    """
    _check(trials, passed, k)
    return 1 - comb(trials - passed, k) / comb(trials, k)


def pass_hat_k(trials: int, passed: int, k: int) -> float:
    """Estimate, without bias, the probability that all of k trials pass: C(c, k) / C(n, k), n ≥ k.

    Yao et al. (2024), τ-bench, arXiv:2406.12045.
    """
    _check(trials, passed, k)
    return comb(passed, k) / comb(trials, k)


def _check(trials: int, passed: int, k: int) -> None:
    if not 0 <= passed <= trials:
        raise ValueError(f"The number of passed trials must be from 0 to {trials}, got {passed}")
    if not 1 <= k <= trials:
        raise ValueError(f"k must be from 1 to the number of trials ({trials}), got {k}")
