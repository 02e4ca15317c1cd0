"""Means and proportions with 95 % confidence intervals, with clusters, in constant memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from math import comb

import msgspec

from agentv.stats.distributions import Z95, Interval, beta_quantile, check_fraction, t_quantile

_FEWEST_EFFECTIVE = 5.0
_DOMINATED = 0.75


class ClusterSizes(msgspec.Struct, frozen=True):
    """The sizes of clusters: the sums of their squares and of their inverses."""

    scores: float
    clusters: int
    squares: float
    inverses: float

    @property
    def effective(self) -> float:
        """The number of clusters of equal size that vary as much as these if the scores of a cluster are equal.

        It is n² / Σn_c². Kish (1965), Survey Sampling, section 8.2.
        """
        return self.scores**2 / self.squares

    @property
    def is_dominated(self) -> bool:
        """Whether one or two clusters decide the mean: no interval holds then, because their variance is unknown.

        There are fewer than five effective clusters, and fewer than three quarters of all. In simulations, intervals of
        such means covered 70 to 92 %.
        """
        return self.effective < min(_FEWEST_EFFECTIVE, _DOMINATED * self.clusters)

    def variance(self, robust: float, between: float, within: float) -> float:
        """Return the variance of a mean: the larger of the cluster-robust one and that of a model.

        The robust one is too small if a cluster is large, because the mean follows its scores. In the model all
        clusters vary alike: V = S² / G* + s² (1/n - h/G*). S² is the variance `between` cluster means, s² the one from
        the squares `within` clusters, G* the effective number of clusters and h the mean of 1/n_c. With clusters of
        equal size both are the same. Searle, Casella & McCulloch (1992), Variance Components, section 3.6.
        """
        others = self.scores - self.clusters
        own = max(0.0, within) / others if others > 0 else 0.0
        model = between / self.effective
        model += own * (1 / self.scores - self.inverses / self.clusters / self.effective)
        return max(robust, model)


CONFIDENCE = 0.95

ROUNDING_ERROR = 1e-12
"""Standard errors up to this are rounding errors of values that do not vary."""

RARE_ALPHA = 0.04
"""The error rate of `rare_limit`. Together with the other end of a 95 % interval, about 5 % in simulations."""

_BINS = 64


class MeanAccumulator:
    """The mean of scores from 0 to 1 and its interval, in memory that does not grow with the number of scores.

    Scores of one cluster (turns of a conversation, trials of a case) are correlated, and carry less information than
    independent ones. Clusters are small integers from 0 and take 16 bytes each; scores without one are independent.

    A score may have a `weight`, the inverse of the probability with which its case was drawn, and then needs a cluster.
    The mean is Σwx / Σw, and the variance that of a ratio between clusters: Hájek (1971), in Godambe & Sprott (eds.),
    Foundations of Statistical Inference; Särndal, Swensson & Wretman (1992), Model Assisted Survey Sampling, 5.7.
    """

    __slots__ = (
        *("_bin_counts", "_bin_sums", "_binary", "_clustered", "_counts", "_ones", "_other_mean", "_other_squares"),
        *("_others", "_squares", "_sums", "_weighted", "_zeros"),
    )

    def __init__(self) -> None:
        # Most scores are 0 or 1. Without a cluster they are only counted, which is fast.
        self._zeros = self._ones = self._others = 0
        self._other_mean = self._other_squares = 0.0
        self._bin_counts, self._bin_sums = [0] * _BINS, [0.0] * _BINS
        self._binary = True
        self._clustered, self._squares, self._weighted = 0, 0.0, False
        self._counts, self._sums = array("d"), array("d")

    def add(self, score: float, cluster: int | None = None, weight: float = 1.0) -> None:
        """Add a score."""
        if cluster is not None:
            self._add_clustered(cluster, score, weight)
        elif score == 1.0:
            self._ones += 1
        elif score == 0.0:
            self._zeros += 1
        else:
            self._check(score)
            place = int(score * _BINS)
            self._bin_counts[place] += 1
            self._bin_sums[place] += score
            # Welford's algorithm, which avoids differences of large sums.
            self._others += 1
            off = score - self._other_mean
            self._other_mean += off / self._others
            self._other_squares += off * (score - self._other_mean)

    def _add_clustered(self, cluster: int, score: float, weight: float) -> None:
        self._check(score)
        if cluster >= len(self._counts):
            room = bytes(8 * (cluster + 1 - len(self._counts)))
            self._counts.frombytes(room)
            self._sums.frombytes(room)
        self._clustered += 1
        self._weighted = self._weighted or weight != 1.0
        self._counts[cluster] += weight
        self._sums[cluster] += weight * score
        self._squares += score * score

    def _check(self, score: float) -> None:
        if not 0 <= score <= 1:
            raise ValueError(f"A score must be from 0 to 1, got {score}")
        if score not in (0.0, 1.0):
            self._binary = False

    @property
    def n(self) -> int:
        """The number of scores."""
        return self._unclustered + self._clustered

    @property
    def _total(self) -> float:
        """The sum of the weights, rounded as the sum of the scores is: scores of 1 have a mean of exactly 1."""
        return self._unclustered + math.fsum(self._counts)

    @property
    def _unclustered(self) -> int:
        return self._zeros + self._ones + self._others

    @property
    def _unclustered_sum(self) -> float:
        return self._ones + self._others * self._other_mean

    @property
    def independent(self) -> tuple[int, float, float, bool]:
        """The number of scores without a cluster, their mean, their squared deviations, and whether all are 0 or 1."""
        n = self._unclustered
        mean = self._unclustered_sum / n if n else 0.0
        squares = self._other_squares + self._others * (self._other_mean - mean) ** 2
        return n, mean, squares + self._ones * (1 - mean) ** 2 + self._zeros * mean**2, not self._others

    @property
    def clusters(self) -> int:
        """The number of clusters; a score without a cluster counts as one."""
        return self._unclustered + sum(1 for count in self._counts if count)

    @property
    def mean(self) -> float | None:
        """The mean; None without scores."""
        if not self.n:
            return None
        mean = (self._unclustered_sum + math.fsum(self._sums)) / self._total
        return min(1.0, max(0.0, mean))

    @property
    def mean_of_clusters(self) -> float | None:
        """The mean of the cluster means, each with the same weight; with weights, the mean. None without scores."""
        if not self.n or self._weighted:
            return self.mean
        pairs = zip(self._counts, self._sums, strict=True)
        return (self._unclustered_sum + math.fsum(total / n for n, total in pairs if n)) / self.clusters

    @property
    def ci95(self) -> Interval | None:
        """The 95 % confidence interval of the mean; None if there are too few scores, or one or two clusters dominate.

        Scores that are all 0 or 1 get the exact interval of a proportion, with the effective sample size if they are
        clustered. Others get a t interval with the variance between clusters, widened by `rare_bound` for values that
        are too rare to appear in this sample.
        """
        mean = self.mean
        if mean is None:
            return None
        clusters, sizes = self.clusters, self._sizes
        if clusters > 1 and not self._weighted and sizes.is_dominated:
            return None
        if self._binary:
            return proportion_interval(mean, self._effective_size(mean, clusters))
        if clusters < 2:
            return None
        half = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1) * math.sqrt(self._variance_of_mean(mean, clusters))
        low, high = (self._rare_bound(mean, end, clusters) for end in (0.0, 1.0))
        return max(0.0, min(low, mean - half)), min(1.0, max(high, mean + half))

    def _rare_bound(self, mean: float, end: float, clusters: int) -> float:
        """Return the bound of the mean towards `end`. Values nearer to `end` than to the mean count as rare."""
        middle, total = (mean + end) / 2, self._total
        rare, rare_sum, others, others_sum = 0.0, 0.0, 0.0, 0.0
        for multiplicity, size, value in self._groups():
            if (value < middle) if end < mean else (value > middle):
                count = multiplicity * (size * clusters / total if self._weighted else 1.0)
                rare += count
                rare_sum += count * value
            else:
                others += multiplicity * size
                others_sum += multiplicity * size * value
        return rare_bound(others_sum / others if others else mean, rare_sum, rare, clusters, end)

    def _groups(self) -> Iterator[tuple[int, float, float]]:
        """Yield the number, size and mean of clusters; single scores are clusters of size 1, grouped by value."""
        yield self._zeros, 1.0, 0.0
        yield self._ones, 1.0, 1.0
        yield from ((n, 1.0, total / n) for n, total in zip(self._bin_counts, self._bin_sums, strict=True) if n)
        yield from ((1, float(n), total / n) for n, total in zip(self._counts, self._sums, strict=True) if n)

    @property
    def _sizes(self) -> ClusterSizes:
        """The sizes of the clusters; a score without one is a cluster of size 1."""
        apart, counts = self._unclustered, self._counts
        squares = apart + math.fsum(count * count for count in counts)
        inverses = apart + math.fsum(1 / count for count in counts if count)
        return ClusterSizes(self.n, self.clusters, squares, inverses)

    def _variance_of_mean(self, mean: float, clusters: int) -> float:
        """Return the cluster-robust variance of the mean, corrected for few clusters and for those of unequal size."""
        robust = clusters / (clusters - 1) * self._squares_around(mean, by_size=True) / self._total**2
        if (
            self._weighted
            or not self._clustered
            or (not self._unclustered and min(filter(None, self._counts)) == max(self._counts))
        ):
            return robust
        middle = self.mean_of_clusters or 0.0
        between = self._squares_around(middle, by_size=False) / (clusters - 1)
        pairs = zip(self._counts, self._sums, strict=True)
        within = self._squares - math.fsum(total * total / n for n, total in pairs if n)
        return self._sizes.variance(robust, between, within)

    def _squares_around(self, mean: float, by_size: bool) -> float:
        """Return the sum of squared deviations of clusters: of their sums, or else of their means."""
        squares = self._other_squares + self._others * (self._other_mean - mean) ** 2
        squares += self._ones * (1 - mean) ** 2 + self._zeros * mean**2
        pairs = zip(self._counts, self._sums, strict=True)
        return squares + math.fsum(((total - n * mean) / (1 if by_size else n)) ** 2 for n, total in pairs if n)

    def _effective_size(self, share: float, clusters: int) -> float:
        """Return the number of independent scores that carry the same information as these clustered ones.

        It is p(1-p) / Var(p), reduced by (z / t)² because a variance from few clusters is uncertain, but not below
        n² / Σn_c², the size if all scores of a cluster were equal. Such a cluster counts as one more in the variance,
        because few clusters may be alike by chance. With weights, the size is not above that, because few scores with
        large weights may decide the mean. Korn & Graubard (1998), Survey Methodology 24:193.
        """
        if clusters == self.n and not self._weighted:
            return float(self.n)
        least = self._least_size if self._weighted else self._sizes.effective
        if clusters < 2 or not 0 < share < 1:
            return least
        variance = self._variance_of_mean(share, clusters)
        if not self._weighted:
            variance = ((clusters - 1) * variance + share * (1 - share) / least) / clusters
        critical = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1)
        size = share * (1 - share) / variance * (Z95 / critical) ** 2 if variance > 0 else float(self.n)
        return min(least, size) if self._weighted else min(float(self.n), max(least, size))

    @property
    def _least_size(self) -> float:
        """The effective size if all scores of a cluster are equal, and weights are unrelated to scores (Kish 1965)."""
        return self._total**2 / (self._unclustered + math.fsum(count * count for count in self._counts))


def proportion_interval(share: float, n: float, confidence: float = CONFIDENCE) -> Interval | None:
    """Return the exact interval of a proportion of n trials, where n may be an effective sample size; None without any.

    From the beta quantiles B(α/2; k, n-k+1) and B(1-α/2; k+1, n-k), with k = n·share. Clopper & Pearson (1934),
    Biometrika 26:404.
    """
    if n <= 0:
        return None
    check_fraction(share, "A proportion")
    tail, hits = (1 - confidence) / 2, n * share
    low = beta_quantile(tail, hits, n - hits + 1) if share > 0 else 0.0
    high = beta_quantile(1 - tail, hits + 1, n - hits) if share < 1 else 1.0
    return low, high


def rare_limit(rare: float, n: float) -> float:
    """Return the largest plausible fraction of a kind of value seen `rare` times among n, with 96 % confidence.

    It is the one-sided limit of Clopper & Pearson; for values never seen, 1 - 0.04^(1/n), about 3.2/n.
    """
    if rare >= n:
        return 1.0
    return 1 - RARE_ALPHA ** (1 / n) if not rare else beta_quantile(1 - RARE_ALPHA, rare + 1, n - rare)


def rare_bound(ordinary: float, rare_sum: float, rare: float, n: float, end: float) -> float:
    """Return a one-sided bound of a mean that allows for rare values far from the others, towards `end`.

    A t interval is too short if a few values far from the rest decide the mean, because most samples contain fewer of
    them than expected, or none. Their fraction may be as high as u = `rare_limit(rare, n)`. Then the mean is
    (1-u)·ordinary + u·x, where x is the mean of the rare values that were seen and of one more at `end`.
    """
    share = rare_limit(rare, n)
    return (1 - share) * ordinary + share * (rare_sum + end) / (rare + 1)


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


def clopper_pearson(hits: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the exact confidence interval of a proportion from counts; see `proportion_interval`."""
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"There must be 1 or more trials with 0 to n hits, got {hits} of {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"The confidence level must be between 0 and 1, got {confidence}")
    interval = proportion_interval(hits / n, n, confidence)
    assert interval is not None
    return interval


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
