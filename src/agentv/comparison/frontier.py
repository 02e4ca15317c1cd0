"""Cost and quality of three or more runs on the same cases: cost per passed case, and which runs are dominated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.joined_cases import name_parts, shared_by_all
from agentv.comparison.sampling.drawn_cases import weights_of
from agentv.comparison.scores import GroupedCases, RunScores, clusters_of
from agentv.stats.distributions import Interval
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.means import clustered_mean, ratio_of_means
from agentv.stats.power import FEWEST_CHANGES

FEWEST_RUNS = 3


class CostPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A run on the plane of cost and quality, over the cases with a score and a cost in all runs.

    `cost_per_pass` is the cost of all attempts divided by the number that passed; an error costs money and does not
    pass. `dominated_by` is the place of a run that costs no more and scores no less, of those the best; None on the
    frontier. With `is_shown` the 95 % intervals of both differences agree.
    """

    label: str
    mean: float
    mean_ci95: Interval | None
    cost: float
    cost_ci95: Interval | None
    cost_per_pass: float | None
    cost_per_pass_ci95: Interval | None
    dominated_by: int | None = None
    is_shown: bool = False


class _Plane:
    """The scores, costs and passes of all runs by case."""

    def __init__(self, sides: Sequence[GroupedCases], rows: NDArray[Any]) -> None:
        columns = [(side, rows[:, place]) for place, side in enumerate(sides)]
        scores, costs, passes, failures = (
            np.array([side.means(getattr(side.run, name))[column] for side, column in columns])
            for name in ("scores", "cost", "passes", "failures")
        )
        there = ~np.isnan(scores).any(axis=0) & ~np.isnan(costs).any(axis=0)
        self.scores, self.costs = scores[:, there], costs[:, there]
        self.passes = (passes * (1 - failures))[:, there]
        self.clusters, self.weights = clusters_of(sides, rows[there]), weights_of(sides, rows[there])

    def point(self, label: str, place: int) -> CostPoint:
        mean, clusters, weights = MeanAccumulator(), self.clusters, self.weights
        for case, score in enumerate(self.scores[place].tolist()):
            if weights is not None:
                mean.add(score, case if clusters is None else int(clusters[case]), float(weights[case]))
            else:
                mean.add(score, None if clusters is None else int(clusters[case]))
        cost = clustered_mean(self.costs[place], clusters, weights=weights)
        ratio = ratio_of_means(self.costs[place], self.passes[place], clusters, weights)
        better = self._best_dominator(place)
        return CostPoint(
            label=label,
            mean=mean.mean or 0.0,
            mean_ci95=mean.ci95,
            cost=cost.value,
            cost_ci95=cost.ci95,
            cost_per_pass=None if ratio is None else ratio[0],
            cost_per_pass_ci95=None if ratio is None else ratio[1],
            dominated_by=better,
            is_shown=better is not None and self._is_shown(better, place),
        )

    def _best_dominator(self, place: int) -> int | None:
        costs, scores = (np.average(each, axis=1, weights=self.weights) for each in (self.costs, self.scores))
        others = [
            other
            for other in range(len(costs))
            if costs[other] <= costs[place]
            and scores[other] >= scores[place]
            and (costs[other] < costs[place] or scores[other] > scores[place])
        ]
        return max(others, key=lambda other: (scores[other], -costs[other]), default=None)

    def _is_shown(self, better: int, place: int) -> bool:
        gains = (self.scores[better] - self.scores[place], self.costs[place] - self.costs[better])
        bounds = [clustered_mean(gain, self.clusters, weights=self.weights).ci95 for gain in gains]
        # Costs that do not vary have no interval.
        always = [len(gain) >= FEWEST_CHANGES and bool((gain >= 0).all()) for gain in gains]
        return all(same or (ci95 is not None and ci95[0] >= 0) for same, ci95 in zip(always, bounds, strict=True))


def cost_frontier(runs: Sequence[RunScores]) -> tuple[CostPoint, ...]:
    """Return the runs with their cost and quality; empty with fewer than three, or without costs of shared cases."""
    if len(runs) < FEWEST_RUNS or not all(len(run.cost) for run in runs):
        return ()
    sides = [GroupedCases(run, name_parts(runs, [])) for run in runs]
    plane = _Plane(sides, shared_by_all(sides)[1])
    if not plane.scores.size:
        return ()
    return tuple(plane.point(run.label, place) for place, run in enumerate(runs))
