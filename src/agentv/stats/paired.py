"""Tests of paired scores: exact McNemar, sign flips of clusters, the score interval of a difference of shares."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentv.stats.distributions import Z95, binomial_cdf, binomial_pmf, not_negative, row
from agentv.stats.intervals import Interval
from agentv.stats.means import cluster_sums

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import ArrayLike, NDArray

RESAMPLES = 9_999

_EXACT_UP_TO = 16
_FEW_VALUES = 2_000
_MOST_SIGNS = 200_000_000
_SIGNS_AT_ONCE = 500_000
_FEWEST_RESAMPLES = 1_999


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
    low = _bound(lambda delta: _score(wins, losses, n, delta) - critical, -1.0, estimate)
    high = _bound(lambda delta: -_score(wins, losses, n, delta) - critical, 1.0, estimate)
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
        ways = _all_sums(sums)
        return SignFlips(float(np.mean(np.abs(ways) >= reached)), len(ways), True, seed)
    chance = np.random.default_rng(seed)
    values, counts = np.unique(sums, return_counts=True)
    if len(values) <= _FEW_VALUES:
        drawn = _from_counts(values, counts, resamples, chance)
    else:
        resamples = min(resamples, max(_FEWEST_RESAMPLES, _MOST_SIGNS // len(sums)))
        drawn = _from_bits(sums, resamples, chance)
    beyond = int(np.count_nonzero(np.abs(drawn) >= reached))
    return SignFlips((1 + beyond) / (1 + resamples), resamples, False, seed)


def _all_sums(sums: NDArray[Any]) -> NDArray[Any]:
    ways = np.zeros(1)
    for value in sums:
        ways = np.concatenate([ways + value, ways - value])
    return ways


def _from_counts(values: NDArray[Any], counts: NDArray[Any], resamples: int, chance: Generator) -> NDArray[Any]:
    """Of k equal values a binomial number keeps its sign: scores of few different values cost next to nothing."""
    total = np.zeros(resamples)
    for value, count in zip(values, counts, strict=True):
        total += value * (2.0 * chance.binomial(count, 0.5, resamples) - count)
    return total


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


def _bound(excess: Any, outside: float, inside: float) -> float:
    """Where the statistic comes down to its critical value, between a place outside and the estimate."""
    if excess(outside) <= 0:
        return outside
    for _ in range(200):
        middle = (outside + inside) / 2
        if middle in (outside, inside):
            break
        if excess(middle) > 0:
            outside = middle
        else:
            inside = middle
    return inside
