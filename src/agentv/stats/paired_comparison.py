"""Paired comparison of two sides on the same cases: effect, confidence interval and test."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from agentv.stats.distributions import Z95, Interval, binomial_cdf, binomial_pmf, bisect, check_fraction, vector
from agentv.stats.intervals import ROUNDING_ERROR, rare_limit
from agentv.stats.means import Estimate, cluster_sums, clustered_mean, correlation, paired_vectors, t_test
from agentv.stats.power import ALPHA, FEWEST_CHANGES, Noise, detectable_difference, restricted_variance
from agentv.stats.sequential import BettingMean

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import ArrayLike, NDArray

RESAMPLES = 9_999

_MOST_LEVELS = 21
_EXACT_UP_TO = 16
_MOST_SIGNS = 200_000_000
_SIGNS_AT_ONCE = 500_000
_FEWEST_RESAMPLES = 1_999

Test = Literal["mid-p McNemar", "sign flips", "e-value", "PPI++", "weighted t", "none"]
Answer = Literal["better", "worse", "cannot tell"]


class Paired(NamedTuple):
    """The second side against the first, over the same cases."""

    n: int
    clusters: int
    mean_before: float
    mean_after: float
    mean_delta: float
    standard_error: float | None
    ci95: Interval | None
    p_value: float | None
    test: Test
    """The source of the p-value."""

    differing: int
    """Clusters with a difference."""

    improved: int
    """Clusters with a gain."""

    unseen_losses: float
    """The largest plausible fraction of cases with a loss as large as none that was seen."""

    minimum_detectable_difference: float | None
    """Shown with 80 % power with this number of cases; None if even a difference of 1 would not be."""

    correlation: float | None
    resamples: int | None
    """The number of sign flips."""

    exact: bool
    """Whether these are all of them."""

    seed: int
    """The seed with which they were drawn."""

    variance_slope: float | None = None
    """That of `Estimate`."""

    @property
    def answer(self) -> Answer:
        """The conclusion; see `conclude`."""
        return self.conclude(self.p_value)

    def conclude(self, p_value: float | None) -> Answer:
        """Return the conclusion with this p-value, which may be adjusted for several tests.

        A difference is claimed only if the interval excludes 0, the test is significant, and at least six clusters
        differ: five that all differ in the same direction are a coincidence in 6 % of comparisons.
        """
        if self.ci95 is None or p_value is None or p_value >= ALPHA or self.differing < FEWEST_CHANGES:
            return "cannot tell"
        low, high = self.ci95
        return "better" if low > 0 else "worse" if high < 0 else "cannot tell"

    @property
    def estimate(self) -> Estimate:
        """The difference as a mean with its standard error."""
        return Estimate(self.mean_delta, self.standard_error, self.ci95, self.n, self.clusters, self.variance_slope)


def compare_paired(
    before: ArrayLike, after: ArrayLike, clusters: ArrayLike | None = None, *, seed: int = 0, test: bool = True
) -> Paired:
    """Compare the scores of two sides on the same cases, with trials already averaged.

    Scores that are all 0 or 1, without clusters: Tango's score interval and McNemar's mid-p test. Other scores: the
    clustered t interval and a permutation test that flips the signs of clusters, or Student's p-value without `test`.
    The t interval is widened for losses and gains that are too rare to appear in this sample; see `rare_bound`.
    """
    first, second = paired_vectors(before, after)
    for side in (first, second):
        check_fraction(float(side.min(initial=0.0)))
        check_fraction(float(side.max(initial=0.0)))
    delta = second - first
    sizes = cluster_sums(np.ones_like(first), clusters)
    scores = cluster_sums(first, clusters) / sizes
    extremes = -possible_change(scores), possible_change(1 - scores)
    estimate = clustered_mean(delta, clusters, (-1.0, 1.0), extremes)
    changes, shared = cluster_sums(delta, clusters), correlation(first, second)
    is_binary = estimate.clusters == estimate.n and all(np.isin(side, (0, 1)).all() for side in (first, second))
    paired = Paired(
        n=estimate.n,
        clusters=estimate.clusters,
        mean_before=float(first.mean()),
        mean_after=float(second.mean()),
        mean_delta=estimate.value,
        standard_error=estimate.standard_error,
        ci95=estimate.ci95,
        p_value=None if estimate.ci95 is None else t_test(estimate),
        test="none",
        differing=int((np.abs(changes) > ROUNDING_ERROR).sum()),
        improved=int((changes > ROUNDING_ERROR).sum()),
        unseen_losses=rare_limit(0, estimate.clusters),
        minimum_detectable_difference=_detectable(first, second, estimate, -extremes[0]),
        correlation=shared,
        resamples=None,
        exact=False,
        seed=seed,
        variance_slope=estimate.variance_slope,
    )
    if is_binary:
        wins, losses, n = int((delta > 0).sum()), int((delta < 0).sum()), estimate.n
        interval, p_value = share_difference(wins, losses, n), mcnemar_mid_p(wins, losses)
        return paired._replace(ci95=interval, p_value=p_value, test="mid-p McNemar", exact=True)
    if not test or estimate.ci95 is None:
        return paired
    flips = sign_flip_test(delta, clusters, seed=seed)
    return paired._replace(p_value=flips.p_value, test="sign flips", resamples=flips.resamples, exact=flips.exact)


def possible_change(room: NDArray[Any]) -> float:
    """Return the size of a change that uses all the room a case has, such as a loss from its score to 0.

    It is the mean room, weighted by the room itself, because cases with more room decide the mean; one more case with
    all the room counts as well. For scores of 0 and 1 it is 1.
    """
    return float((np.square(room).sum() + 1) / (room.sum() + 1))


def smallest_step(*scores: NDArray[Any]) -> float:
    """Return the smallest difference of two scores: 1 if all are 0 or 1; 0 if there are many different scores."""
    levels = np.unique(np.concatenate([np.unique(sample) for sample in scores]).round(9))
    if np.isin(levels, (0.0, 1.0)).all():
        return 1.0
    return float(np.diff(levels).min()) if 1 < len(levels) <= _MOST_LEVELS else 0.0


def certain_difference(mean: float, error: float) -> float:
    """Return the part of a difference that is surely not chance."""
    return max(0.0, abs(mean) - 2 * error)


def _detectable(first: NDArray[Any], second: NDArray[Any], estimate: Estimate, loss: float) -> float | None:
    """Return the difference that another comparison with these numbers of cases and clusters would show.

    It must outweigh unseen losses of this size, except for scores of 0 and 1, whose test accounts for them.
    """
    error, n = estimate.standard_error, len(first)
    if error is None:
        return None
    step = smallest_step(first, second)
    variance = float((second - first).var(ddof=1))
    noise = Noise(
        variance,
        step=step,
        difference=certain_difference(estimate.value, error),
        design_effect=max(1.0, error**2 * n / variance) if variance > 0 else 1.0,
        cluster_size=n / estimate.clusters,
        loss=0.0 if step == 1 and estimate.clusters == n else loss,
        correlation=correlation(first, second) or 0.0,
    )
    return detectable_difference(noise, n)


def compare_drawn(paired: Paired, groups: Iterable[tuple[float, int]], largest: int) -> Paired:
    """Return the comparison with an interval that is valid at any stopping time, for runs that stopped early.

    `groups` are the sum and number of differences in each cluster, in the order in which they were drawn.
    """
    bet = BettingMean(0.5, largest=largest)
    for total, count in groups:
        bet.add((total + count) / 2, count)  # from [-1, 1] to [0, 1]
    low, high = bet.interval
    return paired._replace(
        ci95=(2 * low - 1, 2 * high - 1), p_value=min(1.0, 1 / bet.e_value), test="e-value", resamples=None, exact=False
    )


class SignFlips(NamedTuple):
    """A permutation test. If `exact`, all sign flips were enumerated, and the seed had no effect."""

    p_value: float
    resamples: int
    exact: bool
    seed: int


def mcnemar_exact(wins: int, losses: int) -> float:
    """Return the two-sided p-value of pairs of 0 and 1, from the wins and losses of one side; ties do not count.

    min(1, 2 Σ_{k ≤ min(b,c)} C(b+c, k) / 2^(b+c)). McNemar (1947), Psychometrika 12:153, in its exact form.
    """
    fewer, n = _fewer(wins, losses)
    return min(1.0, 2 * binomial_cdf(fewer, n))


def mcnemar_mid_p(wins: int, losses: int) -> float:
    """Return McNemar's mid-p value: less conservative than the exact test, and still valid in practice.

    Fagerland, Lydersen & Laake (2013), BMC Medical Research Methodology 13:91.
    """
    fewer, n = _fewer(wins, losses)
    return min(1.0, 2 * binomial_cdf(fewer, n) - binomial_pmf(fewer, n))


def _fewer(wins: int, losses: int) -> tuple[int, int]:
    """Return the smaller count and the total."""
    if min(wins, losses) < 0:
        raise ValueError(f"Wins and losses must not be negative, got {wins} and {losses}")
    return min(wins, losses), wins + losses


def share_difference(wins: int, losses: int, n: int, critical: float = Z95) -> Interval:
    """Return Tango's 95 % score interval of the difference of two proportions over n pairs.

    It holds the values δ that the score test does not reject: |b - c - nδ| / √(n(2q + δ(1-δ))) ≤ z, where q is the
    maximum-likelihood proportion of losses given δ. It stays within [-1, 1] and has a width even if all pairs are ties.

    Tango (1998), Statistics in Medicine 17:891.
    """
    if min(wins, losses) < 0 or wins + losses > n or n < 1:
        raise ValueError(f"{wins} wins and {losses} losses do not fit in {n} pairs")
    estimate = (wins - losses) / n
    low, high = (
        # The point between the end and the estimate where the statistic reaches its critical value.
        end
        if abs(_score(wins, losses, n, end)) <= critical
        else bisect(lambda delta: abs(_score(wins, losses, n, delta)) > critical, end, estimate)[1]
        for end in (-1.0, 1.0)
    )
    return low, high


def sign_flip_test(
    differences: ArrayLike, clusters: ArrayLike | None = None, *, resamples: int = RESAMPLES, seed: int = 0
) -> SignFlips:
    """Test whether the mean difference is 0, by randomly flipping the signs of whole clusters.

    p = (1 + #{|d̄*| ≥ |d̄|}) / (1 + B). With up to 16 nonzero clusters, all 2^G flips are enumerated instead. With more
    than 20,000 different values fewer than 9,999 resamples are drawn, but at least 1,999; see `resamples`.

    Good (2005), Permutation, Parametric and Bootstrap Tests of Hypotheses; Phipson & Smyth (2010), Statistical
    Applications in Genetics and Molecular Biology 9:39.
    """
    totals = cluster_sums(vector(differences, "Differences"), clusters)
    signed, sums = float(totals.sum()), np.abs(totals)
    sums = sums[sums > 0]
    # The tolerance makes sums count as equal that differ only by rounding.
    reached = abs(signed) - 1e-9 * max(1.0, float(sums.sum()))
    if len(sums) <= _EXACT_UP_TO:
        ways = np.zeros(1)
        for value in sums:
            ways = np.concatenate([ways + value, ways - value])
        return SignFlips(float(np.mean(np.abs(ways) >= reached)), len(ways), True, seed)
    chance = np.random.default_rng(seed)
    values, counts = np.unique(sums, return_counts=True)
    if 8 * len(values) <= len(sums):
        # The number of k equal values that keep their sign is binomial, which is fast for few different values.
        samples = np.zeros(resamples)
        for value, count in zip(values, counts, strict=True):
            samples += value * (2.0 * chance.binomial(count, 0.5, resamples) - count)
    else:
        resamples = min(resamples, max(_FEWEST_RESAMPLES, _MOST_SIGNS // len(sums)))
        samples = _flip_by_bits(sums, resamples, chance)
    beyond = int(np.count_nonzero(np.abs(samples) >= reached))
    return SignFlips((1 + beyond) / (1 + resamples), resamples, False, seed)


def _flip_by_bits(sums: NDArray[Any], resamples: int, chance: Generator) -> NDArray[Any]:
    """Draw each sign as a random bit."""
    total = float(sums.sum())
    width = -(-len(sums) // 8)
    at_once = max(1, _SIGNS_AT_ONCE // len(sums))
    parts = []
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        random_bytes = np.frombuffer(chance.bytes(rows * width), np.uint8).reshape(rows, width)
        bits = np.unpackbits(random_bytes, axis=1, count=len(sums)).astype(np.float64)
        # Not `@`: the threads of a linear algebra library would cost more than they save here.
        parts.append(2.0 * np.einsum("ij,j->i", bits, sums) - total)
    return np.concatenate(parts)


def _score(wins: int, losses: int, n: int, delta: float) -> float:
    """Return Tango's statistic for a true difference of delta."""
    variance = n * restricted_variance(wins / n, losses / n, delta)
    off = wins - losses - n * delta
    if variance <= 0:
        return 0.0 if off == 0 else math.copysign(math.inf, off)
    return off / math.sqrt(variance)


def compare_weighted(
    before: ArrayLike, after: ArrayLike, weights: NDArray[Any], clusters: ArrayLike | None = None, *, seed: int = 0
) -> Paired:
    """Compare two sides on cases drawn with unequal probabilities; `weights` are their inverses.

    The difference is Σw(b-a) / Σw: the difference estimator of survey sampling, with the first side as the known value
    of each case. Its t interval is that of a ratio between clusters, without a correction for the fraction of cases
    drawn: it is about the population that all cases are a sample of, like that of `compare_paired`. It is widened for
    rare changes. Särndal, Swensson & Wretman (1992), Model Assisted Survey Sampling, 6.3; Zrnic & Candès (2024),
    arXiv:2403.03208.
    """
    first, second = paired_vectors(before, after)
    paired = compare_paired(first, second, clusters, seed=seed, test=False)
    scores = cluster_sums(first, clusters) / cluster_sums(np.ones_like(first), clusters)
    extremes = -possible_change(scores), possible_change(1 - scores)
    estimate = clustered_mean(second - first, clusters, (-1.0, 1.0), extremes, weights)
    shares = weights / weights.sum()
    error = estimate.standard_error
    noise = None if error is None else Noise(error**2 * len(first), loss=-extremes[0])
    return paired._replace(
        mean_before=float((shares * first).sum()),
        mean_after=float((shares * second).sum()),
        mean_delta=estimate.value,
        standard_error=error,
        ci95=estimate.ci95,
        p_value=t_test(estimate),
        test="weighted t",
        minimum_detectable_difference=None if noise is None else detectable_difference(noise, len(first)),
        exact=False,
        variance_slope=estimate.variance_slope,
    )
