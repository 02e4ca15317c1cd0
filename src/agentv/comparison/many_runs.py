"""Compare several runs over the cases that all scored: every pair with adjusted p-values, and a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from agentv.comparison.comparison import Matrix
from agentv.comparison.scores import GroupedCases, RunScores, clusters_of
from agentv.comparison.two_runs import mean_of, name_parts, side_of
from agentv.errors import UsageError
from agentv.stats.means import clustered_mean
from agentv.stats.paired_comparison import compare_paired
from agentv.stats.power import holm
from agentv.stats.ranking import rank

Cell = TypeVar("Cell")


def compare_many(runs: Sequence[RunScores], *, seed: int = 0) -> Matrix:
    """Compare three runs or more. Raises UsageError when no case was scored by all."""
    notes: list[str] = []
    parts = name_parts(runs, notes)
    sides = [GroupedCases(run, parts) for run in runs]
    common = [name for name in sides[0].names if all(name in side.names for side in sides)]
    columns = [side.means(side.run.scores)[[side.names[name] for name in common]] for side in sides]
    scores = np.array(columns).T.reshape(len(common), len(runs))
    there = ~np.isnan(scores).any(axis=1)
    if not there.any():
        raise _nothing_in_common(runs)
    rows = np.array([[side.names[name] for side in sides] for name in common], dtype=np.intp)[there]
    scores, clusters = scores[there], clusters_of(sides, rows)
    pairs = [(i, j) for i in range(len(runs)) for j in range(i + 1, len(runs))]
    found = {(i, j): compare_paired(scores[:, i], scores[:, j], clusters, seed=seed) for i, j in pairs}
    asked = {pair: paired.p_value for pair, paired in found.items() if paired.p_value is not None}
    adjusted = dict(zip(asked, holm(list(asked.values())), strict=True))
    means = tuple(clustered_mean(column, clusters, within=(0.0, 1.0)) for column in scores.T)
    return Matrix(
        sides=tuple(side_of(side, mean_of(column, clusters)) for side, column in zip(sides, scores.T, strict=True)),
        n=len(scores),
        clusters=means[0].clusters,
        means=means,
        differences=_square(found, len(runs)),
        p_adjusted=_square(adjusted, len(runs)),
        ranking=tuple(rank(scores, clusters, seed=seed)),
        left_out=tuple(len(side.names) - len(scores) for side in sides),
        notes=tuple(notes),
    )


def _nothing_in_common(runs: Sequence[RunScores]) -> UsageError:
    """The error when no case was scored by all; names a run that scored nothing at all."""
    idle = [run for run in runs if not len(run.scores.cases)]
    if not idle:
        return UsageError("No case was scored by all runs", hint="Cases are joined by dataset and id")
    errors = ", ".join(f"{name} {count:,}" for name, count in idle[0].error_classes.most_common())
    why = f"{idle[0].errors:,} of its {idle[0].records:,} results are errors" + (f": {errors}" if errors else "")
    return UsageError(f"{idle[0].label} scored no case", why, "Name the other runs without it")


def _square(found: Mapping[tuple[int, int], Cell], size: int) -> tuple[tuple[Cell | None, ...], ...]:
    return tuple(tuple(found.get((i, j)) for j in range(size)) for i in range(size))
