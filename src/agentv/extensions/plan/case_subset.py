"""Choose a small set of cases whose mean predicts the mean of all cases, from the scores of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.case_table import first_places, number_codes
from agentv.comparison.scores import GroupedCases, RunScores
from agentv.errors import UsageError

_CHECKS = 10
"""Held-out checks per run, each with another random part of the cases."""

_PART = 0.8
_REFERENCES = 300
"""Cases used for the mean distance to all cases, to bound the time for large datasets."""


class SubsetRun(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of a run over all cases, and over a subset chosen without this run; None for a single run."""

    label: str
    mean: float
    held_out_mean: float | None


class Subset(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen cases, as pairs of dataset and id, of `total` cases.

    `left_out` cases were not scored in every run, or not with the same input and references.

    `error` is the root mean square error of the subset's mean on runs that did not take part in the choice, over
    `checks` checks; None with one run. `random_error` is that of a random subset of the same size.
    """

    cases: tuple[tuple[str, str], ...]
    total: int
    left_out: int
    runs: tuple[SubsetRun, ...]
    error: float | None
    checks: int
    random_error: float


def choose_subset(runs: Sequence[RunScores], size: int, seed: int = 0) -> Subset:
    """Choose `size` of the cases that were scored in all runs with the same input and references."""
    sides = [GroupedCases(run, (0, 1)) for run in runs]
    codes = np.concatenate([side.codes for side in sides])
    codes = codes[number_codes(codes)[0]]
    rows = [first_places(side.codes, codes) for side in sides]
    columns = (np.append(side.means(side.run.scores), np.nan) for side in sides)
    table = np.array([column[row] for column, row in zip(columns, rows, strict=True)]).T
    there = np.flatnonzero(~np.isnan(table).any(axis=1) & _is_unchanged(sides, rows))
    if size >= len(there):
        scored = f"{len(there):,} of {len(codes):,} cases were scored in every run"
        raise UsageError(f"Cannot choose {size:,} cases: {scored}", hint="Choose fewer cases than were scored")
    scores = table[there]
    picks = np.sort(representatives(scores, size))
    error, means = _held_out(scores, size, np.random.default_rng(seed)) if len(runs) > 1 else (None, [None] * len(runs))
    return Subset(
        cases=tuple((case.dataset, case.eval_id) for case in map(sides[0].case_id, rows[0][there[picks]].tolist())),
        total=len(there),
        left_out=len(codes) - len(there),
        runs=tuple(
            SubsetRun(label=run.label, mean=float(mean), held_out_mean=held_out)
            for run, mean, held_out in zip(runs, scores.mean(axis=0), means, strict=True)
        ),
        error=error,
        checks=0 if error is None else _CHECKS * len(runs),
        random_error=math.sqrt(float(scores.var(axis=0, ddof=1).mean()) / size * (1 - size / len(scores))),
    )


def _is_unchanged(sides: Sequence[GroupedCases], rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return which cases have the same fingerprint in all runs; runs of other tools have none, and do not count.

    `rows` are those of each case in each run, -1 if the run does not have it.
    """
    reference = np.zeros(len(rows[0]), dtype=np.int64)
    same = np.ones(len(reference), dtype=bool)
    for side, row in zip(sides, rows, strict=True):
        fingerprints = np.append(np.asarray(side.run.fingerprints, dtype=np.int64)[side.first], 0)[row]
        same &= (reference == 0) | (fingerprints == 0) | (reference == fingerprints)
        reference = np.where(reference == 0, fingerprints, reference)
    return same


def representatives(scores: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the rows of a table (cases × runs) whose scores are distributed like those of all rows.

    Each case is a point: its scores in all runs. Points are added one by one so that the energy distance between the
    chosen points and all points is as small as possible: near the middle of many points, and away from those chosen
    before. Matching the whole distribution, and not only the means, keeps the subset sensitive to runs that are better
    or worse than those given. Mak & Joseph (2018), Support points, Annals of Statistics 46:2562.
    """
    step = max(1, len(scores) // _REFERENCES)
    references = scores[np.argsort(scores.mean(axis=1), kind="stable")][step // 2 :: step]
    to_all = np.zeros(len(scores))
    for point in references:
        to_all += _distances(scores, point)
    to_all /= len(references)
    to_chosen, picks = np.zeros(len(scores)), np.empty(size, dtype=np.intp)
    for number in range(size):
        gain = to_all - to_chosen / (number + 1)
        gain[picks[:number]] = math.inf
        picks[number] = gain.argmin()
        to_chosen += _distances(scores, scores[picks[number]])
    return picks


def _distances(points: NDArray[Any], point: NDArray[Any]) -> NDArray[Any]:
    distances: NDArray[Any] = np.sqrt(np.square(points - point).sum(axis=1))
    return distances


def _held_out(scores: NDArray[Any], size: int, draw: np.random.Generator) -> tuple[float, list[float | None]]:
    """Return the error on runs that were not used to choose, and their means over a subset chosen from all cases.

    Each run is held out in turn. The error is measured on several random parts of the cases, because one subset per run
    is too few. A subset is a larger fraction of a part than of all cases, which is corrected as for a random sample.
    """
    errors, means = [], list[float | None]()
    part = max(size + 1, math.ceil(_PART * len(scores)))
    for run in range(scores.shape[1]):
        others = np.delete(scores, run, axis=1)
        means.append(float(scores[representatives(others, size), run].mean()))
        for _ in range(_CHECKS):
            rows = draw.permutation(len(scores))[:part]
            picks = rows[representatives(others[rows], size)]
            errors.append(float(scores[picks, run].mean() - scores[rows, run].mean()))
    correction = (1 - size / len(scores)) / (1 - size / part)
    return math.sqrt(correction * float(np.square(errors).mean())), means
