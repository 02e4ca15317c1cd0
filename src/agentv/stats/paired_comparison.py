"""Is the one better than the other, and would one bet on it: paired scores in, an answer with its doubt out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agentv.stats.distributions import row, share
from agentv.stats.intervals import Interval
from agentv.stats.means import Estimate, clustered_mean, correlation, t_test
from agentv.stats.paired import mcnemar_exact, share_difference, sign_flip_test
from agentv.stats.power import minimum_detectable_difference
from agentv.stats.sequential import BettingMean

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


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
    if estimate.clusters == estimate.n and _binary(first) and _binary(second):
        return _of_shares(first, second, estimate, seed)
    flips = sign_flip_test(delta, clusters, seed=seed) if test and estimate.ci95 is not None else None
    error = estimate.standard_error
    return Paired(
        n=estimate.n,
        clusters=estimate.clusters,
        mean_before=float(first.mean()),
        mean_after=float(second.mean()),
        mean_delta=estimate.value,
        standard_error=error,
        ci95=estimate.ci95,
        p_value=flips.p_value if flips else t_test(estimate),
        test="sign flips" if flips else "none",
        minimum_detectable_difference=min(1.0, minimum_detectable_difference(error, estimate.degrees))
        if error
        else None,
        correlation=correlation(first, second),
        resamples=flips.resamples if flips else None,
        exact=flips.exact if flips else False,
        seed=seed,
    )


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


def _of_shares(first: NDArray[Any], second: NDArray[Any], estimate: Estimate, seed: int) -> Paired:
    wins, losses, n = int((second > first).sum()), int((second < first).sum()), len(first)
    # Where nothing changed the error is 0 and says nothing; as if one case had changed, it is 1/n.
    error = estimate.standard_error or 1 / n
    normal = minimum_detectable_difference(error, max(1, n - 1))
    return Paired(
        n=n,
        clusters=n,
        mean_before=float(first.mean()),
        mean_after=float(second.mean()),
        mean_delta=estimate.value,
        standard_error=estimate.standard_error,
        ci95=share_difference(wins, losses, n),
        p_value=mcnemar_exact(wins, losses),
        test="exact McNemar",
        minimum_detectable_difference=min(1.0, normal),
        correlation=correlation(first, second),
        resamples=None,
        exact=True,
        seed=seed,
    )


def _binary(scores: NDArray[Any]) -> bool:
    return bool(((scores == 0) | (scores == 1)).all())
