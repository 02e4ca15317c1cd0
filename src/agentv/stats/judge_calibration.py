"""A judge held against people: how well it agrees, what its pass rate is worth, where the next labels help most. Pure.

A stratum is a group of cases inside which the labelled ones were drawn at random. Labels drawn from all cases are one
stratum. Where more were drawn among those of one verdict, each verdict is a stratum, and everything is weighted back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agentv.stats.distributions import Z95
from agentv.stats.intervals import wilson

Table = Sequence[Sequence[float]]
"""Counts or shares: a row for each answer of the first rater, a column for each of the second."""

_PADDING = 2.0
"""Made-up observations, spread over the cells: without them few labels that all agree would leave no doubt at all."""

_LAST_BITS = 1e-15


class IntervalEstimate(NamedTuple):
    """A figure with its 95 % interval, and of how many observations it is."""

    value: float
    low: float
    high: float
    n: int


def cohen_kappa(table: Table) -> IntervalEstimate | None:
    """The agreement of two raters beyond chance: κ = (p_o - p_e) / (1 - p_e) of a square table of counts.

    p_o is the share of items on which they agree, p_e the share on which two raters with the same habits would agree by
    chance. None when both always give the same one answer, which chance alone explains. The interval is Fleiss, Cohen
    and Everitt's on Fisher's scale, from the table with two observations spread over it: it holds the truth in 95 of
    100 samples of 100 labels, the plain one in 89 to 94.

    Cohen (1960), Educational and Psychological Measurement 20:37; Fleiss, Cohen & Everitt (1969), Psychological
    Bulletin 72:323.
    """
    n = sum(map(sum, table))
    value = kappa_value(table) if n else None
    if value is None:
        return None
    padding = _PADDING / sum(map(len, table))
    padded = [[count + padding for count in row] for row in table]
    middle = kappa_value(padded)
    assert middle is not None
    return around(value, middle, variance(kappa_gradient(padded), padded), round(n))


def around(value: float, middle: float, spread: float, n: int) -> IntervalEstimate:
    """The interval around `middle` on Fisher's scale, which keeps it within -1 and 1; the value itself is in it."""
    inside = min(max(middle, -0.9999), 0.9999)
    half = Z95 * math.sqrt(spread) / (1 - inside * inside)
    low, high = math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
    return IntervalEstimate(value, min(low, value), max(high, value), n)


def kappa_value(table: Table) -> float | None:
    """κ = (agreement - chance) / (1 - chance); None where chance leaves nothing to agree on."""
    agreed, by_chance = _agreements(table)
    return None if by_chance >= 1 - _LAST_BITS else (agreed - by_chance) / (1 - by_chance)


def kappa_gradient(table: Table) -> list[list[float]]:
    """How much κ changes with the share of each cell."""
    agreed, by_chance = _agreements(table)
    rows, columns = _margins(_shares(table))
    left = 1 - by_chance
    return [
        [((i == j) * left - (1 - agreed) * (columns[i] + rows[j])) / left**2 for j in range(len(columns))]
        for i in range(len(rows))
    ]


def variance(gradient: Table, table: Table) -> float:
    """The variance of a figure of shares, to first order, when the table was drawn at random."""
    n = sum(map(sum, table))
    pairs = [
        (share, slope)
        for shares, slopes in zip(_shares(table), gradient, strict=True)
        for share, slope in zip(shares, slopes, strict=True)
    ]
    mean = math.fsum(share * slope for share, slope in pairs)
    return math.fsum(share * (slope - mean) ** 2 for share, slope in pairs) / n


def _shares(table: Table) -> list[list[float]]:
    n = sum(map(sum, table))
    return [[count / n for count in row] for row in table]


def _margins(shares: Table) -> tuple[list[float], list[float]]:
    return [math.fsum(row) for row in shares], [math.fsum(column) for column in zip(*shares, strict=True)]


def _agreements(table: Table) -> tuple[float, float]:
    """The share of agreement, and the share that chance alone would give."""
    shares = _shares(table)
    rows, columns = _margins(shares)
    observed = math.fsum(shares[i][i] for i in range(len(rows)))
    return observed, math.fsum(row * column for row, column in zip(rows, columns, strict=True))


_CELL_PADDING = 0.25
"""Made-up observations a cell: a judge that was right on all of twenty labels is not right for certain."""


class Labelled(NamedTuple):
    """One case that a person labelled: whether it passes, whether the judge passed it, and the judge's score."""

    label: bool
    passed: bool
    score: float


class Stratum(NamedTuple):
    """Cases of one kind: how many the judge scored, and those of them that are labelled."""

    name: str
    size: int
    labelled: tuple[Labelled, ...]


def confusion(labelled: Sequence[Labelled]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows: a person says pass, fail. Columns: the judge does."""
    counts = Counter((each.label, each.passed) for each in labelled)
    return (counts[True, True], counts[True, False]), (counts[False, True], counts[False, False])


def accuracy(strata: Sequence[Stratum]) -> IntervalEstimate | None:
    """The share of cases on which judge and person agree, with Wilson's interval."""
    table = _weighted(strata, 0.0)
    if table is None:
        return None
    value, n = table[0][0] + table[1][1], _labels(strata)
    spread = _variance(strata, [[1.0, 0.0], [0.0, 1.0]]) if len(strata) > 1 else 0.0
    bounds = wilson(value, value * (1 - value) / spread if spread > 0 and 0 < value < 1 else n)
    assert bounds is not None
    return IntervalEstimate(value, *bounds, n)


def kappa(strata: Sequence[Stratum]) -> IntervalEstimate | None:
    """Cohen's κ between judge and person; None where there is nothing to tell it from."""
    if len(strata) == 1:
        return cohen_kappa(confusion(strata[0].labelled))
    table = _weighted(strata, 0.0)
    value = None if table is None else kappa_value(table)
    padded = _weighted(strata, 2 * _CELL_PADDING)
    if value is None or padded is None:
        return None
    middle = kappa_value(padded)
    assert middle is not None
    return around(value, middle, _variance(strata, kappa_gradient(padded)), _labels(strata))


def rogan_gladen(labelled: Sequence[Labelled], passed: int, cases: int) -> IntervalEstimate | None:
    """The true pass rate from the judge's, by how often it passes good answers and bad ones.

    The labelled are among the `cases`, of which the judge passed `passed`, and were drawn at random. The interval is
    Fieller's: it holds where the judge is poor too, and is everything from 0 to 1 when the judge may be guessing. None
    when the labels are all pass or all fail, for then one of the two rates is unknown, and when the judge passes bad
    answers as often as good ones, for then its verdicts say nothing that could be corrected.
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
    finds, rejects = (
        (both + _CELL_PADDING) / (good + half),
        (caught + _CELL_PADDING) / (bad + half),
    )
    rest, share, base = cases - n, n / cases, good / n
    others = (passed - both - let_through + _CELL_PADDING) / (rest + half)
    slope = finds + rejects - 1
    # T(θ) = judge's pass rate - [θ·finds + (1 - θ)(1 - rejects)] is 0 at the truth; the interval is where it may be.
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
    """PPI++: the labels' pass rate, moved by what the judge says of all cases as far as its scores go with the labels.

    `mean_score` is the judge's mean over all cases. Never much wider than from labels alone, however poor the judge,
    and never moved by more than the judge's mean itself moves.
    None when a stratum has no label: of its cases nothing is known.
    """
    cases = sum(stratum.size for stratum in strata)
    if not cases or any(stratum.size and not stratum.labelled for stratum in strata):
        return None
    used = [stratum for stratum in strata if stratum.labelled]
    moments = [_moments(stratum.labelled) for stratum in used]
    # What the design leaves open in each stratum: nothing where every case is labelled.
    open_shares = [
        (stratum.size / cases) ** 2 * max(0.0, 1 - len(stratum.labelled) / stratum.size) / len(stratum.labelled)
        for stratum in used
    ]
    spread = math.fsum(open_ * each.of_scores for open_, each in zip(open_shares, moments, strict=True))
    shared = math.fsum(open_ * each.shared for open_, each in zip(open_shares, moments, strict=True))
    # Held within 0 and 1, as in the paper: the slope of a few labels may be anything, and would carry the figure away.
    power = min(1.0, max(0.0, shared / spread)) if spread > 0 else 0.0
    labels = math.fsum(s.size / cases * _mean([e.label for e in s.labelled]) for s in used)
    scores = math.fsum(s.size / cases * _mean([e.score for e in s.labelled]) for s in used)
    value = min(1.0, max(0.0, labels + power * (mean_score - scores)))
    left = math.fsum(
        open_ * (each.of_labels - 2 * power * each.shared + power**2 * each.of_scores)
        for open_, each in zip(open_shares, moments, strict=True)
    )
    inside = min(1 - 0.5 / cases, max(0.5 / cases, value))
    own = inside * (1 - inside)
    bounds = wilson(inside, own / (own / cases + max(0.0, left)))
    assert bounds is not None
    return IntervalEstimate(value, min(bounds[0], value), max(bounds[1], value), _labels(strata))


def next_labels(strata: Sequence[Stratum], count: int) -> list[int]:
    """How many of `count` further labels each stratum should get: where they narrow the interval most.

    One at a time to where one more takes most off the variance; two labels in each stratum come first.
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
    """How much one more label takes off the variance, as far as the labels that are there tell."""
    if n < 2:
        return math.inf
    share = (sum(each.label for each in stratum.labelled) + 1) / (len(stratum.labelled) + 2)
    return (stratum.size / total) ** 2 * share * (1 - share) * (1 / n - 1 / (n + 1))


class _Moments(NamedTuple):
    of_labels: float
    of_scores: float
    shared: float


def _moments(labelled: Sequence[Labelled]) -> _Moments:
    """Variances and covariance of labels and scores, with one observation spread over the corners of what there is."""
    lowest, highest = min(each.score for each in labelled), max(each.score for each in labelled)
    corners = [(label, score, _CELL_PADDING) for label in (0.0, 1.0) for score in (lowest, highest)]
    points = [(float(each.label), each.score, 1.0) for each in labelled] + corners
    weight = math.fsum(w for _, _, w in points)
    label = math.fsum(y * w for y, _, w in points) / weight
    score = math.fsum(f * w for _, f, w in points) / weight
    degrees = weight - 1
    return _Moments(
        math.fsum(w * (y - label) ** 2 for y, _, w in points) / degrees,
        math.fsum(w * (f - score) ** 2 for _, f, w in points) / degrees,
        math.fsum(w * (y - label) * (f - score) for y, f, w in points) / degrees,
    )


def _weighted(strata: Sequence[Stratum], padding: float) -> Table | None:
    """The confusion table as it would be if all cases were labelled, in shares; None where a stratum has no label."""
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
    """The variance of a figure of the weighted table: inside strata by their labels, between them by all cases."""
    cases = sum(stratum.size for stratum in strata)
    inside, means = 0.0, []
    for stratum in strata:
        if not stratum.labelled:
            continue
        counts = _padded(stratum, 2 * _CELL_PADDING)
        inside += (stratum.size / cases) ** 2 * variance(gradient, counts)
        n = sum(map(sum, counts))
        slopes = math.fsum(
            c / n * g for row, gs in zip(counts, gradient, strict=True) for c, g in zip(row, gs, strict=True)
        )
        means.append((stratum.size / cases, slopes))
    middle = math.fsum(weight * slope for weight, slope in means)
    return inside + math.fsum(weight * (slope - middle) ** 2 for weight, slope in means) / cases


def _padded(stratum: Stratum, padding: float) -> list[list[float]]:
    """Counts with made-up ones in the columns that occur: a stratum of the judge's passes has no fails of its."""
    table = confusion(stratum.labelled)
    occurs = [any(row[column] for row in table) for column in (0, 1)]
    return [[count + padding * occurs[column] for column, count in enumerate(row)] for row in table]


def _roots(square: float, linear: float, constant: float) -> tuple[float, float]:
    """Where a parabola that opens upwards is not above 0, inside [0, 1]; all of it where that has no bounds."""
    inner = linear**2 - 4 * square * constant
    if square <= 0 or inner < 0:
        return 0.0, 1.0
    root = math.sqrt(inner)
    return max(0.0, (-linear - root) / (2 * square)), min(1.0, (-linear + root) / (2 * square))


def _labels(strata: Sequence[Stratum]) -> int:
    return sum(len(stratum.labelled) for stratum in strata)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
