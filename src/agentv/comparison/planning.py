"""Plan how many cases and trials it takes to detect a difference, from the variance of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from agentv.comparison.run_comparison import JoinedCases
from agentv.comparison.scores import GroupedCases, RunScores, clusters_of
from agentv.errors import UsageError
from agentv.stats.intervals import NO_ERROR
from agentv.stats.means import clustered_mean
from agentv.stats.power import ALPHA, POWER, cases_needed, minimum_detectable_difference, variance_of_difference

if TYPE_CHECKING:
    from numpy.typing import NDArray


DIFFERENCES = (0.01, 0.02, 0.05, 0.1)
TRIALS = (1, 2, 3, 5, 10)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of a case's difference: between cases, and between trials of one case in each run.

    `within` is None where no case was asked twice: then trials cannot be told from cases, and `between` holds both.
    `asked_once` names the runs in which none was.
    `design_effect` is how many times as many cases conversations make necessary. `correlation` is None where it was
    measured, from two runs, and otherwise what was taken for granted.
    """

    cases: int
    between: float
    within: tuple[float, float] | None
    design_effect: float
    correlation: float | None
    cost_usd: float | None
    asked_once: tuple[str, ...] = ()

    def variance(self, trials: int) -> float:
        """The variance of a case's difference with this number of trials in both runs."""
        within = self.within or (0.0, 0.0)
        return self.design_effect * variance_of_difference(self.between, *within, trials)


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """The cases that one difference needs with this number of trials. `cost_usd` is that of one run."""

    difference: float
    trials: int
    cases: int
    cost_usd: float | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Needs by difference and trials; `could_show` is the smallest difference that the given cases show, by trials."""

    spread: Spread
    power: float
    alpha: float
    needs: tuple[Need, ...]
    could_show: dict[int, float]


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The chance to detect a difference, the chance of a false alarm, and the assumed correlation of two runs."""

    power: float = POWER
    alpha: float = ALPHA
    correlation: float = 0.5


def plan(
    runs: Sequence[RunScores],
    differences: Sequence[float] = DIFFERENCES,
    trials: Sequence[int] = TRIALS,
    options: PlanOptions = PlanOptions(),
) -> Plan:
    """Plan from one run and an assumed correlation, or from two runs, which show it."""
    power, alpha = options.power, options.alpha
    spread = _of_two(*runs) if len(runs) == 2 else _of_one(runs[0], options.correlation)
    # Without repeated trials nothing is known of what more of them would do.
    known = tuple(trials) if spread.within is not None else (1,)
    needs = []
    for difference in differences:
        for count in known:
            cases = cases_needed(difference, spread.variance(count), alpha=alpha, wanted=power)
            cost = None if spread.cost_usd is None else spread.cost_usd * cases * count
            needs.append(Need(difference=difference, trials=count, cases=cases, cost_usd=cost))
    could = {
        count: min(
            1.0,
            minimum_detectable_difference(
                math.sqrt(spread.variance(count) / spread.cases), spread.cases - 1, alpha=alpha, wanted=power
            ),
        )
        for count in known
    }
    return Plan(spread=spread, power=power, alpha=alpha, needs=tuple(needs), could_show=could)


def _of_one(run: RunScores, correlation: float) -> Spread:
    if len(run.targets) > 1:
        hint = f"Pick one: {run.label}:{run.targets[0]}"
        raise UsageError(f"{run.label} has {len(run.targets)} targets ({', '.join(run.targets)})", hint=hint)
    # Each prompt of a case is a score of its own, and all of them belong together.
    side = GroupedCases(run, (0, 1, 3) if len(run.prompts) > 1 else (0, 1))
    means, within, share = _trials(run, side.groups, len(side.names))
    there = ~np.isnan(means)
    variance, effect = _variance(means[there], clusters_of([side], np.flatnonzero(there)[:, None]))
    if not variance and not within:
        raise _nothing_varies(f"All scores of {run.label} are equal")
    between = variance if within is None else max(0.0, variance - within * share)
    return Spread(
        cases=int(there.sum()),
        between=2 * between * (1 - correlation),
        within=None if within is None else (within, within),
        design_effect=effect,
        correlation=correlation,
        cost_usd=_cost(run),
        asked_once=(run.label,) if within is None else (),
    )


def _of_two(before: RunScores, after: RunScores) -> Spread:
    joined = JoinedCases(before, after)
    first, second = joined.scores
    if not len(first):
        raise UsageError("The runs have no scored case in common", hint="Cases are joined by dataset and id")
    variance, effect = _variance(second - first, joined.clusters)
    noise = [_trials(side.run, side.groups, len(side.names)) for side in joined.sides]
    (_, within_before, share_before), (_, within_after, share_after) = noise
    if not variance and not within_before and not within_after:
        raise _nothing_varies(f"{after.label} differs from {before.label} by the same in every case")
    if within_before is None or within_after is None:
        within, between = None, variance
    else:
        within = (within_before, within_after)
        between = max(0.0, variance - within_before * share_before - within_after * share_after)
    return Spread(
        cases=len(first),
        between=between,
        within=within,
        design_effect=effect,
        correlation=None,
        cost_usd=_cost(after),
        asked_once=tuple(
            run.label for run, (_, within, _) in zip((before, after), noise, strict=True) if within is None
        ),
    )


def _trials(run: RunScores, groups: NDArray[Any], count: int) -> tuple[NDArray[Any], float | None, float]:
    """The mean of each case, the variance between trials of one, and the mean of 1 / trials."""
    means = run.scores.means(groups, count)
    cases, values = run.scores.arrays()
    index = groups[cases]
    asked = np.bincount(index, minlength=count)
    further = int((asked[asked > 0] - 1).sum())
    if not further:
        return means, None, 1.0
    within = float(np.square(values - means[index]).sum()) / further
    # Trials that are equal but for rounding do not vary.
    return means, within if within > NO_ERROR**2 else 0.0, float((1 / asked[asked > 0]).mean())


def _variance(values: NDArray[Any], clusters: NDArray[Any] | None) -> tuple[float, float]:
    """The variance of cases, and the design effect of conversations."""
    if len(values) < 2:
        raise UsageError("Two scored cases or more are needed to see how much they vary")
    within = -1.0, 1.0
    plain, clustered = clustered_mean(values, within=within), clustered_mean(values, clusters, within)
    assert plain.standard_error is not None
    variance = plain.standard_error**2 * len(values)
    if not variance or clustered.standard_error is None:
        return variance, 1.0
    return variance, max(1.0, (clustered.standard_error / plain.standard_error) ** 2)


def _nothing_varies(why: str) -> UsageError:
    hint = "Plan from a run whose scores differ from case to case"
    return UsageError("How many cases are needed cannot be told: nothing varies", why, hint)


def _cost(run: RunScores) -> float | None:
    _, values = run.cost.arrays()
    return float(values.mean()) if len(values) else None
