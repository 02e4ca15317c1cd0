"""Estimate how many cases and trials are needed to detect a difference, from the variance of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from agentv.comparison.run_comparison import JOIN_HINT, JoinedCases
from agentv.comparison.scores import GroupedCases, RunScores, clusters_of
from agentv.errors import UsageError
from agentv.stats.intervals import ROUNDING_ERROR
from agentv.stats.means import clustered_mean
from agentv.stats.power import (
    CORRELATION,
    POWER,
    Noise,
    cases_needed,
    detectable_difference,
    variance_between_runs,
    variance_of_difference,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


DIFFERENCES = (0.01, 0.02, 0.05, 0.1)
TRIALS = (1, 2, 3, 5, 10)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of a case's difference: between cases, and between trials of one case in each run.

    `within` is None if no case has two trials; `between` then includes both. `asked_once` names the runs without
    repeated trials. `design_effect` is the factor by which conversations increase the number of cases. With one run,
    `correlation` is the assumed one, and `between` the variance of its case means; with two runs, it is None, and
    `between` the variance of the difference. `step` and `difference` are explained in `Noise`.
    """

    cases: int
    between: float
    within: tuple[float, float] | None
    design_effect: float
    cluster_size: float
    step: float
    difference: float
    correlation: float | None
    cost_usd: float | None
    asked_once: tuple[str, ...] = ()

    def noise(self, trials: int) -> Noise:
        """Return how much a case's difference varies with this number of trials in both runs."""
        before, after = self.within or (0.0, 0.0)
        if self.correlation is None:
            variance = variance_of_difference(self.between, before, after, trials)
        else:
            variance = variance_between_runs(self.between, before, trials, self.correlation)
        return Noise(variance, self.step, self.difference, self.design_effect, self.cluster_size)


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """The number of cases needed to detect a difference with this number of trials, and the cost of one run."""

    difference: float
    trials: int
    cases: int
    cost_usd: float | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Sample sizes by difference and trials. `could_show` is the difference the given cases can detect, by trials."""

    spread: Spread
    power: float
    needs: tuple[Need, ...]
    could_show: dict[int, float | None]


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The power, and the correlation of a case's scores between two runs that is assumed with one run."""

    power: float = POWER
    correlation: float = CORRELATION


def plan(
    runs: Sequence[RunScores],
    differences: Sequence[float] = DIFFERENCES,
    trials: Sequence[int] = TRIALS,
    options: PlanOptions = PlanOptions(),
) -> Plan:
    """Plan from one run and an assumed correlation, or from two runs, whose correlation is measured."""
    power = options.power
    spread = _spread_of_two(*runs) if len(runs) == 2 else _spread_of_one(runs[0], options.correlation)
    # The effect of more trials is unknown without repeated trials.
    known = tuple(trials) if spread.within is not None else (1,)
    needs = []
    for difference in differences:
        for count in known:
            cases = cases_needed(difference, spread.noise(count), power)
            cost = None if spread.cost_usd is None else spread.cost_usd * cases * count
            needs.append(Need(difference=difference, trials=count, cases=cases, cost_usd=cost))
    could = {count: detectable_difference(spread.noise(count), spread.cases, power) for count in known}
    return Plan(spread=spread, power=power, needs=tuple(needs), could_show=could)


def _spread_of_one(run: RunScores, correlation: float) -> Spread:
    if len(run.targets) > 1:
        hint = f"Pick one: {run.label}:{run.targets[0]}"
        raise UsageError(f"{run.label} has {len(run.targets)} targets ({', '.join(run.targets)})", hint=hint)
    # Each prompt of a case has its own score; the prompts of a case form a cluster.
    side = GroupedCases(run, (0, 1, 3) if len(run.prompts) > 1 else (0, 1))
    means = side.means(run.scores)
    rows = np.flatnonzero(~np.isnan(means))
    return _spread([side], means[rows], clusters_of([side], rows[:, None]), correlation)


def _spread_of_two(before: RunScores, after: RunScores) -> Spread:
    joined = JoinedCases(before, after)
    first, second = joined.scores
    if not len(first):
        raise UsageError("The runs have no scored case in common", hint=JOIN_HINT)
    return _spread(joined.sides, second - first, joined.clusters, None)


def _spread(
    sides: Sequence[GroupedCases], values: NDArray[Any], clusters: NDArray[Any] | None, correlation: float | None
) -> Spread:
    """Estimate the spread from a value per case: its mean in one run, or its difference between two."""
    variance, effect = _variance(values, clusters)
    noise = [_trial_variance(side) for side in sides]
    within = [each for each, _ in noise if each is not None]
    labels = [side.run.label for side in sides]
    if not variance and not any(within):
        why = f"All scores in {labels[0]} are equal"
        if len(labels) > 1:
            why = f"{labels[1]} differs from {labels[0]} by the same amount in every case"
        hint = "Plan from a run whose scores vary between cases"
        raise UsageError("Cannot estimate a sample size: the scores do not vary", why, hint)
    is_known = len(within) == len(sides)
    between = max(0.0, variance - sum(each * share for each, share in noise if each)) if is_known else variance
    _, costs = sides[-1].run.cost.arrays()
    return Spread(
        cases=len(values),
        between=between,
        within=(within[0], within[-1]) if is_known else None,
        design_effect=effect,
        cluster_size=1.0 if clusters is None else len(values) / len(np.unique(clusters)),
        step=_step(sides),
        difference=float(values.mean()) if correlation is None else 0.0,
        correlation=correlation,
        cost_usd=float(costs.mean()) if len(costs) else None,
        asked_once=tuple(label for label, (each, _) in zip(labels, noise, strict=True) if each is None),
    )


def _step(sides: Sequence[GroupedCases]) -> float:
    """Return the smallest change of a case: 1 if all scores are 0 or 1 and trials agree, 0 if it may be any amount."""
    found = 1.0
    for side in sides:
        values = side.run.scores.arrays()[1]
        if not np.isin(values, (0.0, 1.0)).all():
            return 0.0
        means = side.means(side.run.scores)
        means = means[~np.isnan(means)]
        found = min(found, float(np.isin(means, (0.0, 1.0)).mean()) ** 2)
    return found


def _trial_variance(side: GroupedCases) -> tuple[float | None, float]:
    """Return the variance between trials of a case (None without repeated trials), and the mean of 1 / trials."""
    cases, values = side.run.scores.arrays()
    index = side.groups[cases]
    trials = np.bincount(index)
    trials = trials[trials > 0]
    further = int((trials - 1).sum())
    if not further:
        return None, 1.0
    within = float(np.square(values - side.means(side.run.scores)[index]).sum()) / further
    # Rounding errors are not variance.
    return within if within > ROUNDING_ERROR**2 else 0.0, float((1 / trials).mean())


def _variance(values: NDArray[Any], clusters: NDArray[Any] | None) -> tuple[float, float]:
    """Return the variance between cases, and the design effect of conversations."""
    if len(values) < 2:
        raise UsageError("At least 2 scored cases are needed to estimate the variance")
    within = -1.0, 1.0
    plain, clustered = clustered_mean(values, within=within), clustered_mean(values, clusters, within)
    assert plain.standard_error is not None
    variance = plain.standard_error**2 * len(values)
    if not variance or clustered.standard_error is None:
        return variance, 1.0
    return variance, max(1.0, (clustered.standard_error / plain.standard_error) ** 2)
