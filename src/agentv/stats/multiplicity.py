"""P-values of many questions asked at once, adjusted: what is left may be held against one limit again."""

from __future__ import annotations

from collections.abc import Sequence

from agentv.stats.checks import share


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted so that the chance of any false finding among all stays below the limit: for gates.

    The i-th smallest of m is multiplied by m - i + 1, and none gets smaller than the one before. Holm (1979),
    Scandinavian Journal of Statistics 6:65.
    """
    count, largest = len(p_values), 0.0
    adjusted = [0.0] * count
    for rank, index in enumerate(_ascending(p_values)):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted so that the expected share of false findings among all findings stays below the limit: for looking.

    The i-th smallest of m is multiplied by m / i, and none gets larger than the one after. Benjamini & Hochberg (1995),
    Journal of the Royal Statistical Society B 57:289.
    """
    count, smallest = len(p_values), 1.0
    adjusted = [0.0] * count
    for rank, index in reversed(list(enumerate(_ascending(p_values), 1))):
        smallest = min(smallest, count / rank * p_values[index])
        adjusted[index] = smallest
    return adjusted


def _ascending(p_values: Sequence[float]) -> list[int]:
    for p_value in p_values:
        share(p_value, "A p-value")
    return sorted(range(len(p_values)), key=p_values.__getitem__)
