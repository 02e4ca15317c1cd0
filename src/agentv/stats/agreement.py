"""How far raters agree beyond chance: Cohen's kappa of two, Krippendorff's alpha of any number with gaps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from agentv.stats.distributions import Z95, numbers
from agentv.stats.intervals import Interval
from agentv.stats.kappa import agreements, kappa_gradient, kappa_value, variance

if TYPE_CHECKING:
    from numpy.typing import NDArray

Weights = Literal["none", "linear", "quadratic"]
Scale = Literal["nominal", "ordinal", "interval"]

RESAMPLES = 2000


class Kappa(NamedTuple):
    """Cohen's kappa and what it stands on. `value` is None when chance alone would agree everywhere.

    `table[i][j]` counts the items that the first rater put into `categories[i]` and the second into `categories[j]`.
    """

    value: float | None
    ci95: Interval | None
    standard_error: float | None
    observed: float
    expected: float
    n: int
    categories: tuple[Any, ...]
    table: tuple[tuple[int, ...], ...]


class Alpha(NamedTuple):
    """Krippendorff's alpha. `units` are those that two raters or more have rated, `values` the ratings in them."""

    value: float | None
    ci95: Interval | None
    units: int
    values: int
    seed: int


def cohen_kappa(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    *,
    weights: Weights = "none",
    categories: Sequence[Any] | None = None,
) -> Kappa:
    """The agreement of two raters over the same items: κ = (p_o - p_e) / (1 - p_e).

    p_o is the share of items on which they agree, p_e the share on which two raters with the same habits would agree
    by chance. Weighted, a disagreement counts by its distance among the ordered `categories`: linearly or by its
    square. The interval is normal, with the large-sample variance of Fleiss, Cohen and Everitt (1969), cut to [-1, 1].

    Cohen (1960), Educational and Psychological Measurement 20:37; Fleiss, Cohen & Everitt (1969), Psychological
    Bulletin 72:323.
    """
    if len(first) != len(second):
        raise ValueError(f"Two raters of the same items are needed, got {len(first)} and {len(second)} ratings")
    if not first:
        raise ValueError("There is nothing to compare")
    names = tuple(_ordered({*first, *second}) if categories is None else categories)
    if len({*names}) < len(names):
        raise ValueError(f"A category is there twice: {', '.join(map(repr, names))}")
    if weights not in get_args(Weights):
        raise ValueError(f"Weights are {', '.join(get_args(Weights))}, got {weights!r}")
    if unknown := {*first, *second} - {*names}:
        raise ValueError(f"Not among the categories: {', '.join(sorted(map(repr, unknown)))}")
    pairs, n, size = Counter(zip(first, second, strict=True)), len(first), len(names)
    table = tuple(tuple(pairs[row, column] for column in names) for row in names)
    agree = [[_agreement(i, j, size, weights) for j in range(size)] for i in range(size)]
    observed, expected = agreements(table, agree)
    value = kappa_value(table, agree)
    if value is None:
        return Kappa(None, None, None, observed, expected, n, names, table)
    error = math.sqrt(max(0.0, variance(kappa_gradient(table, agree), table)))
    interval = max(-1.0, value - Z95 * error), min(1.0, value + Z95 * error)
    return Kappa(value, interval, error, observed, expected, n, names, table)


def krippendorff_alpha(
    units: Sequence[Sequence[Any]], *, scale: Scale = "nominal", seed: int = 0, resamples: int = RESAMPLES
) -> Alpha:
    """The agreement of any number of raters: α = 1 - D_o / D_e, disagreement observed over that expected by chance.

    A unit is the ratings of one item; None stands for a rating that is missing, and units with fewer than two are left
    out. Disagreement of two values is 1 or 0 (nominal), the squared count of ratings between them (ordinal), or their
    squared difference (interval). The interval is a percentile bootstrap over units, from `seed`.

    Krippendorff (2011), Computing Krippendorff's Alpha-Reliability; Hayes & Krippendorff (2007), Communication Methods
    and Measures 1:77.
    """
    import numpy as np  # late: it takes a while, and runs do not need it

    if scale not in get_args(Scale):
        raise ValueError(f"A scale is {', '.join(get_args(Scale))}, got {scale!r}")
    rated = [[value for value in unit if value is not None] for unit in units]
    rated = [unit for unit in rated if len(unit) > 1]
    if not rated:
        raise ValueError("No item was rated twice")
    values = _ordered({value for unit in rated for value in unit})
    position = {value: index for index, value in enumerate(values)}
    counts = np.zeros((len(rated), len(values)))
    for row, unit in zip(counts, rated, strict=True):
        for value in unit:
            row[position[value]] += 1
    places = numbers(values, "Ratings") if scale == "interval" else np.arange(len(values), dtype=float)
    chance = np.random.default_rng(seed)
    weights = chance.multinomial(len(rated), np.full(len(rated), 1 / len(rated)), size=resamples)
    whole, *drawn = _alphas(counts, np.concatenate([np.ones((1, len(rated))), weights]), places, scale)
    # Resamples in which all ratings are the same say nothing; without any other there is no interval.
    told = [found for found in drawn if not math.isnan(found)]
    if math.isnan(whole) or not told:
        return Alpha(None if math.isnan(whole) else float(whole), None, len(rated), int(counts.sum()), seed)
    low, high = np.quantile(told, [0.025, 0.975])
    return Alpha(float(whole), (float(low), float(high)), len(rated), int(counts.sum()), seed)


def _alphas(counts: NDArray[Any], weights: NDArray[Any], marks: NDArray[Any], scale: Scale) -> NDArray[Any]:
    """Alpha for each row of weights, which say how often each unit counts; NaN where all ratings are the same."""
    import numpy as np

    sizes = counts.sum(axis=1)
    totals = weights @ counts
    n = totals.sum(axis=1)
    if scale == "nominal":
        # Pairs of values in a unit that differ, and pairs of all values that do.
        within = weights @ ((sizes**2 - (counts**2).sum(axis=1)) / (sizes - 1))
        between = n**2 - (totals**2).sum(axis=1)
    else:
        # Ordinal: a value stands at the middle of the ratings that have it, counted from the lowest.
        places = np.cumsum(totals, axis=1) - totals / 2 if scale == "ordinal" else np.tile(marks, (len(n), 1))
        places = places - (totals * places).sum(axis=1, keepdims=True) / n[:, None]
        sums, squares = counts @ places.T, counts @ (places**2).T
        apart = 2 * (sizes[:, None] * squares - sums**2) / (sizes - 1)[:, None]
        within = np.einsum("ru,ur->r", weights, apart)
        between = 2 * n * (totals * places**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        alphas: NDArray[Any] = np.where(between > 0, 1 - (n - 1) * within / between, np.nan)
    return alphas


def _agreement(i: int, j: int, size: int, weights: Weights) -> float:
    if weights == "none" or size < 2:
        return float(i == j)
    off = abs(i - j) / (size - 1)
    return 1 - (off if weights == "linear" else off * off)


def _ordered(values: set[Any]) -> list[Any]:
    """In their own order where they have one, else by how they are written."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)
