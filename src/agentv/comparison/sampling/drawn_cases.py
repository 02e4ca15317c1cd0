"""Weights of cases that runs with `--cases-budget` drew, and comparisons that use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentv.comparison.scores import GroupedCases
from agentv.errors import UsageError
from agentv.stats.paired_comparison import Paired, compare_paired, compare_weighted

_MOST_PERMUTED = 300


class Columns(NamedTuple):
    """Two columns of scores over the same cases, with the clusters and the weights of the cases."""

    first: NDArray[Any]
    second: NDArray[Any]
    clusters: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None

    def rows(self, rows: NDArray[Any]) -> Columns:
        """Return the columns of some cases."""
        return Columns(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]

    def compare(self, seed: int, *, test: bool = True) -> Paired:
        """Compare the second column with the first, weighted if the cases have weights.

        Without `test`, many cases have Student's test, which is faster than the permutation test and agrees with it.
        """
        if self.weights is not None:
            return compare_weighted(self.first, self.second, self.weights, self.clusters, seed=seed)
        return compare_paired(
            self.first, self.second, self.clusters, seed=seed, test=test or len(self.first) <= _MOST_PERMUTED
        )


def weights_of(sides: Sequence[GroupedCases], rows: NDArray[Any]) -> NDArray[Any] | None:
    """Return the weight of each case, given its row in each run; None if all are equal."""
    for side, column in zip(sides, rows.T, strict=True):
        if side.run.has_draw and len(column):
            weights: NDArray[Any] = side.run.weights()[side.first[column]]
            return None if np.ptp(weights) == 0 else weights
    return None


def refuse_different_draws(sides: Sequence[GroupedCases], rows: NDArray[Any]) -> None:
    """Raise UsageError if runs drew other cases, or with other probabilities: their common cases have no known ones.

    `rows` are the cases that all runs have. Draws with equal probabilities can be combined.
    """
    draws = [
        (side, side.run.weights()[side.first[column]])
        for side, column in zip(sides, rows.T, strict=True)
        if side.run.has_draw
    ]
    if len(draws) < 2 or all(len(weights) == 0 or np.ptp(weights) == 0 for _, weights in draws):
        return
    for side, weights in draws:
        if len(side) != len(rows) or not np.allclose(weights, draws[0][1]):
            names = " and ".join(side.run.label for side, _ in draws)
            hint = "Compare each with the baseline, or draw the same cases: the same --baseline and --seed"
            raise UsageError(f"{names} drew different cases with --cases-budget", hint=hint)
