"""Paired comparison of cases that were drawn with unequal probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentv.stats.means import cluster_sums, clustered_mean, paired_vectors, t_test
from agentv.stats.paired_comparison import Paired, compare_paired, possible_change
from agentv.stats.power import Noise, detectable_difference


def compare_weighted(
    before: ArrayLike, after: ArrayLike, weights: NDArray[Any], clusters: ArrayLike | None = None, *, seed: int = 0
) -> Paired:
    """Compare two sides on cases drawn with unequal probabilities; `weights` are their inverses.

    The difference is Σw(b-a) / Σw: the difference estimator of survey sampling, with the first side as the known value
    of each case. Its t interval is that of a ratio between clusters, without a correction for the fraction of cases
    drawn: it is about the population that all cases are a sample of, like that of `compare_paired`. It is widened for
    rare changes. Särndal, Swensson & Wretman (1992), Model Assisted Survey Sampling, 6.3; Zrnic & Candès (2024),
    arXiv:2403.03208.
    """
    first, second = paired_vectors(before, after)
    paired = compare_paired(first, second, clusters, seed=seed, test=False)
    scores = cluster_sums(first, clusters) / cluster_sums(np.ones_like(first), clusters)
    extremes = -possible_change(scores), possible_change(1 - scores)
    estimate = clustered_mean(second - first, clusters, (-1.0, 1.0), extremes, weights)
    shares = weights / weights.sum()
    error = estimate.standard_error
    noise = None if error is None else Noise(error**2 * len(first), loss=-extremes[0])
    return paired._replace(
        mean_before=float((shares * first).sum()),
        mean_after=float((shares * second).sum()),
        mean_delta=estimate.value,
        standard_error=error,
        ci95=estimate.ci95,
        p_value=t_test(estimate),
        test="weighted t",
        minimum_detectable_difference=None if noise is None else detectable_difference(noise, len(first)),
        exact=False,
        variance_slope=estimate.variance_slope,
    )
