"""Compare two sides on the same cases: exact McNemar, sign flips of clusters, score intervals of a difference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from agentv.stats.distributions import Z95, Interval, binomial_cdf, binomial_pmf, crossing, not_negative, row, share
from agentv.stats.means import Estimate, cluster_sums, clustered_mean, correlation, t_test
from agentv.stats.power import minimum_detectable_difference
from agentv.stats.sequential import BettingMean

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import ArrayLike, NDArray


RESAMPLES = 9_999

_EXACT_UP_TO = 16
_FEW_VALUES = 2_000
_MOST_SIGNS = 200_000_000
_SIGNS_AT_ONCE = 500_000
_FEWEST_RESAMPLES = 1_999

Test = Literal["exact McNemar", "sign flips", "e-value", "none"]
Answer = Literal["better", "worse", "no difference shown", "too little to tell"]


class Paired(NamedTuple):
    """The second side against the first, over the same cases. `test` is the one that gave the p-value.

    `minimum_detectable_difference` is what so many cases find four times in five: 1 where not even that is sure, None
    where differences do not vary. `resamples` is how often signs were flipped, from `seed`, or in all ways when
    `exact`.
    """

    n: int
    clusters: int
    mean_before: float
    mean_after: float
    mean_delta: float
    standard_error: float | None
    ci95: Interval | None
    p_value: float | None
    test: Test
    minimum_detectable_difference: float | None
    correlation: float | None
    resamples: int | None
    exact: bool
    seed: int

    @property
    def answer(self) -> Answer:
        """What the interval says: a difference is shown when it leaves 0 out."""
        if self.ci95 is None:
            return "too little to tell"
        low, high = self.ci95
        return "better" if low > 0 else "worse" if high < 0 else "no difference shown"

    @property
    def estimate(self) -> Estimate:
        """The difference as a mean with its error."""
        return Estimate(self.mean_delta, self.standard_error, self.ci95, self.n, self.clusters)


def compare_paired(
    before: ArrayLike, after: ArrayLike, clusters: ArrayLike | None = None, *, seed: int = 0, test: bool = True
) -> Paired:
    """Compares the scores of two sides on the same cases, trials averaged before.

    Scores that are all 0 or 1, each case on its own: Tango's score interval and the exact McNemar test. Any others: the
    clustered t interval and a permutation test that flips the signs of clusters. Without `test`, Student's p-value.
    Differences that are all equal to 0.001, and not of 0 and 1, have the cautious interval of `of_equals`.
    """
    first, second = row(before), row(after)
    if first.shape != second.shape:
        raise ValueError(f"Pairs are needed, got {first.size} and {second.size} scores")
    for side in (first, second):
        share(float(side.min(initial=0.0)))
        share(float(side.max(initial=0.0)))
    delta = second - first
    estimate = clustered_mean(delta, clusters, within=(-1.0, 1.0))
    error = estimate.standard_error
    paired = Paired(
        n=estimate.n,
        clusters=estimate.clusters,
        mean_before=float(first.mean()),
        mean_after=float(second.mean()),
        mean_delta=estimate.value,
        standard_error=error,
        ci95=estimate.ci95,
        p_value=t_test(estimate),
        test="none",
        minimum_detectable_difference=_detectable(error, estimate.degrees) if error else None,
        correlation=correlation(first, second),
        resamples=None,
        exact=False,
        seed=seed,
    )
    if estimate.clusters == estimate.n and all(np.isin(side, (0, 1)).all() for side in (first, second)):
        wins, losses, n = int((delta > 0).sum()), int((delta < 0).sum()), estimate.n
        return paired._replace(
            ci95=share_difference(wins, losses, n),
            p_value=mcnemar_exact(wins, losses),
            test="exact McNemar",
            # Where nothing changed the error is 0 and says nothing; as if one case had changed, it is 1/n.
            minimum_detectable_difference=_detectable(error or 1 / n, max(1, n - 1)),
            exact=True,
        )
    if not test or estimate.ci95 is None:
        return paired
    flips = sign_flip_test(delta, clusters, seed=seed)
    return paired._replace(p_value=flips.p_value, test="sign flips", resamples=flips.resamples, exact=flips.exact)


def _detectable(error: float, degrees: int) -> float:
    return min(1.0, minimum_detectable_difference(error, degrees))


def compare_drawn(paired: Paired, groups: Iterable[tuple[float, int]], largest: int) -> Paired:
    """The same comparison of a run that was stopped early, with an interval that holds at whatever moment.

    `groups` are sums and numbers of differences that belong together, in the order in which they were drawn.
    """
    bet = BettingMean(0.5, largest=largest)
    for total, count in groups:
        bet.add((total + count) / 2, count)  # from [-1, 1] to where bets are
    low, high = bet.interval
    return paired._replace(
        ci95=(2 * low - 1, 2 * high - 1), p_value=min(1.0, 1 / bet.e_value), test="e-value", resamples=None, exact=False
    )


class SignFlips(NamedTuple):
    """A permutation test. `exact`: every way to flip was looked at, and no seed mattered."""

    p_value: float
    resamples: int
    exact: bool
    seed: int


def mcnemar_exact(wins: int, losses: int) -> float:
    """The two-sided p-value of pairs of 0 and 1 in which one side won so often and lost so often; ties say nothing.

    min(1, 2 Σ_{k ≤ min(b,c)} C(b+c, k) / 2^(b+c)). McNemar (1947), Psychometrika 12:153, in its exact form.
    """
    fewer, n = _fewer(wins, losses)
    return min(1.0, 2 * binomial_cdf(fewer, n))


def mcnemar_mid_p(wins: int, losses: int) -> float:
    """The same with half the probability of what was seen: less cautious, and still right in practice.

    Fagerland, Lydersen & Laake (2013), BMC Medical Research Methodology 13:91.
    """
    fewer, n = _fewer(wins, losses)
    return min(1.0, 2 * binomial_cdf(fewer, n) - binomial_pmf(fewer, n))


def _fewer(wins: int, losses: int) -> tuple[int, int]:
    """The smaller of the two, and both together."""
    return int(not_negative(min(wins, losses), "A number of wins or losses")), wins + losses


def share_difference(wins: int, losses: int, n: int, critical: float = Z95) -> Interval:
    """The 95 % score interval of a difference of two shares over n pairs, of which so many were won and lost.

    The values δ that the score test does not refuse: |b - c - nδ| / √(n(2q + δ(1-δ))) ≤ z, where q is the likeliest
    share of losses given δ. Stays inside [-1, 1] and is not empty when every pair is a tie.

    Tango (1998), Statistics in Medicine 17:891.
    """
    if min(wins, losses) < 0 or wins + losses > n or n < 1:
        raise ValueError(f"{wins} wins and {losses} losses do not fit into {n} pairs")
    estimate = (wins - losses) / n
    low, high = (
        # Where the statistic comes down to its critical value, between the end and the estimate.
        end
        if abs(_score(wins, losses, n, end)) <= critical
        else crossing(lambda delta: abs(_score(wins, losses, n, delta)) > critical, end, estimate)[1]
        for end in (-1.0, 1.0)
    )
    return low, high


def sign_flip_test(
    differences: ArrayLike, clusters: ArrayLike | None = None, *, resamples: int = RESAMPLES, seed: int = 0
) -> SignFlips:
    """How often chance alone gives a mean difference as large as this one: signs of whole clusters are flipped.

    p = (1 + #{|d̄*| ≥ |d̄|}) / (1 + B). Up to 16 clusters that differ, all 2^G ways are looked at instead. Of more than
    20,000 different values fewer than 9,999 resamples are drawn, never under 1,999; their number is in the answer.

    Good (2005), Permutation, Parametric and Bootstrap Tests of Hypotheses; Phipson & Smyth (2010), Statistical
    Applications in Genetics and Molecular Biology 9:39.
    """
    found = cluster_sums(row(differences, "Differences"), clusters)
    signed, sums = float(found.sum()), np.abs(found)
    sums = sums[sums > 0]
    # Sums that are equal but for rounding must count as equal.
    reached = abs(signed) - 1e-9 * max(1.0, float(sums.sum()))
    if len(sums) <= _EXACT_UP_TO:
        ways = np.zeros(1)
        for value in sums:
            ways = np.concatenate([ways + value, ways - value])
        return SignFlips(float(np.mean(np.abs(ways) >= reached)), len(ways), True, seed)
    chance = np.random.default_rng(seed)
    values, counts = np.unique(sums, return_counts=True)
    if len(values) <= _FEW_VALUES:
        # Of k equal values a binomial number keeps its sign: scores of few different values cost next to nothing.
        drawn = np.zeros(resamples)
        for value, count in zip(values, counts, strict=True):
            drawn += value * (2.0 * chance.binomial(count, 0.5, resamples) - count)
    else:
        resamples = min(resamples, max(_FEWEST_RESAMPLES, _MOST_SIGNS // len(sums)))
        drawn = _from_bits(sums, resamples, chance)
    beyond = int(np.count_nonzero(np.abs(drawn) >= reached))
    return SignFlips((1 + beyond) / (1 + resamples), resamples, False, seed)


def _from_bits(sums: NDArray[Any], resamples: int, chance: Generator) -> NDArray[Any]:
    """A random bit is a sign. In single precision: what is compared are sums that all differ, not ties."""
    values, total = sums.astype(np.float32), float(sums.sum())
    width = -(-len(sums) // 8)
    at_once = max(1, _SIGNS_AT_ONCE // len(sums))
    parts = []
    for done in range(0, resamples, at_once):
        rows = min(at_once, resamples - done)
        drawn = np.frombuffer(chance.bytes(rows * width), np.uint8).reshape(rows, width)
        kept = np.unpackbits(drawn, axis=1, count=len(sums)).astype(np.float32)
        # Not `@`: threads of a linear algebra library would spend more time on waiting than on this.
        parts.append(2.0 * np.einsum("ij,j->i", kept, values).astype(np.float64) - total)
    return np.concatenate(parts)


def _score(wins: int, losses: int, n: int, delta: float) -> float:
    """Tango's statistic for a true difference of delta."""
    a = 2 * n
    b = -wins - losses + (2 * n - wins + losses) * delta
    c = -losses * delta * (1 - delta)
    q = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = n * (2 * q + delta * (1 - delta))
    off = wins - losses - n * delta
    if variance <= 0:
        return 0.0 if off == 0 else math.copysign(math.inf, off)
    return off / math.sqrt(variance)
