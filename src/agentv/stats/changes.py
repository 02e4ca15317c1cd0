"""Where a series of means changed: the best split, tested, and each side split again. Knows no run.

The means m_i have standard errors s_i, taken from their 95 % intervals. A split before position k compares the means of
both sides, weighted by 1 / s_i²:

    z_k = |m_left - m_right| / sqrt(1 / W_left + 1 / W_right),    W = sum of weights

The largest z of a segment of n means is tested at n - 1 times its p-value (Bonferroni), so that a series without a
change is split in at most 5 % of all cases. Found splits are kept and both sides searched again (binary segmentation:
Scott and Knott 1974, Vostrikova 1981). Runs on the same cases differ by less than their intervals say, so that the
test errs on the side of silence; two runs are compared case by case with a paired test instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from agentv.stats.distributions import Z95, normal_cdf

LEVEL = 0.05


class Point(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


class LevelChange(NamedTuple):
    """The position of the first mean after a change, the level before and after it, and the adjusted p-value."""

    position: int
    before: float
    after: float
    p_value: float


def change_points(points: Sequence[Point], level: float = LEVEL) -> list[LevelChange]:
    """The changes in a series, in its order; none where it is too short or too noisy to tell."""
    weights = [1 / _variance(point) for point in points]
    found: dict[int, float] = {}
    _search([point.mean for point in points], weights, 0, level, found)
    bounds = [0, *sorted(found), len(points)]
    levels = [_mean(points[start:end], weights[start:end]) for start, end in pairwise(bounds) if end > start]
    return [
        LevelChange(position, levels[index], levels[index + 1], found[position])
        for index, position in enumerate(sorted(found))
    ]


def _search(
    means: Sequence[float], weights: Sequence[float], offset: int, level: float, found: dict[int, float]
) -> None:
    if len(means) < 2:
        return
    splits = range(1, len(means))
    distances = [_distance(means, weights, split) for split in splits]
    best = max(range(len(distances)), key=distances.__getitem__)
    p_value = min(1.0, len(distances) * 2 * (1 - normal_cdf(distances[best])))
    if p_value > level:
        return
    split = best + 1
    found[offset + split] = p_value
    _search(means[:split], weights[:split], offset, level, found)
    _search(means[split:], weights[split:], offset + split, level, found)


def _distance(means: Sequence[float], weights: Sequence[float], split: int) -> float:
    left, right = sum(weights[:split]), sum(weights[split:])
    before = sum(m * w for m, w in zip(means[:split], weights[:split], strict=True)) / left
    after = sum(m * w for m, w in zip(means[split:], weights[split:], strict=True)) / right
    return abs(before - after) / math.sqrt(1 / left + 1 / right)


def _variance(point: Point) -> float:
    # An interval without width would outweigh all others; scores that never differ say little of how sure they are.
    return max((point.high - point.low) / (2 * Z95), 1e-6) ** 2


def _mean(points: Sequence[Point], weights: Sequence[float]) -> float:
    return sum(point.mean * weight for point, weight in zip(points, weights, strict=True)) / sum(weights)
