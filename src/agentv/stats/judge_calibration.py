"""Calibrate a judge against human labels: agreement, corrected pass rate, and the most useful next labels.

A stratum is a group of cases whose labelled cases were drawn at random. Labels drawn from all cases form one stratum.
If one verdict was sampled more than another, each verdict is a stratum, and figures are weighted accordingly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agentv.stats.distributions import Z95
from agentv.stats.intervals import wilson

Table = Sequence[Sequence[float]]
"""Counts or proportions: a row for each label of the first rater, a column for each of the second."""

_PADDING = 2.0
"""Pseudo-observations, spread over the cells: a few labels that all agree must not give an interval of zero width."""

_CELL_PADDING = 0.25
"""Pseudo-observations per cell, for the same reason."""

_ROUNDING = 1e-15


class IntervalEstimate(NamedTuple):
    """An estimate with its 95 % interval and the number of observations."""

    value: float
    low: float
    high: float
    n: int


def cohen_kappa(table: Table) -> IntervalEstimate | None:
    """Return the agreement of two raters beyond chance, κ = (p_o - p_e) / (1 - p_e), from a square table of counts.

    p_o is the observed agreement, p_e the agreement expected by chance from how often each rater uses each label. None
    if both raters always use the same label. The interval is that of Fleiss, Cohen and Everitt on Fisher's scale, with
    two pseudo-observations spread over the table: it covers the true value in 95 % of samples of 100 labels, compared
    to 89 to 94 % without them.

    Cohen (1960), Educational and Psychological Measurement 20:37; Fleiss, Cohen & Everitt (1969), Psychological
    Bulletin 72:323.
    """
    n = sum(map(sum, table))
    value = kappa_value(table) if n else None
    if value is None:
        return None
    padding = _PADDING / sum(map(len, table))
    padded = [[count + padding for count in row] for row in table]
    return _fisher_interval(value, padded, slope_moments(kappa_gradient(padded), padded)[1], round(n))


def _fisher_interval(value: float, padded: Table, variance: float, n: int) -> IntervalEstimate:
    """Return the interval of κ on Fisher's scale, around the κ of the padded table. It includes the value itself."""
    middle = kappa_value(padded)
    assert middle is not None
    inside = min(max(middle, -0.9999), 0.9999)
    half = Z95 * math.sqrt(variance) / (1 - inside * inside)
    low, high = math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
    return IntervalEstimate(value, min(low, value), max(high, value), n)


def kappa_value(table: Table) -> float | None:
    """Return κ = (agreement - chance) / (1 - chance); None if chance explains all agreement."""
    agreed, by_chance = _agreements(table)
    return None if by_chance >= 1 - _ROUNDING else (agreed - by_chance) / (1 - by_chance)


def kappa_gradient(table: Table) -> list[list[float]]:
    """Return the derivatives of κ with respect to the proportion of each cell."""
    agreed, by_chance = _agreements(table)
    rows, columns = _margins(_shares(table))
    left = 1 - by_chance
    return [
        [((i == j) * left - (1 - agreed) * (columns[i] + rows[j])) / left**2 for j in range(len(columns))]
        for i in range(len(rows))
    ]


def slope_moments(gradient: Table, table: Table) -> tuple[float, float]:
    """Return the mean slope over the table, and the first-order variance of an estimate with that gradient."""
    n = sum(map(sum, table))
    pairs = [
        (share, slope)
        for shares, slopes in zip(_shares(table), gradient, strict=True)
        for share, slope in zip(shares, slopes, strict=True)
    ]
    mean = math.fsum(share * slope for share, slope in pairs)
    return mean, math.fsum(share * (slope - mean) ** 2 for share, slope in pairs) / n


def _shares(table: Table) -> list[list[float]]:
    n = sum(map(sum, table))
    return [[count / n for count in row] for row in table]


def _margins(shares: Table) -> tuple[list[float], list[float]]:
    return [math.fsum(row) for row in shares], [math.fsum(column) for column in zip(*shares, strict=True)]


def _agreements(table: Table) -> tuple[float, float]:
    """Return the observed agreement, and the agreement expected by chance."""
    shares = _shares(table)
    rows, columns = _margins(shares)
    observed = math.fsum(shares[i][i] for i in range(len(rows)))
    return observed, math.fsum(row * column for row, column in zip(rows, columns, strict=True))


class Labelled(NamedTuple):
    """One labelled case: whether the label is a pass, whether the judge passed it, and the judge's score."""

    label: bool
    passed: bool
    score: float


class Stratum(NamedTuple):
    """A stratum of cases: the number that the judge scored, and the labelled ones among them."""

    name: str
    size: int
    labelled: tuple[Labelled, ...]


def confusion(labelled: Sequence[Labelled]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the confusion table. Rows: the label is pass, fail. Columns: the judge's verdict."""
    counts = Counter((each.label, each.passed) for each in labelled)
    return (counts[True, True], counts[True, False]), (counts[False, True], counts[False, False])


def accuracy(strata: Sequence[Stratum]) -> IntervalEstimate | None:
    """Return the proportion of cases on which judge and label agree, with Wilson's interval."""
    table = _weighted(strata, 0.0)
    if table is None:
        return None
    value, n = table[0][0] + table[1][1], _labels(strata)
    spread = _variance(strata, [[1.0, 0.0], [0.0, 1.0]]) if len(strata) > 1 else 0.0
    bounds = wilson(value, value * (1 - value) / spread if spread > 0 and 0 < value < 1 else n)
    assert bounds is not None
    return IntervalEstimate(value, *bounds, n)


def kappa(strata: Sequence[Stratum]) -> IntervalEstimate | None:
    """Return Cohen's κ between judge and labels; None if it is undefined."""
    if len(strata) == 1:
        return cohen_kappa(confusion(strata[0].labelled))
    table = _weighted(strata, 0.0)
    value = None if table is None else kappa_value(table)
    padded = _weighted(strata, 2 * _CELL_PADDING)
    if value is None or padded is None:
        return None
    return _fisher_interval(value, padded, _variance(strata, kappa_gradient(padded)), _labels(strata))


def rogan_gladen(labelled: Sequence[Labelled], passed: int, cases: int) -> IntervalEstimate | None:
    """Estimate the true pass rate from the judge's, using how often it passes good and bad answers.

    The labelled cases are a random sample of `cases`, of which the judge passed `passed`. The interval is Fieller's: it
    is valid for a poor judge too, and is 0 to 1 if the judge may be guessing. None if the labels are all pass or all
    fail, because one of the two rates is then unknown, and if the judge passes bad answers at least as often as good
    ones.
    """
    (both, missed), (let_through, caught) = confusion(labelled)
    good, bad, n = both + missed, let_through + caught, len(labelled)
    if not good or not bad:
        return None
    exact = both / good + caught / bad - 1
    if exact <= 0:
        return None
    value = min(1.0, max(0.0, (passed / cases - let_through / bad) / exact))
    half = 2 * _CELL_PADDING
    finds, rejects = (both + _CELL_PADDING) / (good + half), (caught + _CELL_PADDING) / (bad + half)
    rest, share, base = cases - n, n / cases, good / n
    others = (passed - both - let_through + _CELL_PADDING) / (rest + half)
    slope = finds + rejects - 1
    # T(θ) = judge's pass rate - [θ·finds + (1 - θ)(1 - rejects)] is 0 at the true θ; the interval is where it can be 0.
    offset = (1 - share) * others + share * (base * finds + (1 - base) * (1 - rejects)) - (1 - rejects)
    of_good, of_bad = finds * (1 - finds) / (good + half), rejects * (1 - rejects) / (bad + half)
    fixed = (1 - share) ** 2 * others * (1 - others) / max(rest, 1) + (share * slope) ** 2 * base * (1 - base) / n
    from_good, from_bad = share * base, 1 - share * (1 - base)
    low, high = _roots(
        slope**2 - Z95**2 * (of_good + of_bad),
        -2 * offset * slope + 2 * Z95**2 * (from_good * of_good + from_bad * of_bad),
        offset**2 - Z95**2 * (fixed + from_good**2 * of_good + from_bad**2 * of_bad),
    )
    return IntervalEstimate(value, *((min(low, value), max(high, value)) if slope > 0 else (0.0, 1.0)), n)


def prediction_powered(strata: Sequence[Stratum], mean_score: float) -> IntervalEstimate | None:
    """Estimate the pass rate by PPI++: the labels' pass rate, corrected by the judge's scores of all cases.

    `mean_score` is the judge's mean over all cases. The better the scores predict the labels, the larger the
    correction; with a poor judge the interval is hardly wider than from labels alone. None if a stratum has no labels.
    """
    cases = sum(stratum.size for stratum in strata)
    if not cases or any(stratum.size and not stratum.labelled for stratum in strata):
        return None
    used = [stratum for stratum in strata if stratum.labelled]
    moments = [_label_moments(stratum.labelled) for stratum in used]
    # The sampling variance factor of each stratum; 0 if every case is labelled.
    factors = [
        (stratum.size / cases) ** 2 * max(0.0, 1 - len(stratum.labelled) / stratum.size) / len(stratum.labelled)
        for stratum in used
    ]
    of_labels, of_scores, shared = (
        math.fsum(factor * each[k] for factor, each in zip(factors, moments, strict=True)) for k in range(3)
    )
    # Limited to 0 to 1, as in the paper: the slope from a few labels is too uncertain.
    power = min(1.0, max(0.0, shared / of_scores)) if of_scores > 0 else 0.0
    labels = math.fsum(s.size / cases * _mean([e.label for e in s.labelled]) for s in used)
    scores = math.fsum(s.size / cases * _mean([e.score for e in s.labelled]) for s in used)
    value = min(1.0, max(0.0, labels + power * (mean_score - scores)))
    variance = max(0.0, of_labels - 2 * power * shared + power**2 * of_scores)
    inside = min(1 - 0.5 / cases, max(0.5 / cases, value))
    own = inside * (1 - inside)
    bounds = wilson(inside, own / (own / cases + variance))
    assert bounds is not None
    return IntervalEstimate(value, min(bounds[0], value), max(bounds[1], value), _labels(strata))


def next_labels(strata: Sequence[Stratum], count: int) -> list[int]:
    """Distribute `count` further labels over the strata so that they narrow the interval most.

    Each label goes to the stratum where it reduces the variance most; strata with fewer than two labels come first.
    """
    total = sum(stratum.size for stratum in strata)
    have = [len(stratum.labelled) for stratum in strata]
    chosen = [0] * len(strata)
    for _ in range(count):
        gains = [
            _gain(stratum, total, n) if n < stratum.size else -1.0 for stratum, n in zip(strata, have, strict=True)
        ]
        best = max(range(len(strata)), key=gains.__getitem__, default=None)
        if best is None or gains[best] < 0:
            break
        have[best] += 1
        chosen[best] += 1
    return chosen


def _gain(stratum: Stratum, total: int, n: int) -> float:
    """Estimate how much one more label reduces the variance."""
    if n < 2:
        return math.inf
    share = (sum(each.label for each in stratum.labelled) + 1) / (len(stratum.labelled) + 2)
    return (stratum.size / total) ** 2 * share * (1 - share) * (1 / n - 1 / (n + 1))


def _label_moments(labelled: Sequence[Labelled]) -> tuple[float, float, float]:
    """Return the variances of labels and scores and their covariance, with one pseudo-observation over the corners."""
    lowest, highest = min(each.score for each in labelled), max(each.score for each in labelled)
    corners = [(label, score, _CELL_PADDING) for label in (0.0, 1.0) for score in (lowest, highest)]
    points = [(float(each.label), each.score, 1.0) for each in labelled] + corners
    weight = math.fsum(w for _, _, w in points)
    label = math.fsum(y * w for y, _, w in points) / weight
    score = math.fsum(f * w for _, f, w in points) / weight
    degrees = weight - 1
    return (
        math.fsum(w * (y - label) ** 2 for y, _, w in points) / degrees,
        math.fsum(w * (f - score) ** 2 for _, f, w in points) / degrees,
        math.fsum(w * (y - label) * (f - score) for y, f, w in points) / degrees,
    )


def _weighted(strata: Sequence[Stratum], padding: float) -> Table | None:
    """Return the confusion table weighted to all cases, as proportions; None if a stratum has no labels."""
    cases = sum(stratum.size for stratum in strata)
    table = [[0.0, 0.0], [0.0, 0.0]]
    for stratum in strata:
        if not stratum.size:
            continue
        if not stratum.labelled:
            return None
        counts = _padded(stratum, padding)
        weight = stratum.size / cases / sum(map(sum, counts))
        for row, column in ((i, j) for i in (0, 1) for j in (0, 1)):
            table[row][column] += weight * counts[row][column]
    return table if cases else None


def _variance(strata: Sequence[Stratum], gradient: Table) -> float:
    """Return the variance of an estimate from the weighted table: within strata and between them."""
    cases = sum(stratum.size for stratum in strata)
    inside, means = 0.0, []
    for stratum in strata:
        if not stratum.labelled:
            continue
        counts = _padded(stratum, 2 * _CELL_PADDING)
        slope, variance = slope_moments(gradient, counts)
        inside += (stratum.size / cases) ** 2 * variance
        means.append((stratum.size / cases, slope))
    middle = math.fsum(weight * slope for weight, slope in means)
    return inside + math.fsum(weight * (slope - middle) ** 2 for weight, slope in means) / cases


def _padded(stratum: Stratum, padding: float) -> list[list[float]]:
    """Return the counts with pseudo-observations in the columns that occur: a stratum may have one verdict only."""
    table = confusion(stratum.labelled)
    occurs = [any(row[column] for row in table) for column in (0, 1)]
    return [[count + padding * occurs[column] for column, count in enumerate(row)] for row in table]


def _roots(square: float, linear: float, constant: float) -> tuple[float, float]:
    """Return the part of [0, 1] where a parabola is at most 0; all of it if the parabola opens downwards."""
    inner = linear**2 - 4 * square * constant
    if square <= 0 or inner < 0:
        return 0.0, 1.0
    root = math.sqrt(inner)
    return max(0.0, (-linear - root) / (2 * square)), min(1.0, (-linear + root) / (2 * square))


def _labels(strata: Sequence[Stratum]) -> int:
    return sum(len(stratum.labelled) for stratum in strata)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
