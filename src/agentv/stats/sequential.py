"""Sequential statistics: e-values and confidence sequences by betting.

An e-value is the wealth of a gambler who starts with 1 and bets against a claim about the mean. If the claim is true,
the wealth ever exceeds 1/α with probability at most α. So a run may stop at any time, and the claims that were not
rejected form an interval that is valid at every moment. Plain Python, because runs use it while they are in progress.
"""

from __future__ import annotations

import math
from array import array
from typing import Literal

from agentv.stats.distributions import Z95, Interval, bisect
from agentv.stats.intervals import CONFIDENCE, ROUNDING_ERROR, MeanAccumulator

ALPHA = 1 - CONFIDENCE

STAKES = tuple(0.75 / 2**step for step in range(9))
"""The stakes of nine gamblers, as fractions of the maximum: large ones suit large effects, small ones small effects."""

_HALVINGS = 18

Side = Literal["above", "below", "narrow"]


class BettingMean:
    """The mean of scores from 0 to 1 that arrive in groups, with an interval that is valid at any time.

    A group (trials of a case, turns of a conversation) has at most `largest` scores and is one bet. Against the claim
    "the mean is m", a group of n scores with sum s has the value y = (s - n·m) / largest. If the claim is true, the
    expectation of y is μ = 0. Nine gamblers bet that the mean is above m, each with its own stake c, and their mean
    wealth is Σ_c Π_t (1 + c·(y_t - μ_t)/(m + μ_t)) / 9. Nine others bet that it is below, with
    Σ_c Π_t (1 - c·(y_t - μ_t)/(1 - m - μ_t)) / 9. The claim is rejected when either reaches 2/α. Each group takes 16
    bytes.

    With a `population`, the groups are drawn from this number of groups without replacement, and the claim is about
    all of them. What was drawn determines what is left: μ_t = -(y_1 + … + y_{t-1}) / (population - t + 1). A group may
    be empty, because all its jobs ended in errors.

    Waudby-Smith & Ramdas (2024), Estimating means of bounded random variables by betting, Journal of the Royal
    Statistical Society B 86:1 (diversified Kelly betting); Waudby-Smith & Ramdas (2020), Confidence sequences for
    sampling without replacement, NeurIPS 33.
    """

    def __init__(
        self, claim: float | None = None, *, largest: int = 1, population: int | None = None, alpha: float = ALPHA
    ) -> None:
        if largest < 1 or not 0 < alpha < 1 or (claim is not None and not 0 < claim < 1):
            raise ValueError("The claim and alpha must be between 0 and 1, and `largest` must be 1 or more")
        self._largest = largest
        self._population = population
        self._limit = 2 / alpha
        self._sums, self._counts = array("d"), array("d")
        self._total = 0.0
        self._scores = 0.0
        self._bets = None if claim is None else (self._bet(claim, 0), self._bet(claim, 1))
        self._decided: Side | None = None

    def _bet(self, claim: float, side: int) -> _Bet:
        return _Bet(claim, side, self._largest, self._population)

    def add(self, total: float, count: int = 1) -> None:
        """Add a group: the sum and the number of its scores."""
        if count > self._largest:
            raise ValueError(f"A group must have at most {self._largest} scores, got {count}")
        if self._population is not None and len(self._sums) >= self._population:
            raise ValueError(f"There are only {self._population} groups to draw from")
        if count < 1 and self._population is None:
            return  # all jobs of the group ended in errors
        if not 0 <= total <= count:
            raise ValueError(f"The sum of {count} scores must be from 0 to {count}, got {total}")
        self._sums.append(total)
        self._counts.append(count)
        self._total += total
        self._scores += count
        if self._bets is not None and self._decided is None:
            above, below = (bet.add(total, count) for bet in self._bets)
            self._decided = "above" if above >= self._limit else "below" if below >= self._limit else None

    @property
    def groups(self) -> int:
        """The number of groups that are not empty."""
        return sum(1 for count in self._counts if count)

    @property
    def n(self) -> int:
        """The number of scores."""
        return int(self._scores)

    @property
    def mean(self) -> float | None:
        """The mean; None without scores."""
        return self._total / self._scores if self._scores else None

    @property
    def e_value(self) -> float:
        """The evidence against the claim, from both sides in equal parts; it is frozen once the claim is decided."""
        if self._bets is None:
            raise ValueError("There is no claim to test")
        return (self._bets[0].wealth + self._bets[1].wealth) / 2

    @property
    def decided(self) -> Side | None:
        """The side of the claim that the mean is on, once known; a decision is never revised."""
        return self._decided

    @property
    def interval(self) -> Interval:
        """The 95 % interval: the claims that have not been rejected at any time so far."""
        low = self._edge(0) if self._total > 0 else 0.0
        high = self._edge(1) if self._total < self._scores else 1.0
        mean = self.mean if self.mean is not None else 0.5
        return min(low, mean), max(high, mean)

    @property
    def fixed_interval(self) -> Interval | None:
        """The 95 % interval of a mean that was not watched, or of all groups there are; narrower than `interval`."""
        mean = MeanAccumulator()
        for cluster, (total, count) in enumerate(zip(self._sums, self._counts, strict=True)):
            for _ in range(int(count)):
                mean.add(total / count, cluster)  # only sums are stored, so the scores of a group count as equal
        return mean.ci95

    def _edge(self, side: int) -> float:
        """Return one end of the interval, by bisection: wealth is monotonic in the claim."""
        ends = (0.0, 1.0) if side == 0 else (1.0, 0.0)
        return bisect(lambda claim: self._is_rejected(claim, side), *ends, steps=_HALVINGS)[0]

    def _is_rejected(self, claim: float, side: int) -> bool:
        """Return whether the bets on one side of a claim rejected it at any time so far."""
        bet, limit = self._bet(claim, side), self._limit
        return any(bet.add(total, count) >= limit for total, count in zip(self._sums, self._counts, strict=True))


class NarrowingMean(BettingMean):
    """A mean that is decided when all claims further away than `half_width` are rejected, at any time so far.

    That is checked after each twentieth more groups, and not before an interval of a known sample size would be narrow
    enough, because it takes time in proportion to the groups.
    """

    def __init__(self, half_width: float, *, largest: int = 1, population: int | None = None) -> None:
        super().__init__(largest=largest, population=population)
        self._half_width, self._next, self._squares = half_width, 2.0, 0.0

    def add(self, total: float, count: int = 1) -> None:
        """Add a group: the sum and the number of its scores."""
        super().add(total, count)
        self._squares += total * total
        groups = len(self._sums)
        if self._decided is not None or groups < self._next:
            return
        self._next = groups * 1.05
        if self._is_possible(groups):
            mean = self._total / self._scores
            low, high = mean - self._half_width, mean + self._half_width
            if (low <= 0 or self._is_rejected(low, 0)) and (high >= 1 or self._is_rejected(high, 1)):
                self._decided = "narrow"

    def _is_possible(self, groups: int) -> bool:
        """Return whether an interval for this number of groups alone would be narrow enough."""
        if not self._scores:
            return False
        size = self._scores / groups
        variance = max(0.0, self._squares / groups - (self._total / groups) ** 2)
        left = 1.0 if self._population is None else 1 - groups / self._population
        return Z95 * math.sqrt(variance * max(0.0, left) / groups) / size <= self._half_width


class _Bet:
    """The gamblers on one side of a claim: side 0 bets that the mean is above it, side 1 below."""

    __slots__ = ("_claim", "_largest", "_left", "_past", "_purses", "_sign", "_stakes", "_worst", "wealth")

    def __init__(self, claim: float, side: int, largest: int, population: int | None) -> None:
        self._claim, self._largest, self._left = claim, largest, population
        self._sign, self._worst = (1.0, claim) if side == 0 else (-1.0, 1 - claim)
        self._past = 0.0
        # Small stakes only pay in long runs.
        smallest = 0.0 if population is None else 1 / math.sqrt(population)
        self._stakes = [stake for stake in STAKES if stake >= smallest] or [STAKES[0]]
        self._purses = [1.0] * len(self._stakes)
        self.wealth = 1.0

    def add(self, total: float, count: float) -> float:
        value = self._sign * (total - count * self._claim) / self._largest
        expected = 0.0
        if self._left is not None:
            expected = -self._past / self._left
            self._left -= 1
        self._past += value
        # Scaled so that the largest possible loss of a group is 1.
        most_lost = self._worst + expected
        if most_lost <= ROUNDING_ERROR:
            # Even if all groups that are left had the lowest value, the claim would be wrong. Or it is exactly right.
            gain = 0.0 if value - expected <= ROUNDING_ERROR and most_lost >= -ROUNDING_ERROR else math.inf
        else:
            gain = (value - expected) / most_lost
        self._purses = [purse * (1 + stake * gain) for purse, stake in zip(self._purses, self._stakes, strict=True)]
        self.wealth = sum(self._purses) / len(self._stakes)
        return self.wealth
