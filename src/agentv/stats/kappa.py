"""Cohen's κ of a table of counts or shares, plain or weighted, with an interval that holds where labels are few."""

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


class Estimate(NamedTuple):
    """A figure with its 95 % interval, and of how many observations it is."""

    value: float
    low: float
    high: float
    n: int


def kappa_of(table: Table) -> Estimate | None:
    """κ of a square table of counts; None when both raters always say the same one thing, where chance explains all.

    The interval is Fleiss, Cohen and Everitt's on Fisher's scale, from the table with two observations spread over it:
    the plain one of `agreement.cohen_kappa` holds the truth in 89 to 94 of 100 samples of 100 labels, this one in 95.
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


def around(value: float, middle: float, spread: float, n: int) -> Estimate:
    """The interval around `middle` on Fisher's scale, which keeps it within -1 and 1; the value itself is in it."""
    inside = min(max(middle, -0.9999), 0.9999)
    half = Z95 * math.sqrt(spread) / (1 - inside * inside)
    low, high = math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
    return Estimate(value, min(low, value), max(high, value), n)


def agreements(table: Table, agree: Table | None = None) -> tuple[float, float]:
    """The share of agreement, and that which chance alone would give. `agree` is how far each cell agrees, from 0 to 1.

    Without it, cells on the diagonal agree and others do not.
    """
    shares = _shares(table)
    rows, columns = _margins(shares)
    cells = [(i, j, _agree(agree, i, j)) for i in range(len(rows)) for j in range(len(columns))]
    observed = math.fsum(weight * shares[i][j] for i, j, weight in cells)
    return observed, math.fsum(weight * rows[i] * columns[j] for i, j, weight in cells)


def kappa_value(table: Table, agree: Table | None = None) -> float | None:
    """κ = (agreement - chance) / (1 - chance); None where chance leaves nothing to agree on."""
    agreed, by_chance = agreements(table, agree)
    return None if by_chance >= 1 - _LAST_BITS else (agreed - by_chance) / (1 - by_chance)


def kappa_gradient(table: Table, agree: Table | None = None) -> list[list[float]]:
    """How much κ changes with the share of each cell."""
    agreed, by_chance = agreements(table, agree)
    rows, columns = _margins(_shares(table))
    left = 1 - by_chance
    row_means = [math.fsum(_agree(agree, i, j) * share for j, share in enumerate(columns)) for i in range(len(rows))]
    column_means = [math.fsum(_agree(agree, i, j) * share for i, share in enumerate(rows)) for j in range(len(columns))]
    return [
        [
            (_agree(agree, i, j) * left - (1 - agreed) * (row + column)) / left**2
            for j, column in enumerate(column_means)
        ]
        for i, row in enumerate(row_means)
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


def _agree(agree: Table | None, i: int, j: int) -> float:
    return float(i == j) if agree is None else agree[i][j]
