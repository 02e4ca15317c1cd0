"""Sequential statistics: e-values and confidence sequences by betting.

An e-value is the wealth of a gambler who starts with 1 and bets against a claim about the mean. If the claim is true,
the wealth ever exceeds 1/α with probability at most α. So a run may stop at any time, and the claims that were not
rejected form an interval that is valid at every moment. Plain Python, because runs use it while they are in progress.
"""

from __future__ import annotations

from array import array
from typing import Literal

from agentv.stats.distributions import Interval, bisect
from agentv.stats.intervals import CONFIDENCE

ALPHA = 1 - CONFIDENCE

STAKES = tuple(0.75 / 2**step for step in range(9))
"""The stakes of nine gamblers, as fractions of the maximum: large ones suit large effects, small ones small effects."""

_HALVINGS = 18

Side = Literal["above", "below"]


class BettingMean:
    """The mean of scores from 0 to 1 that arrive in groups, with an interval that is valid at any time.

    A group (trials of a case, turns of a conversation) has at most `largest` scores and is one bet. Against the claim
    "the mean is m", a group of n scores with sum s has the value z = (s - n·m) / largest, whose expectation is 0 if the
    claim is true. Nine gamblers bet that the mean is above m, each with its own stake c, and their mean wealth is
    Σ_c Π_t (1 + c·z_t/m) / 9. Nine others bet that it is below, with Σ_c Π_t (1 - c·z_t/(1-m)) / 9. The claim is
    rejected when either reaches 2/α. Each group takes 16 bytes.

    Waudby-Smith & Ramdas (2024), Estimating means of bounded random variables by betting, Journal of the Royal
    Statistical Society B 86:1 (diversified Kelly betting).
    """

    def __init__(self, claim: float | None = None, *, largest: int = 1, alpha: float = ALPHA) -> None:
        if largest < 1 or not 0 < alpha < 1 or (claim is not None and not 0 < claim < 1):
            raise ValueError("The claim and alpha must be between 0 and 1, and `largest` must be 1 or more")
        self._largest = largest
        self._limit = 2 / alpha
        self._sums, self._counts = array("d"), array("d")
        self._total = 0.0
        self._scores = 0.0
        self._bets = None if claim is None else (_Bet(claim, 0, largest), _Bet(claim, 1, largest))
        self._decided: Side | None = None

    def add(self, total: float, count: int = 1) -> None:
        """Add a group: the sum and the number of its scores."""
        if count > self._largest:
            raise ValueError(f"A group must have at most {self._largest} scores, got {count}")
        if count < 1:
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
        """The number of groups."""
        return len(self._sums)

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

    def _edge(self, side: int) -> float:
        """Return one end of the interval, by bisection: wealth is monotonic in the claim."""
        ends = (0.0, 1.0) if side == 0 else (1.0, 0.0)

        def is_refused(claim: float) -> bool:
            bet, limit = _Bet(claim, side, self._largest), self._limit
            return any(bet.add(total, count) >= limit for total, count in zip(self._sums, self._counts, strict=True))

        return bisect(is_refused, *ends, steps=_HALVINGS)[0]


class _Bet:
    """The gamblers on one side of a claim: side 0 bets that the mean is above it, side 1 below."""

    __slots__ = ("_claim", "_purses", "_stake_per_score", "wealth")

    def __init__(self, claim: float, side: int, largest: int) -> None:
        self._claim = claim
        # Scaled so that the largest possible loss of a group is 1.
        self._stake_per_score = 1 / (claim * largest) if side == 0 else -1 / ((1 - claim) * largest)
        self._purses = [1.0] * len(STAKES)
        self.wealth = 1.0

    def add(self, total: float, count: float) -> float:
        gain = (total - count * self._claim) * self._stake_per_score
        self._purses = [purse * (1 + stake * gain) for purse, stake in zip(self._purses, STAKES, strict=True)]
        self.wealth = sum(self._purses) / len(STAKES)
        return self.wealth
