"""Several votes made into one value, and how far they lie apart. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """The mean, exact to the last bit, and never outside of the values."""
    return min(max(values), max(min(values), math.fsum(values) / len(values)))


def majority(values: Sequence[float]) -> float:
    """The value that most votes give; where several are given equally often, their mean."""
    counts = Counter(values)
    most = max(counts.values())
    return mean([value for value, count in counts.items() if count == most])


def spread(values: Sequence[float]) -> dict[str, float]:
    """How far votes lie apart: from the lowest to the highest, and the share that gives what most give."""
    return {"spread": max(values) - min(values), "agreement": max(Counter(values).values()) / len(values)}
