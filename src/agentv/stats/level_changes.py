"""Change points in a series of runs on shared cases, valid however often the series is looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentv.stats.distributions import normal_quantile
from agentv.stats.paired_comparison import compare_paired

LEVEL = 0.05

LIMIT = 6.0
"""The wealth that shows a change.

Ville's inequality would give 20. Of simulated series of 1,000 runs without a change, 4 % ever reach 6; the rest of 5 %
allows for the approximation of z_t with few cases.
"""

SIZES = (0.7, 1.4, 2.8, 5.6)
"""The changes that are bet on, as multiples of the standard error of one run."""

_STEPS = 60
_FURTHEST = 60.0
_AT_ONCE = 0.5
_CLOSE = 1e-9


class RunValues(NamedTuple):
    """The scores of one run: the number of a case for each score, and the cases that errored in all trials."""

    cases: NDArray[Any]
    values: NDArray[Any]
    errors: NDArray[Any]


class LevelChange(NamedTuple):
    """A change point: the first run after it, and both levels over the cases scored before and after it.

    `found_at` is the run after which the change was first reported, `p_value` is valid at any time.
    """

    position: int
    found_at: int
    before: float
    after: float
    cases: int
    p_value: float


def change_points(runs: Sequence[RunValues], clusters: NDArray[Any] | None = None) -> list[LevelChange]:
    """Return the runs at which the level changed, in order; a flat series has one with a probability of at most 5 %.

    Each run is compared with the earlier ones since the last change, case by case (`surprise`). If nothing changes, the
    resulting z_t are independent standard normal values. Against that, gamblers bet on a change by h standard errors at
    run k, which shifts z_t by h·s_kt, s_kt = (k-1) / √(t(t-1)), for t ≥ k:

        wealth = Σ_k 1/(k(k-1)) · mean over ±h of Π_{t≥k} exp(h s_kt z_t - (h s_kt)²/2)

    The expected wealth never exceeds 1, so each new run is a further look without a penalty. A change is shown when the
    wealth reaches `LIMIT` and the interval of the difference, widened for rare values, excludes 0. The series then
    restarts at the k that contributes most to the wealth.

    Vovk, Gammerman & Shafer (2005), Algorithmic Learning in a Random World, chapter 7; Shin, Ramdas & Rinaldo (2024),
    E-detectors, New England Journal of Statistics in Data Science 2:229.
    """
    changes = []
    start, look = 0, 1
    wealth = Wealth()
    while look < len(runs):
        wealth.add(*surprise(runs[start : look + 1], clusters))
        if wealth.total < LIMIT:
            look += 1
            continue
        position = start + wealth.likeliest
        if not _is_confirmed(runs[start:position], runs[position : look + 1], clusters):
            look += 1
            continue
        changes.append((position, look, wealth.total))
        start, look, wealth = position, position + 1, Wealth()
    return [_described(runs, changes, number) for number in range(len(changes))]


def _is_confirmed(before: Sequence[RunValues], after: Sequence[RunValues], clusters: NDArray[Any] | None) -> bool:
    """Return whether the means before and after differ even if rare gains or losses were missed, as in `compare`."""
    first, second, both = _levels(before, after)
    if not len(both):
        return True
    interval = compare_paired(first[both], second[both], None if clusters is None else clusters[both], test=False).ci95
    return interval is not None and (interval[0] > 0 or interval[1] < 0)


class Wealth:
    """The wealth of the gamblers; row k of `_logs` is their log wealth if the level changed at run k + 1."""

    def __init__(self) -> None:
        self._logs: NDArray[Any] = np.empty((0, 2 * len(SIZES)))
        self._stakes = np.array([*SIZES, *(-size for size in SIZES)])
        self.total = 1.0
        self.likeliest = 1

    def add(self, above: float, below: float) -> None:
        """Bet on a run: `above` is the z value for gamblers on a rise, `below` for gamblers on a fall."""
        self._logs = np.vstack([self._logs, np.zeros((1, 2 * len(SIZES)))])
        before = np.arange(1, len(self._logs) + 1)  # k - 1, for a change at run k
        t = len(self._logs) + 1
        stakes = before[:, None] / math.sqrt(t * (t - 1)) * self._stakes
        z = np.where(self._stakes > 0, above, below)
        self._logs += stakes * z - stakes**2 / 2
        wealth = np.exp(np.minimum(self._logs, 700)).mean(axis=1) / (before * (before + 1))
        self.total = float(wealth.sum())
        self.likeliest = int(wealth.argmax()) + 1


def surprise(runs: Sequence[RunValues], clusters: NDArray[Any] | None = None) -> tuple[float, float]:
    """Return how unusual the last run is among all, as standard normal values: a bound for a rise, and one for a fall.

    If nothing changed, any assignment of a case's scores to the runs was equally likely. The statistic is the sum over
    cases of the last run's score minus the case's mean. Its distribution over the assignments is approximated by the
    saddlepoint method. The cases of a cluster are assigned together. If the last run has more errors than the earlier
    ones on average, or fewer, the difference counts as 0 against a rise and as 1 against a fall.

    Barndorff-Nielsen (1986), Biometrika 73:307 (the r* approximation).
    """
    table = _deviations(runs, clusters)
    if table is None:
        return 0.0, 0.0
    rise, fall = _error_bounds(runs)
    low, high = (table.deviate(table.observed + bound) for bound in (rise, fall))
    return low, high


class _Assignments:
    """For each cluster, the deviations from its mean in every trial of every run, and how many are of the last run."""

    def __init__(self, cluster: NDArray[Any], deviation: NDArray[Any], is_last: NDArray[Any]) -> None:
        size = np.bincount(cluster).astype(float)
        draws = np.bincount(cluster, is_last)
        deviation = deviation - (np.bincount(cluster, deviation) / size)[cluster]
        self.observed = float((deviation[is_last] / draws[cluster[is_last]]).sum())
        # Drawing without replacement has a smaller variance than K independent draws.
        shrink = np.sqrt((size - draws) / np.maximum(1.0, size - 1)) / draws
        self._values = deviation * shrink[cluster]
        self._cluster, self._drawn, self._size = cluster, draws, size
        self._deviation = math.sqrt(float((np.bincount(cluster, self._values**2) / size * draws).sum()))
        self._most = self._edge(np.maximum)
        self._least = self._edge(np.minimum)

    def _edge(self, furthest: Any) -> NDArray[Any]:
        edge = np.zeros(len(self._size))
        furthest.at(edge, self._cluster, self._values)
        return edge

    def deviate(self, value: float) -> float:
        """Return the standard normal value that is exceeded as rarely as `value` in a random assignment."""
        if self._deviation <= _CLOSE:
            return 0.0
        sign, edge = (1.0, self._most) if value > 0 else (-1.0, self._least)
        if abs(value) >= abs(float((edge * self._drawn).sum())) * (1 - _CLOSE):
            return sign * self._at_edge(edge)
        if abs(value) < _AT_ONCE * self._deviation:
            return value / self._deviation
        tilt, log, variance = self._tilted(value)
        w = sign * math.sqrt(max(_CLOSE, 2 * (tilt * value - log)))
        u = tilt * math.sqrt(variance)
        return w + math.log(u / w) / w

    def _at_edge(self, edge: NDArray[Any]) -> float:
        """Return the value for an assignment that no other exceeds."""
        at_edge = np.bincount(self._cluster, np.abs(self._values - edge[self._cluster]) <= _CLOSE)
        p = math.exp(float((np.log(at_edge / self._size) * self._drawn).sum()))
        return max(0.0, -normal_quantile(max(p, 1e-300)))

    def _tilted(self, value: float) -> tuple[float, float, float]:
        """Return the tilt at which the mean is `value`, the log of the moment generating function, and the variance."""
        low, high = (0.0, _FURTHEST) if value > 0 else (-_FURTHEST, 0.0)
        tilt = value / self._deviation
        log = variance = 0.0
        for _ in range(_STEPS):
            log, mean, variance = self._moments(tilt / self._deviation)
            off = (mean - value) / self._deviation
            if abs(off) < 1e-6:
                break
            low, high = (low, tilt) if off > 0 else (tilt, high)
            step = tilt - off * self._deviation**2 / max(variance, 1e-300)
            tilt = step if low < step < high else (low + high) / 2
        return tilt / self._deviation, log, max(variance, 1e-300)

    def _moments(self, tilt: float) -> tuple[float, float, float]:
        """Return the cumulant generating function of the sum, and its first two derivatives."""
        powers = tilt * self._values
        top = np.maximum(tilt * self._most, tilt * self._least)
        weights = np.exp(powers - top[self._cluster])
        totals = np.bincount(self._cluster, weights)
        means = np.bincount(self._cluster, weights * self._values) / totals
        squares = np.bincount(self._cluster, weights * self._values**2) / totals
        log = (np.log(totals / self._size) + top) * self._drawn
        return float(log.sum()), float((means * self._drawn).sum()), float(((squares - means**2) * self._drawn).sum())


def _deviations(runs: Sequence[RunValues], clusters: NDArray[Any] | None) -> _Assignments | None:
    """Return the deviations of the cases that the last run shares with earlier ones; None if it shares none."""
    last = len(runs) - 1
    cases = np.concatenate([run.cases for run in runs])
    values = np.concatenate([run.values for run in runs])
    numbers = np.repeat(np.arange(len(runs)), [len(run.cases) for run in runs])
    size = int(cases.max(initial=-1)) + 1
    in_last, counts = np.bincount(runs[last].cases, minlength=size), np.bincount(cases, minlength=size)
    mask = ((in_last > 0) & (counts > in_last))[cases]
    if not mask.any():
        return None
    cases, values, numbers = cases[mask], values[mask], numbers[mask]
    deviations = values - (np.bincount(cases, values, size) / np.maximum(1, np.bincount(cases, minlength=size)))[cases]
    if clusters is None:
        return _Assignments(np.unique(cases, return_inverse=True)[1], deviations, numbers == last)
    # Scores of the same cluster, run and trial are drawn together.
    trials = _occurrences(cases, numbers)
    keys = np.stack([clusters[cases], numbers, trials])
    groups, which = np.unique(keys, axis=1, return_inverse=True)
    sums = np.bincount(which.ravel(), deviations)
    return _Assignments(np.unique(groups[0], return_inverse=True)[1], sums, groups[1] == last)


def _occurrences(cases: NDArray[Any], numbers: NDArray[Any]) -> NDArray[Any]:
    """Return 0 for the first score of a case in a run, 1 for the second, and so on."""
    order = np.lexsort((np.arange(len(cases)), cases, numbers))
    pairs = np.stack([cases[order], numbers[order]])
    starts = np.flatnonzero(np.r_[True, (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)])
    occurrences = np.empty(len(cases), dtype=np.intp)
    occurrences[order] = np.arange(len(cases)) - np.repeat(starts, np.diff(np.r_[starts, len(cases)]))
    return occurrences


def _error_bounds(runs: Sequence[RunValues]) -> tuple[float, float]:
    """Return what the excess of errors in the last run, or in the earlier ones, may subtract from or add to the sum."""
    *earlier, last = runs
    scores = _case_means(earlier)
    lost = scores[last.errors[last.errors < len(scores)]]
    lost = lost[~np.isnan(lost)]
    now = _case_means([last])
    gained = np.concatenate([now[run.errors[run.errors < len(now)]] for run in earlier])
    gained = gained[~np.isnan(gained)]
    excess = len(lost) - len(gained) / len(earlier)
    if excess > 0:
        mean = float(lost.mean())
        return -excess * mean, excess * (1 - mean)
    if excess < 0:
        mean = float(gained.mean())
        return excess * (1 - mean), -excess * mean
    return 0.0, 0.0


def _case_means(runs: Sequence[RunValues]) -> NDArray[Any]:
    """Return the mean score of each case over several runs; NaN for cases without a score."""
    cases = np.concatenate([run.cases for run in runs])
    sums = np.bincount(cases, np.concatenate([run.values for run in runs]))
    with np.errstate(invalid="ignore"):
        means: NDArray[Any] = sums / np.bincount(cases)
    return means


def _levels(before: Sequence[RunValues], after: Sequence[RunValues]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the means of the cases in two parts of a series, and the cases scored in both."""
    first, second = _case_means(before), _case_means(after)
    size = min(len(first), len(second))
    return first, second, np.flatnonzero(~np.isnan(first[:size]) & ~np.isnan(second[:size]))


def _described(runs: Sequence[RunValues], changes: Sequence[tuple[int, int, float]], number: int) -> LevelChange:
    """Return a change with the levels up to the changes before and after it, over the cases scored in both parts."""
    position, look, wealth = changes[number]
    start = changes[number - 1][0] if number else 0
    end = changes[number + 1][0] if number + 1 < len(changes) else len(runs)
    before, after, both = _levels(runs[start:position], runs[position:end])
    return LevelChange(
        position=position,
        found_at=look,
        before=float(before[both].mean()) if len(both) else float(np.nanmean(before)),
        after=float(after[both].mean()) if len(both) else float(np.nanmean(after)),
        cases=len(both),
        p_value=LEVEL * LIMIT / wealth,
    )
