"""Intervals of any statistic by resampling cases, or clusters of them: the bias-corrected, accelerated bootstrap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentv.stats.distributions import normal_cdf, normal_quantile, numbers
from agentv.stats.intervals import CONFIDENCE, Interval

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import ArrayLike, NDArray

Statistic = Callable[[Any], float]

RESAMPLES = 9_999
_CELLS = 4_000_000


def bca_interval(
    values: ArrayLike,
    statistic: Statistic | None = None,
    clusters: ArrayLike | None = None,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """The BCa interval of a statistic of values (rows, where there are several columns); without one, of their mean.

    The bounds are the quantiles Φ(z0 + (z0 + z_α) / (1 - a(z0 + z_α))) of the resampled statistic; z0 corrects its
    bias, the acceleration a its skewness, from leaving one case out at a time. Clusters are drawn and left out whole.
    None when all resamples agree, which tells nothing.

    Efron (1987), Journal of the American Statistical Association 82:171; DiCiccio & Efron (1996), Statistical Science
    11:189.
    """
    import numpy as np  # late: see agentv.stats

    rows = numbers(values, "Values")
    if not len(rows):
        raise ValueError("There are no values")
    chance = np.random.default_rng(seed)
    groups = _groups(len(rows), clusters)
    if statistic is None and clusters is None:
        whole, drawn, without = float(rows.mean()), _means(rows, resamples, chance), _means_without(rows)
    else:
        chosen = statistic or _mean
        whole = float(chosen(rows))
        drawn = _resampled(rows, chosen, groups, resamples, chance)
        without = np.array([chosen(rows[np.concatenate(groups[:i] + groups[i + 1 :])]) for i in range(len(groups))])
    if len(groups) < 2 or np.ptp(drawn) == 0:
        return None
    # Half of what equals the estimate counts as below it.
    below = (np.count_nonzero(drawn < whole) + np.count_nonzero(drawn <= whole)) / (2 * resamples)
    if not 0 < below < 1:
        return None
    bias, pull = normal_quantile(below), _acceleration(without)
    ends = (1 - confidence) / 2, (1 + confidence) / 2
    low, high = np.quantile(drawn, [_corrected(end, bias, pull) for end in ends])
    return float(low), float(high)


def _corrected(end: float, bias: float, pull: float) -> float:
    moved = bias + normal_quantile(end)
    return normal_cdf(bias + moved / (1 - pull * moved))


def _acceleration(without: NDArray[Any]) -> float:
    off = without.mean() - without
    spread = float((off**2).sum())
    return float((off**3).sum()) / (6 * math.pow(spread, 1.5)) if spread > 0 else 0.0


def _groups(n: int, clusters: ArrayLike | None) -> list[NDArray[Any]]:
    import numpy as np

    if clusters is None:
        return list(np.arange(n)[:, None])
    names = np.asarray(clusters)
    if len(names) != n:
        raise ValueError(f"A cluster for each value is needed, got {len(names)} and {n}")
    _, index = np.unique(names, return_inverse=True)
    order = np.argsort(index, kind="stable")
    return list(np.split(order, np.cumsum(np.bincount(index))[:-1]))


def _resampled(
    rows: NDArray[Any], statistic: Statistic, groups: list[NDArray[Any]], resamples: int, chance: Generator
) -> NDArray[Any]:
    import numpy as np

    drawn = np.empty(resamples)
    for turn in range(resamples):
        chosen = chance.integers(0, len(groups), len(groups))
        drawn[turn] = statistic(rows[np.concatenate([groups[i] for i in chosen])])
    return drawn


def _means(rows: NDArray[Any], resamples: int, chance: Generator) -> NDArray[Any]:
    """Means of resamples, many at a time."""
    import numpy as np

    at_once = max(1, min(resamples, _CELLS // len(rows)))
    parts = []
    for done in range(0, resamples, at_once):
        chosen = chance.integers(0, len(rows), (min(at_once, resamples - done), len(rows)))
        parts.append(rows[chosen].mean(axis=1))
    return np.concatenate(parts)


def _means_without(rows: NDArray[Any]) -> NDArray[Any]:
    left: NDArray[Any] = (rows.sum() - rows) / max(1, len(rows) - 1)
    return left


def _mean(rows: NDArray[Any]) -> float:
    return float(rows.mean())
