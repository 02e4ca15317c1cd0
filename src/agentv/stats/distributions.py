"""Distributions that intervals and tests need: normal, Student's t, beta, binomial. Plain Python, no table."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


Interval = tuple[float, float]

Z95 = 1.959963984540054

_SERIES_FROM = 10_000
_TINY = 1e-300


def normal_cdf(z: float) -> float:
    """The probability to the left of z."""
    return math.erfc(-z / math.sqrt(2)) / 2


def normal_quantile(probability: float) -> float:
    """Where the normal distribution has that probability to its left."""
    from statistics import NormalDist  # late: it brings fractions and decimals with it

    return NormalDist().inv_cdf(probability)


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: float) -> float:
    """Where Student's t distribution has that probability to its left. Exact to about ten digits."""
    if not 0 < probability < 1 or degrees <= 0:
        raise ValueError("a probability is between 0 and 1, and there is at least part of a degree of freedom")
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    guess = _near_normal(probability, degrees)
    return guess if degrees >= _SERIES_FROM else _solve(probability, degrees, guess)


def t_cdf(t: float, degrees: float) -> float:
    """The probability to the left of t."""
    tail = t_p_value(t, degrees) / 2
    return 1 - tail if t > 0 else tail


def _near_normal(probability: float, degrees: float) -> float:
    """The normal quantile with the first terms of the series in 1 / degrees that leads to Student's."""
    z = Z95 if probability == 0.975 else normal_quantile(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def t_p_value(t: float, degrees: float) -> float:
    """How likely a value as far from 0 as t is, on either side."""
    return incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Where the beta distribution has that probability to its left, by halving an interval until nothing changes."""
    return crossing(lambda x: incomplete_beta(x, a, b) < probability, 0.0, 1.0)[1]


def crossing(is_outside: Callable[[float], bool], outside: float, inside: float, steps: int = 2_000) -> Interval:
    """Halve an interval around the place where `is_outside` stops to hold, until nothing changes."""
    for _ in range(steps):
        middle = (outside + inside) / 2
        if middle in (outside, inside):
            break
        outside, inside = (middle, inside) if is_outside(middle) else (outside, middle)
    return outside, inside


def binomial_pmf(hits: int, n: int, share: float = 0.5) -> float:
    """The probability of exactly so many hits in n trials."""
    if share in (0.0, 1.0):
        return float(hits == n * share)
    log = math.lgamma(n + 1) - math.lgamma(hits + 1) - math.lgamma(n - hits + 1)
    return math.exp(log + hits * math.log(share) + (n - hits) * math.log1p(-share))


def binomial_cdf(hits: int, n: int, share: float = 0.5) -> float:
    """The probability of at most so many hits in n trials."""
    if hits < 0:
        return 0.0
    return 1.0 if hits >= n else incomplete_beta(1 - share, n - hits, hits + 1)


def _solve(probability: float, degrees: float, guess: float) -> float:
    """Newton's steps, kept between two bounds that close in."""
    low, high = 0.0, max(guess, 1.0)
    while t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    t = min(max(guess, low), high)
    log = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    for _ in range(100):
        error = t_cdf(t, degrees) - probability
        low, high = (low, t) if error > 0 else (t, high)
        density = log - (degrees + 1) / 2 * math.log1p(t * t / degrees)
        step = error / math.exp(density)
        t = t - step if low <= t - step <= high else (low + high) / 2
        if abs(step) <= 1e-13 * t:
            break
    return t


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log) / a * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation, two terms a step."""
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _apart(1 + term * d)
            c = _apart(1 + term / c)
            fraction *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return fraction


def _apart(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


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
