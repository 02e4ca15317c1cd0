"""What functions of this package refuse: numbers that are none, and values where none can be. Raises ValueError."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def numbers(values: ArrayLike, what: str = "Scores") -> NDArray[Any]:
    """The values as an array of finite numbers."""
    import numpy as np  # late: see agentv.stats

    found = np.asarray(values, dtype=float)
    finite = np.isfinite(found)
    if not finite.all():
        raise ValueError(f"{what} are finite numbers, got {found[~finite][0]}")
    return found


def row(values: ArrayLike, what: str = "Scores") -> NDArray[Any]:
    """The same, of values that stand in one row."""
    found = numbers(values, what)
    if found.ndim != 1:
        raise ValueError(f"{what} stand in one row, got {found.ndim} dimensions")
    return found


def share(value: float, what: str = "A score") -> float:
    """A value from 0 to 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"{what} is from 0 to 1, got {value}")
    return value


def not_negative(value: float, what: str) -> float:
    """A finite value of 0 or more."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{what} is 0 or more, got {value}")
    return value
