"""Draw cases with probabilities proportional to the expected spread of their differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentv.stats.distributions import bisect

EQUAL_PART = 0.7
"""The part of the budget that all cases share equally. With less, a run that breaks cases that always passed, and gains
elsewhere, was called better in more than 5 % of simulations: too few of the broken cases were drawn."""

_PRIOR_TRIALS = 4.0
"""The number of scores that the expected variance of a case counts as, next to the observed one."""

_ONE_RUN = 1.0
"""The prior's weight, in scores, if no case has two scores that would show it."""


def expected_spread(scores: Sequence[Sequence[float]]) -> NDArray[Any]:
    """Return the expected standard deviation of the next score of each case, from its scores in earlier runs.

    The mean of a case is shrunk towards that of all cases, m: p = (Σx + s·m) / (n + s), with s the ratio of the
    variance within cases to that between them. Scores of 0 and 1 have the variance p(1-p); that of other scores is a
    fraction of it. The observed variance of the case counts as well. It is never 0: a case that always passed may fail.
    Cases without scores get the mean of the others; without any score, all are equal.

    Zrnic & Candès (2024), Active Statistical Inference, ICML, arXiv:2403.03208; arXiv:2601.20251, Factorized Active
    Querying.
    """
    counts = np.array([len(each) for each in scores], dtype=float)
    has_scores = counts > 0
    if not has_scores.any():
        return np.ones(len(counts))
    sums = np.array([sum(each) for each in scores], dtype=float)
    squares = np.array([sum(score * score for score in each) for each in scores], dtype=float)
    means = np.divide(sums, counts, where=has_scores, out=np.zeros_like(sums))
    deviations = np.maximum(0.0, squares - counts * np.square(means))
    centre = (sums.sum() + 0.5) / (counts.sum() + 1)  # not 1, although every score may be
    degrees = float((counts[has_scores] - 1).sum())
    within = float(deviations.sum()) / degrees if degrees else None
    prior = _ONE_RUN
    if within is not None:
        between = float(means[has_scores].var()) - within * float((1 / counts[has_scores]).mean())
        prior = float(np.clip(within / max(between, 1e-9), 1e-3, 100.0))
    level = (sums + prior * centre) / (counts + prior)
    chance = level * (1 - level)
    fraction = 1.0 if within is None else min(1.0, max(within, 1e-9) / float(chance[has_scores].mean()))
    variances = (_PRIOR_TRIALS * fraction * chance + deviations) / (_PRIOR_TRIALS + np.maximum(0, counts - 1))
    spread: NDArray[Any] = np.sqrt(variances)
    return np.where(has_scores, spread, spread[has_scores].mean())


def draw_probabilities(spread: NDArray[Any], cases: NDArray[Any], budget: float) -> NDArray[Any]:
    """Return the probability of each unit, so that `budget` cases are expected. Units have one or more `cases`.

    They are proportional to the mixture of the unit's spread and an equal part, up to 1.
    """
    if budget >= cases.sum():
        return np.ones(len(cases))
    # A unit that costs more has to tell more.
    sizes = spread / np.sqrt(cases)
    sizes = (1 - EQUAL_PART) * sizes / sizes.mean() + EQUAL_PART

    def is_within(scale: float) -> bool:
        return float((np.minimum(1.0, scale * sizes) * cases).sum()) <= budget

    scale, _ = bisect(is_within, 0.0, 1 / float(sizes.min()), steps=100)
    probabilities: NDArray[Any] = np.minimum(1.0, scale * sizes)
    return probabilities


def draw_units(probabilities: NDArray[Any], order: NDArray[Any], start: float) -> NDArray[Any]:
    """Return the units that systematic sampling draws: each with exactly its probability, and a fixed number of them.

    `order` is a random order of the units, and `start` a random number from 0 to 1. Madow (1949), Annals of
    Mathematical Statistics 20:333; in random order, two units are drawn nearly independently (Hartley & Rao 1962).
    """
    ends = np.cumsum(probabilities[order])
    total = float(np.round(ends[-1], 6))
    points = np.arange(start, total, 1.0)
    units: NDArray[Any] = np.sort(order[np.searchsorted(np.append(ends[:-1], np.inf), points, side="right")])
    return units
