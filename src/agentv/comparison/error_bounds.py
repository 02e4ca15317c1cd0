"""Bounds of a comparison that account for errors: every error that only one run has may hide any score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from agentv.comparison.scores import GroupedCases, clusters_of
from agentv.stats.paired_comparison import Answer, Paired, compare_paired

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ErrorBounds(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison in which errors count. `only` are the numbers of cases that errored in one run only, for each run.

    `against` counts each of them against the second run: as 0 in the second and as 1 in the first. `in_favour` is the
    opposite. `rates` compares the fractions of trials that errored. Errors of a case in both runs are left out.
    """

    only: tuple[int, int]
    rates: Paired
    against: Paired
    in_favour: Paired

    def supports(self, answer: Answer) -> bool:
        """Return whether a claim remains if every error counts against it."""
        if answer == "better":
            return self.against.answer == answer
        return answer != "worse" or self.in_favour.answer == answer

    def leaves_open(self, answer: Answer) -> bool:
        """Return whether the errors decide: a claim depends on them, or they may hide a regression."""
        return not self.supports(answer) or (answer != "worse" and self.against.answer == "worse")


def error_bounds(sides: tuple[GroupedCases, GroupedCases], rows: NDArray[Any], seed: int) -> ErrorBounds | None:
    """Compare the cases in `rows` of two runs with errors counted as 0 and as 1; None without errors in one run only.

    A case with several trials is between the mean with its failed trials counted as 0, and as 1. The fraction of trials
    that failed in both runs is left out.
    """
    scores, failed = [], []
    for place, side in enumerate(sides):
        scores.append(side.means(side.run.scores)[rows[:, place]])
        failed.append(side.means(side.run.failures)[rows[:, place]])
    shared = np.minimum(*failed)
    with np.errstate(invalid="ignore", divide="ignore"):
        unknown = [(each - shared) / (1 - shared) for each in failed]
    known = (~np.isnan(part) & (~np.isnan(score) | (part == 1)) for part, score in zip(unknown, scores, strict=True))
    kept = np.logical_and(*known)
    counts = [int((part[kept] > 0).sum()) for part in unknown]
    if not any(counts):
        return None
    clusters = clusters_of(sides, rows[kept])
    low, high = [], []
    for part, score in zip(unknown, scores, strict=True):
        least = (1 - part[kept]) * np.nan_to_num(score[kept])
        low.append(np.clip(least, 0, 1))
        high.append(np.clip(least + part[kept], 0, 1))
    return ErrorBounds(
        only=(counts[0], counts[1]),
        rates=compare_paired(failed[0], failed[1], clusters_of(sides, rows), seed=seed),
        against=compare_paired(high[0], low[1], clusters, seed=seed),
        in_favour=compare_paired(low[0], high[1], clusters, seed=seed),
    )
