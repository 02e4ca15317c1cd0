"""Means over time: betting e-values and confidence sequences while scores come in, and changes in a series of means.

An e-value is what a gambler's 1 has grown to who bets against a claim about the mean; if the claim is true it grows
above 1/α at any time with a chance of at most α. So one may stop whenever it does, and the claims that have not been
refused are an interval that holds at every moment. Plain Python, because runs look at it while they go.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from agentv.stats.distributions import Z95, Interval, crossing, normal_cdf
from agentv.stats.intervals import CONFIDENCE

ALPHA = 1 - CONFIDENCE

STAKES = tuple(0.75 / 2**step for step in range(9))
"""Shares of what could be lost that are staked on every group, a gambler each: some fit large effects, some small."""

_HALVINGS = 18

Side = Literal["above", "below"]


class BettingMean:
    """The mean of scores from 0 to 1 that come in one group after another, watched all the time.

    A group is what belongs together (trials of a case, turns of a conversation), at most `largest` scores; each group
    is one bet. Against the claim "the mean is m", a group with sum s of n scores is worth z = (s - n·m) / largest, of
    which the expectation is 0 if the claim is true. Nine gamblers bet that the mean is above m, each with its own share
    c of what could be lost, and their mean wealth is Σ_c Π_t (1 + c·z_t/m) / 9; nine others bet that it is below, with
    Σ_c Π_t (1 - c·z_t/(1-m)) / 9. A claim is refused when either reaches 2/α. Takes 16 bytes a group.

    Waudby-Smith & Ramdas (2024), Estimating means of bounded random variables by betting, Journal of the Royal
    Statistical Society B 86:1 (diversified Kelly betting).
    """

    def __init__(self, claim: float | None = None, *, largest: int = 1, alpha: float = ALPHA) -> None:
        if largest < 1 or not 0 < alpha < 1 or (claim is not None and not 0 < claim < 1):
            raise ValueError("A claim and alpha are between 0 and 1, a group has a score or more")
        self._largest = largest
        self._limit = 2 / alpha
        self._sums, self._counts = array("d"), array("d")
        self._total = 0.0
        self._scores = 0.0
        self._bets = None if claim is None else (_Bet(claim, 0, largest), _Bet(claim, 1, largest))
        self._decided: Side | None = None

    def add(self, total: float, count: int = 1) -> None:
        """One more group: the sum of its scores, and how many they are."""
        if count > self._largest:
            raise ValueError(f"A group has at most {self._largest} scores, got {count}")
        if count < 1:
            return  # all of it ended in errors: nothing is known of it
        if not 0 <= total <= count:
            raise ValueError(f"The sum of {count} scores is from 0 to {count}, got {total}")
        self._sums.append(total)
        self._counts.append(count)
        self._total += total
        self._scores += count
        if self._bets is not None and self._decided is None:
            above, below = (bet.add(total, count) for bet in self._bets)
            self._decided = "above" if above >= self._limit else "below" if below >= self._limit else None

    @property
    def groups(self) -> int:
        """How many groups were taken in."""
        return len(self._sums)

    @property
    def n(self) -> int:
        """How many scores they hold."""
        return int(self._scores)

    @property
    def mean(self) -> float | None:
        """Their mean; None without any."""
        return self._total / self._scores if self._scores else None

    @property
    def e_value(self) -> float:
        """The evidence against the claim, as an even bet on both sides; it stands still once the claim is decided."""
        if self._bets is None:
            raise ValueError("There is no claim to bet against")
        return (self._bets[0].wealth + self._bets[1].wealth) / 2

    @property
    def decided(self) -> Side | None:
        """On which side of the claim the mean is, once that is known; it never changes its mind."""
        return self._decided

    @property
    def interval(self) -> Interval:
        """The claims that no side has become rich by betting against, at any time so far."""
        low = self._edge(0) if self._total > 0 else 0.0
        high = self._edge(1) if self._total < self._scores else 1.0
        mean = self.mean if self.mean is not None else 0.5
        return min(low, mean), max(high, mean)

    def _edge(self, side: int) -> float:
        """Wealth falls (side 0) or grows (side 1) with the claim, so that halving finds where it crosses the limit."""
        ends = (0.0, 1.0) if side == 0 else (1.0, 0.0)

        def is_refused(claim: float) -> bool:
            bet, limit = _Bet(claim, side, self._largest), self._limit
            return any(bet.add(total, count) >= limit for total, count in zip(self._sums, self._counts, strict=True))

        return crossing(is_refused, *ends, steps=_HALVINGS)[0]


class _Bet:
    """Gamblers on one side of one claim: side 0 bets that the mean is above it, side 1 below."""

    __slots__ = ("_claim", "_per_score", "_purses", "wealth")

    def __init__(self, claim: float, side: int, largest: int) -> None:
        self._claim = claim
        # What a group can lose at most is worth 1.
        self._per_score = 1 / (claim * largest) if side == 0 else -1 / ((1 - claim) * largest)
        self._purses = [1.0] * len(STAKES)
        self.wealth = 1.0

    def add(self, total: float, count: float) -> float:
        worth = (total - count * self._claim) * self._per_score
        self._purses = [purse * (1 + stake * worth) for purse, stake in zip(self._purses, STAKES, strict=True)]
        self.wealth = sum(self._purses) / len(STAKES)
        return self.wealth


LEVEL = 0.05


class Point(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


class LevelChange(NamedTuple):
    """The position of the first mean after a change, the level before and after it, and the adjusted p-value."""

    position: int
    before: float
    after: float
    p_value: float


def change_points(points: Sequence[Point], level: float = LEVEL) -> list[LevelChange]:
    """The changes in a series, in its order; none where it is too short or too noisy to tell.

    The means m_i have standard errors s_i, taken from their 95 % intervals. A split before position k compares the
    means of both sides, weighted by 1 / s_i²:

        z_k = |m_left - m_right| / sqrt(1 / W_left + 1 / W_right),    W = sum of weights

    The largest z of a segment of n means is tested at n - 1 times its p-value (Bonferroni), so that a series without a
    change is split in at most 5 % of all cases. Found splits are kept and both sides searched again (binary
    segmentation: Scott and Knott 1974, Vostrikova 1981). Runs on the same cases differ by less than their intervals
    say, so that the test errs on the side of silence; two runs are compared case by case with a paired test instead.
    """
    means = [point.mean for point in points]
    # An interval without width would outweigh all others; scores that never differ say little of how sure they are.
    weights = [1 / max((point.high - point.low) / (2 * Z95), 1e-6) ** 2 for point in points]
    found: dict[int, float] = {}
    _search(means, weights, 0, level, found)
    bounds = [0, *sorted(found), len(points)]
    levels = [_mean(means[start:end], weights[start:end]) for start, end in pairwise(bounds) if end > start]
    return [
        LevelChange(position, levels[index], levels[index + 1], found[position])
        for index, position in enumerate(sorted(found))
    ]


def _search(
    means: Sequence[float], weights: Sequence[float], offset: int, level: float, found: dict[int, float]
) -> None:
    if len(means) < 2:
        return
    distance, split = max((_distance(means, weights, split), -split) for split in range(1, len(means)))
    p_value = min(1.0, (len(means) - 1) * 2 * (1 - normal_cdf(distance)))
    if p_value > level:
        return
    split = -split
    found[offset + split] = p_value
    _search(means[:split], weights[:split], offset, level, found)
    _search(means[split:], weights[split:], offset + split, level, found)


def _distance(means: Sequence[float], weights: Sequence[float], split: int) -> float:
    before, after = _mean(means[:split], weights[:split]), _mean(means[split:], weights[split:])
    return abs(before - after) / math.sqrt(1 / sum(weights[:split]) + 1 / sum(weights[split:]))


def _mean(means: Sequence[float], weights: Sequence[float]) -> float:
    return sum(mean * weight for mean, weight in zip(means, weights, strict=True)) / sum(weights)
