"""Means of scores with their 95 % intervals: fed one by one, clustered, bounded to where scores can be."""

from __future__ import annotations

import math
from array import array
from math import comb

from agentv.stats.distributions import Z95, Interval, beta_quantile, t_quantile

CONFIDENCE = 0.95

NO_ERROR = 1e-12
"""A standard error up to this is what rounding leaves where nothing varies."""

ALIKE = 1e-3
"""Scores that differ by less are as good as equal: no report tells them apart, and their spread says nothing."""


class MeanAccumulator:
    """The mean of scores from 0 to 1 and its interval, in a memory that does not grow with their number.

    Scores of one cluster go up and down together (turns of a conversation, trials of a case) and count for less than
    as many independent ones. A cluster is a small number, counted from 0; scores without one stand alone. It takes 16
    bytes a cluster.
    """

    __slots__ = (
        *("_binary", "_counts", "_highest", "_lowest", "_ones", "_other_mean", "_other_squares", "_others"),
        *("_sums", "_together", "_zeros"),
    )

    def __init__(self) -> None:
        # Of scores that stand alone, 0 and 1 are only counted: most are one or the other, and that is quick.
        self._zeros = self._ones = self._others = 0
        self._other_mean = self._other_squares = 0.0
        self._binary = True
        self._lowest, self._highest = 1.0, 0.0
        self._together = 0
        self._counts = array("q")
        self._sums = array("d")

    def add(self, score: float, cluster: int | None = None) -> None:
        """One more score."""
        if cluster is not None:
            self._add_to(cluster, score)
        elif score == 1.0:
            self._ones += 1
        elif score == 0.0:
            self._zeros += 1
        else:
            self._widen(score)
            # Welford's way: no difference of large sums.
            self._others += 1
            off = score - self._other_mean
            self._other_mean += off / self._others
            self._other_squares += off * (score - self._other_mean)

    def _add_to(self, cluster: int, score: float) -> None:
        self._widen(score)
        if cluster >= len(self._counts):
            room = bytes(8 * (cluster + 1 - len(self._counts)))
            self._counts.frombytes(room)
            self._sums.frombytes(room)
        self._together += 1
        self._counts[cluster] += 1
        self._sums[cluster] += score

    def _widen(self, score: float) -> None:
        if not 0 <= score <= 1:
            raise ValueError(f"A score is from 0 to 1, got {score}")
        if score not in (0.0, 1.0):
            self._binary = False
        self._lowest = min(self._lowest, score)
        self._highest = max(self._highest, score)

    @property
    def n(self) -> int:
        """How many scores there are."""
        return self._alone + self._together

    @property
    def _alone(self) -> int:
        return self._zeros + self._ones + self._others

    @property
    def _alone_sum(self) -> float:
        return self._ones + self._others * self._other_mean

    @property
    def clusters(self) -> int:
        """How many independent groups they fall into; a score that stands alone is one."""
        return self._alone + sum(1 for count in self._counts if count)

    @property
    def mean(self) -> float | None:
        """Their mean; None without any."""
        if not self.n:
            return None
        mean = (self._alone_sum + math.fsum(self._sums)) / self.n
        return min(1.0, max(0.0, mean))

    @property
    def mean_of_clusters(self) -> float | None:
        """The mean of the clusters' own means: each counts once, however many scores it has. None without any."""
        if not self.n:
            return None
        pairs = zip(self._counts, self._sums, strict=True)
        return (self._alone_sum + math.fsum(total / n for n, total in pairs if n)) / self.clusters

    @property
    def ci95(self) -> Interval | None:
        """The 95 % interval of the mean; None when there is too little to tell.

        Scores that are all 0 or 1 get Wilson's interval, any others one from the t distribution. Both use the
        variance between clusters, which is the ordinary one when every score stands alone. Where that is 0, or scores
        differ by less than 0.001, t has nothing to go by, and `of_equals` tells.
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
        if error <= NO_ERROR or self._range < ALIKE:
            return of_equals(mean, clusters, (0.0, 1.0))
        half = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1) * error
        return max(0.0, mean - half), min(1.0, mean + half)

    @property
    def _range(self) -> float:
        """How far the scores are apart."""
        return (1.0 if self._ones else self._highest) - (0.0 if self._zeros else self._lowest)

    def _variance_of_mean(self, mean: float, clusters: int) -> float:
        """The cluster-robust variance, with the correction for few clusters."""
        squares = self._other_squares + self._others * (self._other_mean - mean) ** 2
        squares += self._ones * (1 - mean) ** 2 + self._zeros * mean**2
        squares += math.fsum((total - n * mean) ** 2 for n, total in zip(self._counts, self._sums, strict=True) if n)
        return clusters / (clusters - 1) * squares / self.n**2

    def _clustered_share(self, share: float, clusters: int) -> Interval | None:
        """Wilson's interval with as many scores as would have told as much, had they been independent."""
        worth = float(clusters)
        variance = self._variance_of_mean(share, clusters) if clusters > 1 else 0.0
        # All alike say nothing of how alike clusters are; then each counts as one score.
        if variance > 0 and 0 < share < 1:
            worth = min(float(self.n), share * (1 - share) / variance)
        critical = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1) if clusters > 1 else Z95
        return wilson(share, worth, critical)


def wilson(share: float, n: float, critical: float = Z95) -> Interval | None:
    """The interval of a share of n trials, which stays inside [0, 1] and is honest near its ends; None without any.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n). Wilson (1927), Journal of the American Statistical Association
    22:209.
    """
    if n <= 0:
        return None
    if not 0 <= share <= 1:
        raise ValueError(f"A share is from 0 to 1, got {share}")
    spread = critical * critical / n
    middle = (share + spread / 2) / (1 + spread)
    half = critical / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    # At the ends the bound is exact; rounding would leave it a hair off.
    return (0.0 if share <= 0 else max(0.0, middle - half)), (1.0 if share >= 1 else min(1.0, middle + half))


def of_equals(value: float, n: int, within: Interval) -> Interval:
    """The 95 % interval of a mean of which n values were seen, all equal: that they do not vary is itself a guess.

    The share of values that are so is at least L = (α/2)^(1/n), the lower end of Clopper and Pearson's interval of n
    in n; the others may be anywhere `within`: from L·v + (1-L)·low to L·v + (1-L)·high. It leaves out 0, of values
    from -1 to 1, from six values on at the earliest, as a sign-flip test of 5 % does.
    """
    share = ((1 - CONFIDENCE) / 2) ** (1 / n)
    low, high = (share * value + (1 - share) * end for end in within)
    return low, high


def clopper_pearson(hits: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval of a share: never holds the truth less often than it says, and mostly more often.

    From the beta quantiles B(α/2; k, n-k+1) and B(1-α/2; k+1, n-k). Clopper & Pearson (1934), Biometrika 26:404.
    """
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"There are 0 to n hits in 1 or more trials, got {hits} in {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"Confidence is between 0 and 1, got {confidence}")
    tail = (1 - confidence) / 2
    low = beta_quantile(tail, hits, n - hits + 1) if hits else 0.0
    high = beta_quantile(1 - tail, hits + 1, n - hits) if hits < n else 1.0
    return low, high


def pass_at_k(trials: int, passed: int, k: int) -> float:
    """The chance that at least one of k trials passes: 1 - C(n-c, k) / C(n, k), without bias for n ≥ k trials.

    Chen et al. (2021), Evaluating Large Language Models Trained on Code, arXiv:2107.03374.
    """
    _check(trials, passed, k)
    return 1 - comb(trials - passed, k) / comb(trials, k)


def pass_hat_k(trials: int, passed: int, k: int) -> float:
    """The chance that all of k trials pass: C(c, k) / C(n, k), without bias for n ≥ k trials.

    Yao et al. (2024), τ-bench, arXiv:2406.12045.
    """
    _check(trials, passed, k)
    return comb(passed, k) / comb(trials, k)


def _check(trials: int, passed: int, k: int) -> None:
    if not 0 <= passed <= trials:
        raise ValueError(f"0 to {trials} of {trials} trials can pass, got {passed}")
    if not 1 <= k <= trials:
        raise ValueError(f"k is from 1 to the number of trials, which is {trials}; got {k}")
