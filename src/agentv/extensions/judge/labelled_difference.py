"""The difference of two runs from a judge's scores of all cases and human labels of some (PPI++)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentv.stats.distributions import t_p_value, t_quantile
from agentv.stats.intervals import CONFIDENCE
from agentv.stats.means import cluster_sums, clustered_mean
from agentv.stats.paired_comparison import Paired

FEWEST_PAIRS = 30
"""The labelled pairs that the interval needs for 93 % coverage."""

FEWEST_IN_A_STRATUM = 5
"""The labels that each of the judge's wins, ties and losses needs, unless all of its cases are labelled."""

_TIE = 1e-9


class LabelledPairs(NamedTuple):
    """Cases whose answers in both runs are labelled: their rows, and the differences of the labels from -1 to 1.

    `is_random` if they are a random sample of all cases; otherwise only of the judge's wins, losses and ties.
    """

    rows: NDArray[Any]
    labels: NDArray[Any]
    is_random: bool = True


def compare_labelled(
    paired: Paired, deltas: NDArray[Any], pairs: LabelledPairs, clusters: NDArray[Any] | None = None
) -> Paired | None:
    """Return a comparison whose difference, interval and p-value come from labels, with the judge's help.

    `deltas` are the judge's differences of all cases. θ = Σ_h W_h (ȳ_h + λ (F̄_h - f̄_h)): in each stratum h, the judge's
    wins, ties and losses, the mean of the labels y is corrected by the judge's mean over all cases F̄ against that over
    the labelled ones f̄. λ, from 0 to 1, minimizes the variance, so that a poor judge hardly widens the interval. A bias
    of the judge, also one in favour of a run, cancels out. None with fewer than 30 pairs, or a stratum without labels.

    Angelopoulos, Duchi & Zrnic (2023), PPI++, arXiv:2311.01453; Fisch et al. (2024), Stratified PPI, arXiv:2406.04291.
    """
    strata = _strata(deltas, pairs)
    if strata is None or len(pairs.rows) < FEWEST_PAIRS:
        return None
    power = _power(deltas, pairs, strata)
    residuals = pairs.labels - power * deltas[pairs.rows]
    value, parts = power * float(deltas.mean()), np.zeros(len(residuals))
    for stratum, members in strata:
        weight, count = len(stratum) / len(deltas), len(members)
        own = residuals[members]
        value += weight * float(own.mean())
        if count == len(stratum):
            continue  # The mean of these cases is known.
        spread = max(1.0, math.sqrt(1 / (count + 2) / max(float(own.var(ddof=1)), 1e-12)))
        finite = math.sqrt((1 - count / len(stratum)) * count / (count - 1))
        parts[members] = weight / count * finite * spread * (own - own.mean())
        if not own.var():  # equal labels do not prove that all others are equal
            parts[members] = weight / count * finite * math.sqrt(1 / (count + 2))
    sums = cluster_sums(parts, None if clusters is None else clusters[pairs.rows])
    variance = float(np.square(sums).sum()) + _variance_of_cases(deltas, pairs, strata, clusters)
    error, degrees = math.sqrt(variance), max(1, len(sums) - len(strata))
    half = t_quantile(0.5 + CONFIDENCE / 2, degrees) * error
    changed = cluster_sums(np.abs(pairs.labels), None if clusters is None else clusters[pairs.rows])
    return paired._replace(
        mean_delta=value,
        standard_error=error,
        ci95=(max(-1.0, value - half), min(1.0, value + half)),
        p_value=t_p_value(value / error, degrees),
        test="PPI++",
        differing=int((changed > 0).sum()),
        minimum_detectable_difference=None,
        resamples=None,
        exact=False,
    )


def _strata(deltas: NDArray[Any], pairs: LabelledPairs) -> list[tuple[NDArray[Any], NDArray[Any]]] | None:
    """Return the rows of all cases and the places of the labelled ones, by the judge's losses, ties and wins.

    There is one stratum if one of them has too few labels; None if the labels are not a random sample of it.
    """
    signs = np.where(np.abs(deltas) < _TIE, 0, np.sign(deltas))
    kinds = [kind for kind in (-1, 0, 1) if (signs == kind).any()]
    strata = [(np.flatnonzero(signs == kind), np.flatnonzero(signs[pairs.rows] == kind)) for kind in kinds]
    if all(len(members) >= min(FEWEST_IN_A_STRATUM, len(stratum)) for stratum, members in strata):
        return strata
    return [(np.arange(len(deltas)), np.arange(len(pairs.rows)))] if pairs.is_random else None


def _power(deltas: NDArray[Any], pairs: LabelledPairs, strata: list[tuple[NDArray[Any], NDArray[Any]]]) -> float:
    """Return the λ that minimizes the variance, from 0 to 1."""
    shared = own = 0.0
    for stratum, members in strata:
        scores, labels = deltas[pairs.rows[members]], pairs.labels[members]
        factor = (len(stratum) / len(deltas)) ** 2 / len(members)
        shared += factor * float(((scores - scores.mean()) * (labels - labels.mean())).mean())
        own += factor * float(scores.var())
    return min(1.0, max(0.0, shared / own)) if own > 0 else 0.0


def _variance_of_cases(
    deltas: NDArray[Any],
    pairs: LabelledPairs,
    strata: list[tuple[NDArray[Any], NDArray[Any]]],
    clusters: NDArray[Any] | None,
) -> float:
    """Return the variance of the mean label difference of all cases, as a sample of possible cases.

    Equal labels of all cases do not prove that other cases would have them too.
    """
    moments = [
        [len(stratum) / len(deltas) * float((pairs.labels[members] ** k).mean()) for stratum, members in strata]
        for k in (1, 2)
    ]
    variance = max(1 / (len(deltas) + 2), sum(moments[1]) - sum(moments[0]) ** 2) / len(deltas)
    if clusters is None:
        return variance
    plain, clustered = (clustered_mean(deltas, names).standard_error for names in (None, clusters))
    return variance * max(1.0, (clustered / plain) ** 2) if plain and clustered else variance
