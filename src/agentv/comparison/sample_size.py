"""Estimate how many cases and trials a difference, a margin or a gate needs, from the variance of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.joined_cases import JOIN_HINT, JoinedCases
from agentv.comparison.scores import GroupedCases, RunScores, clusters_of
from agentv.errors import UsageError
from agentv.stats.distributions import Interval, t_quantile
from agentv.stats.intervals import CONFIDENCE, ROUNDING_ERROR, proportion_interval
from agentv.stats.means import cluster_sums, clustered_mean, correlation
from agentv.stats.paired_comparison import certain_difference, possible_change, smallest_step
from agentv.stats.power import (
    CORRELATION,
    POWER,
    Noise,
    cases_for_gate,
    cases_for_margin,
    cases_needed,
    detectable_difference,
    variance_between_runs,
    variance_of_difference,
)

DIFFERENCE = 0.05
"""The difference to plan for unless another is given. Smaller ones rarely matter and need thousands of cases."""

DIFFERENCES = (0.02, DIFFERENCE, 0.1, 0.2)
TRIALS = (1, 2, 3, 5, 10)

FEWEST_CASES = 20
"""The interval of a variance from fewer cases is too short."""

Goal = Literal["difference", "margin", "min_pass_rate", "threshold"]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of a case's difference: between cases, and between trials of one case in each run."""

    cases: int
    variance: float
    """The variance of the given values."""

    variance_ci95: Interval | None
    """Its interval; None with fewer than 20 cases."""

    between: float
    """Between cases; without two trials of a case also within."""

    within: tuple[float, float] | None
    """Between trials of one case, in each run; None if no case has two trials."""

    design_effect: float
    """The factor by which conversations increase the number of cases."""

    cluster_size: float
    step: float
    """That of `Noise`, for one trial."""

    agreement: float
    """The factor of `step` for several trials."""

    loss: float
    """That of `Noise`."""

    difference: float
    """That of `Noise`."""

    correlation: float
    """Between a case's scores in two runs; assumed if there is one run. The variances are then those of its scores,
    otherwise those of the difference.
    """

    is_measured: bool
    """Whether the correlation was measured."""

    cost_usd: float | None
    asked_once: tuple[str, ...] = ()
    """The runs without repeated trials."""

    def noise(self, trials: int, variance: float | None = None) -> Noise:
        """Return how much a case's difference varies with this number of trials in both runs.

        `variance` replaces the variance of the given values, and scales those between cases and trials.
        """
        before, after = self.within or (0.0, 0.0)
        between, scale = self.between, 1.0
        if variance is not None and self.variance > 0:
            scale = variance / self.variance
        elif variance is not None:
            between = variance
        if self.is_measured:
            once, case_variance = (variance_of_difference(between, before, after, count) for count in (1, trials))
        else:
            once, case_variance = (
                variance_between_runs(between, before, count, self.correlation) for count in (1, trials)
            )
        # What two runs have in common stays, however many trials: the mean of several correlates more.
        common, luck = self.correlation * once, (1 - self.correlation) * case_variance
        step = self.step if trials == 1 else self.step * self.agreement
        is_binary = step == 1 and self.cluster_size == 1
        return Noise(
            variance=scale * case_variance,
            step=step,
            difference=self.difference,
            design_effect=self.design_effect,
            cluster_size=self.cluster_size,
            loss=0.0 if is_binary else self.loss,
            correlation=common / (common + luck) if common > 0 else self.correlation,
        )


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """The number of cases that a goal needs with this number of trials, with its interval and the cost of one run."""

    goal: Goal
    value: float
    """The difference, the margin or the limit of a gate."""

    trials: int
    cases: int | None
    """None if no number is enough, which is also the meaning of None as the end of `cases_ci95`."""

    cases_ci95: tuple[int, int | None] | None
    cost_usd: float | None
    cases_range: tuple[int, int] | None = None
    """For every correlation between two runs, if it is neither measured nor given."""

    observed: float | None = None
    """The mean or pass rate of the run, for a gate."""

    observed_ci95: Interval | None = None

    @classmethod
    def of_gate(cls, goal: Goal, limit: float, observed: float | None, interval: Interval | None) -> Need:
        """Return the need of a gate, before it is sized."""
        return cls(
            goal=goal, value=limit, trials=1, cases=None, cases_ci95=None, cost_usd=None,
            observed=observed, observed_ci95=interval,
        )  # fmt: skip


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Sample sizes by goal and trials. `could_show` is the difference that the given cases can show, by trials.

    `could_show_range` is its range over every correlation between two runs, if that is neither measured nor given.
    """

    spread: Spread
    power: float
    needs: tuple[Need, ...]
    could_show: dict[int, float | None]
    could_show_range: dict[int, tuple[float | None, float | None]] = {}


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to plan for; without differences, margin and gates, several differences.

    `margin` is planned for runs that are equally good; `min_pass_rate` and `threshold` for a gate by interval, if the
    figures of the run are the true ones. `correlation` is that of a case's scores in two runs with one trial each, to
    assume with one run; without it, numbers are ranges over every correlation.
    """

    differences: tuple[float, ...] = ()
    margin: float | None = None
    min_pass_rate: float | None = None
    threshold: float | None = None
    trials: tuple[int, ...] = ()
    power: float = POWER
    correlation: float | None = None


def plan(runs: Sequence[RunScores], options: PlanOptions = PlanOptions()) -> Plan:
    """Plan from one run and an assumed correlation, or from two runs, whose correlation is measured."""
    gates = {"min_pass_rate": options.min_pass_rate, "threshold": options.threshold}
    if len(runs) > 1 and any(limit is not None for limit in gates.values()):
        raise UsageError("A gate is planned from one run, but two were given", hint="Leave one of them out")
    assumed = CORRELATION if options.correlation is None else options.correlation
    spread = _spread_of_two(*runs) if len(runs) == 2 else _spread_of_one(runs[0], assumed)
    is_unknown = len(runs) == 1 and options.correlation is None
    # The effect of more trials is unknown without repeated trials.
    trials = (options.trials or TRIALS) if spread.within is not None else (1,)
    has_goal = options.margin is not None or any(limit is not None for limit in gates.values())
    differences = options.differences or (() if has_goal else DIFFERENCES)
    needs = [_need(spread, "difference", value, count, options.power) for value in differences for count in trials]
    if options.margin is not None:
        needs += [_need(spread, "margin", options.margin, count, options.power) for count in trials]
    needs += _gate_needs(runs[0], spread, options)
    could = {count: detectable_difference(spread.noise(count), spread.cases, options.power) for count in trials}
    result = Plan(spread=spread, power=options.power, needs=tuple(needs), could_show=could)
    return _with_ranges(result, runs[0], options) if is_unknown else result


def _with_ranges(result: Plan, run: RunScores, options: PlanOptions) -> Plan:
    """Add the range of each number over every correlation between two runs, from 1 (no luck) to 0 (only luck)."""
    alike, unlike = (plan([run], msgspec.structs.replace(options, correlation=each)) for each in (1.0, 0.0))
    needs = tuple(
        need
        if need.cases is None or first.cases is None or second.cases is None or need.observed is not None
        else msgspec.structs.replace(need, cases_range=(min(first.cases, need.cases), max(second.cases, need.cases)))
        for need, first, second in zip(result.needs, alike.needs, unlike.needs, strict=True)
    )
    could = {trials: (alike.could_show[trials], unlike.could_show[trials]) for trials in result.could_show}
    return msgspec.structs.replace(result, needs=needs, could_show_range=could)


def _need(spread: Spread, goal: Literal["difference", "margin"], value: float, trials: int, power: float) -> Need:
    """Return what a difference or a margin needs."""
    cases_for: Callable[[Noise], int | None] = (
        partial(cases_needed, value, power=power)
        if goal == "difference"
        else lambda noise: cases_for_margin(value, noise, power)
    )
    cases = cases_for(spread.noise(trials))
    bounds = None
    if spread.variance_ci95 is not None and cases is not None:
        low, high = (cases_for(spread.noise(trials, variance)) for variance in spread.variance_ci95)
        bounds = (min(cases, low or cases), max(cases, high or cases))
    cost = None if spread.cost_usd is None or cases is None else spread.cost_usd * cases * trials
    return Need(goal=goal, value=value, trials=trials, cases=cases, cases_ci95=bounds, cost_usd=cost)


def _gate_needs(run: RunScores, spread: Spread, options: PlanOptions) -> Iterator[Need]:
    """Yield what the gates of `agentv eval --gate-on interval` need, with one trial per case."""
    if options.min_pass_rate is None and options.threshold is None:
        return
    figures = run.run.figures().summary.targets[run.targets[0]]
    if options.min_pass_rate is not None:
        cases_for = partial(cases_for_gate, limit=options.min_pass_rate, power=options.power)
        need = Need.of_gate("min_pass_rate", options.min_pass_rate, figures.pass_rate, figures.pass_rate_ci95)
        yield _sized(need, cases_for, spread)
    if options.threshold is not None:
        variance = None if spread.step == 1 else spread.between + (spread.within or (0.0,))[0]
        cases_for = partial(cases_for_gate, limit=options.threshold, variance=variance, power=options.power)
        need = Need.of_gate("threshold", options.threshold, figures.mean, figures.ci95)
        yield _sized(need, cases_for, spread)


def _sized(need: Need, cases_for: Callable[[float], int | None], spread: Spread) -> Need:
    """Return what a gate needs, if the observed figure is the true one, and for the ends of its interval."""
    if need.observed is None or need.observed_ci95 is None:
        raise UsageError("Cannot plan a gate: the run has no scores")

    def scaled(value: float) -> int | None:
        count = cases_for(value)
        return None if count is None else math.ceil(count * spread.design_effect)

    low, high = need.observed_ci95
    cases, ends = scaled(need.observed), [end for end in map(scaled, (low, high)) if end is not None]
    is_open = low <= need.value <= high  # the true figure may be on the limit, where no number is enough
    bounds = (min([*ends, cases or ends[0]]), None if is_open else max([*ends, cases or ends[0]])) if ends else None
    cost = None if spread.cost_usd is None or cases is None else spread.cost_usd * cases
    return msgspec.structs.replace(need, cases=cases, cases_ci95=bounds, cost_usd=cost)


def _spread_of_one(run: RunScores, assumed: float) -> Spread:
    if len(run.targets) > 1:
        hint = f"Pick one: {run.label}:{run.targets[0]}"
        raise UsageError(f"{run.label} has {len(run.targets)} targets ({', '.join(run.targets)})", hint=hint)
    # Each prompt of a case has its own score; the prompts of a case form a cluster.
    side = GroupedCases(run, (0, 1, 3) if len(run.prompts) > 1 else (0, 1))
    means = side.means(run.scores)
    rows = np.flatnonzero(~np.isnan(means))
    spread = _spread([side], means[rows], clusters_of([side], rows[:, None]))
    return msgspec.structs.replace(spread, correlation=assumed, is_measured=False, difference=0.0)


def _spread_of_two(before: RunScores, after: RunScores) -> Spread:
    joined = JoinedCases(before, after)
    first, second = joined.scores
    if not len(first):
        raise UsageError("The runs have no scored case in common", hint=JOIN_HINT)
    spread = _spread(joined.sides, second - first, joined.clusters)
    return msgspec.structs.replace(spread, correlation=correlation(first, second) or 0.0)


def _spread(sides: Sequence[GroupedCases], values: NDArray[Any], clusters: NDArray[Any] | None) -> Spread:
    """Estimate the spread from a value per case: its mean in one run, or its difference between two."""
    variance, effect = _variance(values, clusters)
    step = smallest_step(*(side.run.scores.arrays()[1] for side in sides))
    noise = [_trial_variance(side) for side in sides]
    within = [value for value, _ in noise if value is not None]
    labels = [side.run.label for side in sides]
    if not variance and not any(within) and step != 1:
        why = f"All scores in {labels[0]} are equal"
        if len(labels) > 1:
            why = f"{labels[1]} differs from {labels[0]} by the same amount in every case"
        hint = "Plan from a run whose scores vary between cases"
        raise UsageError("Cannot estimate a sample size: the scores do not vary", why, hint)
    is_known = len(within) == len(sides)
    first = sides[0].means(sides[0].run.scores)
    _, costs = sides[-1].run.cost.arrays()
    return Spread(
        cases=len(values),
        variance=variance,
        variance_ci95=_variance_interval(values, clusters, is_difference=len(sides) > 1),
        between=max(0.0, variance - sum(value * share for value, share in noise if value)) if is_known else variance,
        within=(within[0], within[-1]) if is_known else None,
        design_effect=effect,
        cluster_size=1.0 if clusters is None else len(values) / len(np.unique(clusters)),
        step=step,
        agreement=min(_agreement(side) for side in sides) ** 2,
        loss=possible_change(first[~np.isnan(first)]),
        difference=certain_difference(float(values.mean()), math.sqrt(variance * effect / len(values))),
        correlation=0.0,
        is_measured=True,
        cost_usd=float(costs.mean()) if len(costs) else None,
        asked_once=tuple(label for label, (value, _) in zip(labels, noise, strict=True) if value is None),
    )


def _agreement(side: GroupedCases) -> float:
    """Return the fraction of cases whose trials all have the same score."""
    cases, values = side.run.scores.arrays()
    index = side.groups[cases]
    means = side.means(side.run.scores)
    differs = np.bincount(index, np.abs(values - means[index]) > ROUNDING_ERROR, len(means)) > 0
    return float(1 - differs[~np.isnan(means)].mean())


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
    plain, clustered = clustered_mean(values), clustered_mean(values, clusters)
    assert plain.standard_error is not None
    variance = plain.standard_error**2 * len(values)
    if not variance or clustered.standard_error is None:
        return variance, 1.0
    return variance, max(1.0, (clustered.standard_error / plain.standard_error) ** 2)


def _variance_interval(values: NDArray[Any], clusters: NDArray[Any] | None, is_difference: bool) -> Interval | None:
    """Return a 95 % interval of the variance of values; None with fewer than 20 clusters.

    Scores of 0 and 1 have the variance p(1-p), and their differences the fraction that changed minus the square of the
    mean; the interval comes from that of the proportion. For others, the variance is the mean of squared deviations. On
    the log scale it has a t interval, with one more deviation twice as large as the largest that was seen.
    """
    sizes = cluster_sums(np.ones_like(values), clusters)
    if len(sizes) < FEWEST_CASES:
        return None
    effective = len(values) ** 2 / float(np.square(sizes).sum())
    if np.isin(values, (-1.0, 0.0, 1.0)).all():
        bounds = proportion_interval(float(np.abs(values).mean()), effective)
        assert bounds is not None
        low, high = bounds
        if is_difference:
            square = float(values.mean()) ** 2
            return max(0.0, low - square), high - square
        ends = low * (1 - low), high * (1 - high)
        return min(ends), 0.25 if low < 0.5 < high else max(ends)
    squares = cluster_sums(np.square(values - values.mean()), clusters) / sizes * len(values) / (len(values) - 1)
    if float(squares.max()) <= ROUNDING_ERROR:
        return None
    critical = t_quantile(0.5 + CONFIDENCE / 2, len(squares) - 1)
    limits = []
    for sign, sample in ((-1, squares), (1, np.append(squares, 2 * squares.max()))):
        relative = float(sample.std(ddof=1)) / math.sqrt(len(sample)) / float(sample.mean())
        limits.append(float(sample.mean()) * math.exp(sign * critical * relative))
    return limits[0], limits[1]
