"""Correct the pass rate of a judge by labels, test whether those are a random sample, and choose the next ones.

Strata are those of `agentv.stats.judge_calibration`.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from agentv.stats.distributions import Z95
from agentv.stats.intervals import wilson
from agentv.stats.judge_calibration import IntervalEstimate, Labelled, Stratum, confusion, label_count

_CELL_PADDING = 0.25
"""Pseudo-observations per cell: a few labels that all agree must not give an interval of zero width."""


def balance_p_value(passed: int, labelled: int, all_passed: int, cases: int) -> float:
    """Return the p-value of the claim that the labelled cases are a random sample, from the judge's verdicts.

    The judge passed `passed` of the `labelled` cases, and `all_passed` of all. Two-sided hypergeometric test (Fisher).
    """
    possible = range(max(0, labelled + all_passed - cases), min(labelled, all_passed) + 1)
    chances = {hits: _hypergeometric(hits, labelled, all_passed, cases) for hits in possible}
    own = chances.get(passed, 1.0) * (1 + 1e-9)
    return min(1.0, math.fsum(chance for chance in chances.values() if chance <= own))


def _hypergeometric(hits: int, drawn: int, good: int, cases: int) -> float:
    """Return the probability of `hits` good cases among `drawn` of all."""
    ways = (_log_choose(good, hits), _log_choose(cases - good, drawn - hits), -_log_choose(cases, drawn))
    return math.exp(sum(ways))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def rogan_gladen(labelled: Sequence[Labelled], passed: int, cases: int) -> IntervalEstimate | None:
    """Estimate the true pass rate from the judge's, using how often it passes good and bad answers.

    The labelled cases are a random sample of `cases`, of which the judge passed `passed`. The interval is Fieller's: it
    is valid for a poor judge too, and is 0 to 1 if the judge may be guessing. None if the labels are all pass or all
    fail, because one of the two rates is then unknown, and if the judge passes bad answers at least as often as good
    ones.
    """
    (both, missed), (let_through, caught) = confusion(labelled)
    good, bad, n = both + missed, let_through + caught, len(labelled)
    if not good or not bad:
        return None
    exact = both / good + caught / bad - 1
    if exact <= 0:
        return None
    value = min(1.0, max(0.0, (passed / cases - let_through / bad) / exact))
    half = 2 * _CELL_PADDING
    finds, rejects = (both + _CELL_PADDING) / (good + half), (caught + _CELL_PADDING) / (bad + half)
    rest, share, base = cases - n, n / cases, good / n
    others = (passed - both - let_through + _CELL_PADDING) / (rest + half)
    slope = finds + rejects - 1
    # T(θ) = judge's pass rate - [θ·finds + (1 - θ)(1 - rejects)] is 0 at the true θ; the interval is where it can be 0.
    offset = (1 - share) * others + share * (base * finds + (1 - base) * (1 - rejects)) - (1 - rejects)
    of_good, of_bad = finds * (1 - finds) / (good + half), rejects * (1 - rejects) / (bad + half)
    fixed = (1 - share) ** 2 * others * (1 - others) / max(rest, 1) + (share * slope) ** 2 * base * (1 - base) / n
    from_good, from_bad = share * base, 1 - share * (1 - base)
    low, high = _roots(
        slope**2 - Z95**2 * (of_good + of_bad),
        -2 * offset * slope + 2 * Z95**2 * (from_good * of_good + from_bad * of_bad),
        offset**2 - Z95**2 * (fixed + from_good**2 * of_good + from_bad**2 * of_bad),
    )
    return IntervalEstimate(value, *((min(low, value), max(high, value)) if slope > 0 else (0.0, 1.0)), n)


def prediction_powered(strata: Sequence[Stratum], mean_score: float) -> IntervalEstimate | None:
    """Estimate the pass rate by PPI++: the labels' pass rate, corrected by the judge's scores of all cases.

    `mean_score` is the judge's mean over all cases. The better the scores predict the labels, the larger the
    correction; with a poor judge the interval is hardly wider than from labels alone. None if a stratum has no labels.
    """
    cases = sum(stratum.size for stratum in strata)
    if not cases or any(stratum.size and not stratum.labelled for stratum in strata):
        return None
    used = [stratum for stratum in strata if stratum.labelled]
    moments = [_label_moments(stratum.labelled) for stratum in used]
    # The sampling variance factor of each stratum; 0 if every case is labelled.
    factors = [
        (stratum.size / cases) ** 2 * max(0.0, 1 - len(stratum.labelled) / stratum.size) / len(stratum.labelled)
        for stratum in used
    ]
    of_labels, of_scores, shared = (
        math.fsum(factor * moment[k] for factor, moment in zip(factors, moments, strict=True)) for k in range(3)
    )
    # Limited to 0 to 1, as in the paper: the slope from a few labels is too uncertain.
    power = min(1.0, max(0.0, shared / of_scores)) if of_scores > 0 else 0.0
    labels = math.fsum(s.size / cases * fmean([e.label for e in s.labelled]) for s in used)
    scores = math.fsum(s.size / cases * fmean([e.score for e in s.labelled]) for s in used)
    value = min(1.0, max(0.0, labels + power * (mean_score - scores)))
    variance = max(0.0, of_labels - 2 * power * shared + power**2 * of_scores)
    inside = min(1 - 0.5 / cases, max(0.5 / cases, value))
    own = inside * (1 - inside)
    bounds = wilson(inside, own / (own / cases + variance))
    assert bounds is not None
    return IntervalEstimate(value, min(bounds[0], value), max(bounds[1], value), label_count(strata))


def next_labels(strata: Sequence[Stratum], count: int, fewest: int = 2) -> list[int]:
    """Distribute `count` further labels over the strata so that they narrow the interval most.

    Each label goes to the stratum where it reduces the variance most; strata with fewer than `fewest` come first.
    """
    total = sum(stratum.size for stratum in strata)
    have = [len(stratum.labelled) for stratum in strata]
    counts = [0] * len(strata)
    for _ in range(count):
        gains = [
            -1.0 if n == stratum.size else 1.0 + fewest - n if n < fewest else _gain(stratum, total, n)
            for stratum, n in zip(strata, have, strict=True)
        ]
        best = max(range(len(strata)), key=gains.__getitem__, default=None)
        if best is None or gains[best] < 0:
            break
        have[best] += 1
        counts[best] += 1
    return counts


def _gain(stratum: Stratum, total: int, n: int) -> float:
    """Estimate how much one more label reduces the variance."""
    share = (sum(item.label for item in stratum.labelled) + 1) / (len(stratum.labelled) + 2)
    return (stratum.size / total) ** 2 * share * (1 - share) * (1 / n - 1 / (n + 1))


def _label_moments(labelled: Sequence[Labelled]) -> tuple[float, float, float]:
    """Return the variances of labels and scores and their covariance, with one pseudo-observation over the corners."""
    lowest, highest = min(item.score for item in labelled), max(item.score for item in labelled)
    corners = [(label, score, _CELL_PADDING) for label in (0.0, 1.0) for score in (lowest, highest)]
    points = [(float(item.label), item.score, 1.0) for item in labelled] + corners
    weight = math.fsum(w for _, _, w in points)
    label = math.fsum(y * w for y, _, w in points) / weight
    score = math.fsum(f * w for _, f, w in points) / weight
    degrees = weight - 1
    return (
        math.fsum(w * (y - label) ** 2 for y, _, w in points) / degrees,
        math.fsum(w * (f - score) ** 2 for _, f, w in points) / degrees,
        math.fsum(w * (y - label) * (f - score) for y, f, w in points) / degrees,
    )


def _roots(square: float, linear: float, constant: float) -> tuple[float, float]:
    """Return the part of [0, 1] where a parabola is at most 0; all of it if the parabola opens downwards."""
    inner = linear**2 - 4 * square * constant
    if square <= 0 or inner < 0:
        return 0.0, 1.0
    root = math.sqrt(inner)
    return max(0.0, (-linear - root) / (2 * square)), min(1.0, (-linear + root) / (2 * square))
