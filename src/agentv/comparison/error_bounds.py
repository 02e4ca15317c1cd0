"""Bounds of a comparison with errors: those that one run has more than the other may hide any score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.sampling.drawn_cases import Columns, weights_of
from agentv.comparison.scores import GroupedCases, clusters_of
from agentv.stats.paired_comparison import Answer, Paired


class TippingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the `errors` of one run may count as `score` before a claim is lost; `place` is 0 for A, 1 for B."""

    claim: Answer
    place: Literal[0, 1]
    score: Literal[0, 1]
    errors: int
    most: int


class ErrorBounds(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison in which errors count. Errors that both runs have equally often are chance, and are left out."""

    only: tuple[int, int]
    """Cases that errored in one run only, for each run."""

    excess: float
    """Cases that errored more often in the second run, negative for the first."""

    rates: Paired
    """Compares the fractions of trials that errored."""

    against: Paired
    """The comparison with the excess counted against the second run: as 0 in the second, or as 1 in the first."""

    in_favour: Paired
    """The comparison with the excess counted in its favour."""

    tipping_point: TippingPoint | None = None
    """That of the claim without errors, if there is a claim."""

    def supports(self, answer: Answer) -> bool:
        """Return whether a claim remains if the excess of errors counts against it."""
        if answer == "better":
            return self.against.answer == answer
        return answer != "worse" or self.in_favour.answer == answer

    def leaves_open(self, answer: Answer) -> bool:
        """Return whether the errors decide: a claim depends on them, or they may hide a regression."""
        return not self.supports(answer) or (answer != "worse" and self.against.answer == "worse")


class ErroredCases:
    """The mean score of each case in two runs, and the fraction of its trials that errored in one run only.

    The fraction of trials that errored in both runs is left out. The mean is NaN for a case whose trials all errored.
    """

    def __init__(
        self,
        scores: list[NDArray[Any]],
        failed: list[NDArray[Any]],
        clusters: NDArray[Any] | None,
        weights: NDArray[Any] | None = None,
    ) -> None:
        shared = np.minimum(*failed)
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = [np.nan_to_num((each - shared) / (1 - shared)) for each in failed]
        # A case without any score or error in a run, such as one without evaluators, is not part of the comparison.
        is_known = [~np.isnan(score) | (part == 1) for score, part in zip(scores, parts, strict=True)]
        usable = np.logical_and(*is_known) & (shared < 1)
        self._cases = Columns(scores[0], scores[1], clusters, weights).rows(usable)
        self._parts = [part[usable] for part in parts]

    @property
    def only(self) -> tuple[int, int]:
        """The number of cases that errored in one run only, for each run."""
        before, after = (int((part > 0).sum()) for part in self._parts)
        return before, after

    @property
    def excess(self) -> float:
        """How many more cases errored in the second run."""
        return round(float(self._parts[1].sum() - self._parts[0].sum()), 9)

    def compare(self, place: int, errors: float, score: float, *, seed: int = 0, test: bool = True) -> Paired | None:
        """Compare the runs with this number of errors of one run counted as a score; None if no case is left.

        Those errors count first that change the difference most. All others are left out.
        """
        sides = self._cases.first, self._cases.second
        part, own, other = self._parts[place], sides[place], sides[1 - place]
        order = np.argsort(np.where(part > 0, other if score else -other, np.inf), kind="stable")
        counted = np.zeros_like(part)
        room = part[order]
        counted[order] = np.clip(errors - (np.cumsum(room) - room), 0, room)
        weight = 1 - part + counted
        with np.errstate(invalid="ignore", divide="ignore"):
            column = ((1 - part) * np.nan_to_num(own) + counted * score) / weight
        usable = (weight > 0) & ~np.isnan(other)
        if not usable.any():
            return None
        before, after = (np.clip(each, 0, 1) for each in ((other, column) if place else (column, other)))
        cases = self._cases._replace(first=before, second=after).rows(usable)
        return cases.compare(seed, test=test)

    def tipping_point(self, answer: Answer, tests: float = 1.0) -> TippingPoint | None:
        """Return how many errors may count against a claim before it is lost, by bisection; None without a claim.

        It is that of the run in which fewer of the errors are enough, even if the other one has more: failures may hide
        behind as many random errors of the other run. p-values are multiplied by `tests`, as they were for the claim if
        there are several runs.
        """
        points = []
        places: tuple[Literal[0, 1], ...] = () if answer == "cannot tell" else (1, 0)
        for place in places:
            score: Literal[0, 1] = 0 if (answer == "better") == (place == 1) else 1
            least, most = 0, self.only[place] + 1
            while most - least > 1:
                middle = (least + most) // 2
                paired = self.compare(place, middle, score, test=False)
                is_claim = paired is not None and paired.conclude(min(1.0, tests * (paired.p_value or 0.0))) == answer
                least, most = (middle, most) if is_claim else (least, middle)
            if errors := self.only[place]:
                points.append(TippingPoint(claim=answer, place=place, score=score, errors=errors, most=least))
        return min(points, key=lambda point: point.most / point.errors, default=None)


def error_bounds(
    sides: Sequence[GroupedCases], rows: NDArray[Any], seed: int, paired: Paired | None, p: float | None = None
) -> ErrorBounds | None:
    """Compare the cases in `rows` of two runs with the excess of errors counted as 0 and as 1; None without errors.

    `paired` is the comparison without errors, and `p` its adjusted p-value. The tipping point is that of its verdict.
    """
    scores, failed = [], []
    for place, side in enumerate(sides):
        scores.append(side.means(side.run.scores)[rows[:, place]])
        failed.append(side.means(side.run.failures)[rows[:, place]])
    clusters, weights = clusters_of(sides, rows), weights_of(sides, rows)
    cases = ErroredCases(scores, failed, clusters, weights)
    if not any(cases.only):
        return None
    bounds = bound_errors(cases, Columns(failed[0], failed[1], clusters, weights).compare(seed), seed)
    if paired is None:
        return bounds
    tests = p / paired.p_value if p and paired.p_value else 1.0
    point = cases.tipping_point(paired.conclude(paired.p_value if p is None else p), tests)
    return msgspec.structs.replace(bounds, tipping_point=point)


def bound_errors(cases: ErroredCases, rates: Paired, seed: int = 0) -> ErrorBounds:
    """Bound the excess of errors of one run. `rates` compares the fractions of trials that errored."""
    place, excess = (1, cases.excess) if cases.excess >= 0 else (0, -cases.excess)
    harm = 0 if place else 1
    against, in_favour = (
        cases.compare(place, excess, score, seed=seed) or rates._replace(ci95=None, p_value=None)
        for score in (harm, 1 - harm)
    )
    return ErrorBounds(only=cases.only, excess=cases.excess, rates=rates, against=against, in_favour=in_favour)
