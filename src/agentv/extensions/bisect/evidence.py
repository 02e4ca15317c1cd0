"""Evidence that one set of commits scores lower than another, valid however often it is looked at.

Each case gives a difference between two sides. If both sides answer alike, the differences have mean 0, whatever the
case, and a gambler who bets on positive differences does not gain on average: the wealth reaches 1/α with probability
at most α, at any time. The wealth is therefore evidence (an e-value), and min(1, 1/wealth) is a p-value.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

CaseTrial = tuple[str, str, int]
"""The path of the dataset below the root, the id of the case, and the trial."""

Answers = Mapping[CaseTrial, float | None]
"""The score of each answer of one commit; None for an error."""

Unit = Sequence[CaseTrial]
"""Cases that belong together: one case, or those of a conversation."""

STAKES = (0.9, 0.5, 0.25, 0.1)
"""The stakes of four gamblers who share the initial wealth: large ones suit large effects."""


class Evidence:
    """The wealth of gamblers who bet that differences are positive. A unit of several cases is one bet.

    Σ_c Π_t (1 + c·d_t) / 4, where d_t is the sum of the differences of a unit divided by the largest number of cases in
    a unit. Waudby-Smith & Ramdas (2024), Journal of the Royal Statistical Society B 86:1.
    """

    def __init__(self, largest: int = 1) -> None:
        self._largest = largest
        self._logs = [0.0] * len(STAKES)
        self.peak = 0.0
        """The logarithm of the largest wealth so far."""

    def add(self, differences: Iterable[float]) -> None:
        """Bet on a unit. Differences are from -1 to 1."""
        if gain := sum(differences) / self._largest:
            self._logs = [log + math.log1p(stake * gain) for log, stake in zip(self._logs, STAKES, strict=True)]
            highest = max(self._logs)
            wealth = highest + math.log(sum(math.exp(log - highest) for log in self._logs) / len(STAKES))
            self.peak = max(self.peak, wealth)

    @property
    def p_value(self) -> float:
        """A p-value that is valid at any time."""
        return math.exp(-self.peak)


def evidence_that_lower(higher: Sequence[Answers], lower: Sequence[Answers], units: Sequence[Unit]) -> Evidence:
    """Return the evidence that the commits `lower` score lower than the commits `higher`, from shared cases."""
    evidence = Evidence(max(map(len, units), default=1))
    for unit in units:
        pairs = (
            difference([side.get(key, ...) for side in higher], [side.get(key, ...) for side in lower]) for key in unit
        )
        evidence.add(pair for pair in pairs if pair is not None)
    return evidence


def difference(higher: Iterable[object], lower: Iterable[object]) -> float | None:
    """Return the mean of `higher` minus that of `lower` for one case; None without information.

    `...` is an answer that does not exist. If one side has only errors and the other has none, the errors count against
    the claim that `lower` is lower. If both sides have errors, the case is left out.
    """
    above, below = ([answer for answer in side if answer is not ...] for side in (higher, lower))
    if not above or not below:
        return None
    scores_above, scores_below = ([answer for answer in side if isinstance(answer, float)] for side in (above, below))
    has_scores = bool(scores_above and scores_below)
    if not has_scores and len(scores_above) < len(above) and len(scores_below) < len(below):
        return None
    return _mean(scores_above or [0.0]) - _mean(scores_below or [1.0])


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)
