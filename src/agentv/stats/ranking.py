"""Rank several sides by their means, with the places that pairwise conclusions leave open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Ranked(NamedTuple):
    """A side in a ranking. `places` are the best and the worst place that it may have."""

    side: int
    mean: float
    places: tuple[int, int]


def rank(means: Sequence[float], is_better: Callable[[int, int], bool]) -> list[Ranked]:
    """Return the sides by mean, the highest first; equal means keep their order.

    `is_better(i, j)` is whether side i is shown to be better than side j. The best place of a side is after all that
    are shown to be better, its worst place before all that are shown to be worse. If the probability of any wrong
    conclusion is at most 5 %, as with Holm's adjustment, all true places are in these ranges with 95 % confidence.

    Mogstad, Romano, Shaikh & Wilhelm (2024), Inference for Ranks, Review of Economic Studies 91:476.
    """
    sides = range(len(means))
    ranked = [
        Ranked(
            side,
            means[side],
            (
                1 + sum(is_better(other, side) for other in sides if other != side),
                len(means) - sum(is_better(side, other) for other in sides if other != side),
            ),
        )
        for side in sides
    ]
    return sorted(ranked, key=lambda each: -each.mean)
