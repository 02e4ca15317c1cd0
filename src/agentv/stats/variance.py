"""Variance between cases, trials and judge calls, and the noise of a second run. Plain Python, because runs use it."""

from __future__ import annotations

import math
from array import array
from copy import deepcopy

import msgspec

from agentv.stats.power import Noise, variance_between_runs

_WHOLE = (0.0, 1.0)


class VarianceComponents(msgspec.Struct, frozen=True):
    """The variance between cases and between trials of one case.

    They were estimated from this number of cases; `trials` is the harmonic mean of their numbers of trials.
    """

    case: float
    trial: float
    cases: int
    trials: float


class _Squares:
    """The number, the mean and the sum of squared deviations of scores, by Welford's algorithm."""

    __slots__ = ("mean", "n", "squares")

    def __init__(self) -> None:
        self.n = 0
        self.mean = self.squares = 0.0

    def add(self, score: float) -> None:
        self.n += 1
        off = score - self.mean
        self.mean += off / self.n
        self.squares += off * (score - self.mean)

    def around(self, mean: float) -> float:
        """Return the sum of squared deviations from another mean."""
        return self.squares + self.n * (self.mean - mean) ** 2


class ScoreSpread:
    """The variance of scores, and how much clusters of correlated scores increase the variance of their mean."""

    __slots__ = ("_apart", "_clusters", "_counts", "_sums", "is_binary")

    def __init__(self) -> None:
        self._apart, self._clusters = _Squares(), _Squares()
        self._counts, self._sums = array("q"), array("d")
        self.is_binary = True

    def add(self, score: float, cluster: int | None = None) -> None:
        """Add a score. Clusters are small integers from 0; scores without one are independent."""
        if score not in _WHOLE:
            self.is_binary = False
        if cluster is None:
            self._apart.add(score)
            return
        self._clusters.add(score)
        if cluster >= len(self._counts):
            room = bytes(8 * (cluster + 1 - len(self._counts)))
            self._counts.frombytes(room)
            self._sums.frombytes(room)
        self._counts[cluster] += 1
        self._sums[cluster] += score

    def joined(self, n: int, mean: float, squares: float, is_binary: bool) -> ScoreSpread:
        """Return the spread of these scores and n independent ones with this mean and these squared deviations."""
        joined = deepcopy(self)
        total = joined._apart.n + n
        if total:
            middle = (joined._apart.n * joined._apart.mean + n * mean) / total
            joined._apart.squares = joined._apart.around(middle) + squares + n * (mean - middle) ** 2
            joined._apart.n, joined._apart.mean = total, middle
        joined.is_binary = self.is_binary and is_binary
        return joined

    @property
    def n(self) -> int:
        """The number of scores."""
        return self._apart.n + self._clusters.n

    @property
    def mean(self) -> float:
        """The mean; 0 without scores."""
        total = self._apart.n * self._apart.mean + self._clusters.n * self._clusters.mean
        return total / self.n if self.n else 0.0

    @property
    def variance(self) -> float | None:
        """The variance of the scores; None with fewer than two."""
        if self.n < 2:
            return None
        mean = self.mean
        return (self._apart.around(mean) + self._clusters.around(mean)) / (self.n - 1)

    @property
    def clusters(self) -> int:
        """The number of clusters; a score without one counts as one."""
        return self._apart.n + sum(1 for count in self._counts if count)

    @property
    def design_effect(self) -> float:
        """The factor by which clusters increase the variance of the mean, at least 1."""
        clusters, mean, variance = self.clusters, self.mean, self.variance
        if not variance or clusters < 2:
            return 1.0
        pairs = zip(self._counts, self._sums, strict=True)
        squares = self._apart.around(mean) + math.fsum((total - n * mean) ** 2 for n, total in pairs if n)
        return max(1.0, clusters / (clusters - 1) * squares / self.n / variance)

    def noise(self, components: VarianceComponents | None = None, step: float | None = None) -> Noise | None:
        """Return how much a case's difference to a second run like this one varies; None with fewer than two cases.

        Scores of 0 and 1 change in steps of 1, as `Noise` explains. Scores that are all equal may do so too.
        """
        variance = self.variance
        if variance is None:
            return None
        if step is None:
            step = float(self.is_binary or variance == 0)
        between = variance_between_runs(variance)
        if components is not None:
            case = max(0.0, variance - components.trial / components.trials)
            between = variance_between_runs(case, components.trial, max(1, round(components.trials)))
        loss = 0.0 if self.is_binary and self.clusters == self.n else self._possible_loss(variance)
        return Noise(between, step, 0.0, self.design_effect, self.n / self.clusters, loss)

    def _possible_loss(self, variance: float) -> float:
        """Return the size of a loss to 0, as `possible_change` in comparisons, from the sums of scores and squares."""
        total = self.n * self.mean
        return (variance * (self.n - 1) + total * self.mean + 1) / (total + 1)


class GroupedScores:
    """Scores in groups, the trials of a case: their number, mean and squares. Takes 28 bytes a group.

    A stratum is a prompt: its effect is not variance between cases. The clusters of groups are those of `ScoreSpread`.
    """

    __slots__ = ("_means", "_squares", "_strata", "_whole", "clusters", "counts")

    def __init__(self) -> None:
        self.counts = array("i")
        self._means, self._squares = array("d"), array("d")
        self.clusters, self._strata = array("i"), array("i")
        self._whole = True

    def add(self, group: int, score: float, cluster: int, stratum: int = 0) -> None:
        """Add a score. Groups are numbered from 0 in the order in which they first appear."""
        if group == len(self.counts):
            self.counts.append(0)
            self._means.append(0.0)
            self._squares.append(0.0)
            self.clusters.append(cluster)
            self._strata.append(stratum)
        if score not in _WHOLE:
            self._whole = False
        self.counts[group] += 1
        off = score - self._means[group]
        self._means[group] += off / self.counts[group]
        self._squares[group] += off * (score - self._means[group])

    def components(self) -> VarianceComponents | None:
        """Return the variance components; None unless there are two groups, and two scores in one of them.

        One-way analysis of variance with unequal groups, unbiased except that a negative variance between cases counts
        as 0. With N scores in k groups of n_i: trial = SSW / (N - k), and case = (SSB - (k-1) trial) / (N - Σn_i²/N).
        With several strata, SSB and both denominators are sums over strata.

        Searle, Casella & McCulloch (1992), Variance Components, section 3.6.
        """
        scores, groups = sum(self.counts), len(self.counts)
        between, degrees, weight = map(math.fsum, zip(*self._between(), strict=True)) if groups else (0.0,) * 3
        if scores == groups or degrees < 1 or weight <= 0:
            return None
        trial = math.fsum(self._squares) / (scores - groups)
        case = max(0.0, (between - degrees * trial) / weight)
        return VarianceComponents(case, trial, groups, groups / math.fsum(1 / count for count in self.counts))

    def _between(self) -> list[tuple[float, float, float]]:
        """Return the squares between groups, their degrees of freedom and their weight, by stratum."""
        totals: dict[int, list[float]] = {}
        for stratum, count, mean in zip(self._strata, self.counts, self._means, strict=True):
            total = totals.setdefault(stratum, [0.0, 0.0, 0.0, 0.0, 0.0])
            for place, value in enumerate((1.0, count, count * count, count * mean)):
                total[place] += value
        for stratum, count, mean in zip(self._strata, self.counts, self._means, strict=True):
            total = totals[stratum]
            total[4] += count * (mean - total[3] / total[1]) ** 2
        return [(between, k - 1, n - squared / n) for k, n, squared, _, between in totals.values()]

    def spread(self) -> ScoreSpread:
        """Return the spread of the group means."""
        spread = ScoreSpread()
        for mean, cluster in zip(self._means, self.clusters, strict=True):
            spread.add(mean, cluster)
        return spread

    def noise(self) -> Noise | None:
        """Return how much a case's difference to a second run varies, with the same numbers of trials."""
        spread = self.spread()
        step = None
        if self._whole and len(self.counts):
            # Where trials differ, a case changes by less than 1. The square is the probability that neither run does.
            step = (sum(1 for mean in self._means if mean in _WHOLE) / len(self.counts)) ** 2
        return spread.noise(self.components(), step)
