"""Normal, Student's t, beta and binomial distributions, in plain Python, and checks of arguments."""

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
_LARGEST_Z = 40.0


def normal_cdf(z: float) -> float:
    """Return P(Z ≤ z) of the standard normal distribution."""
    return math.erfc(-z / math.sqrt(2)) / 2


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution."""
    if not 0 < probability < 1:
        raise ValueError("the probability must be between 0 and 1")
    if probability > 0.5:
        return -normal_quantile(1 - probability)
    # Not statistics.NormalDist: that module takes long to import.
    return _by_newton(
        lambda z: normal_cdf(z) - probability,
        lambda z: math.exp(-z * z / 2) / math.sqrt(2 * math.pi),
        -1.0,
        (-_LARGEST_Z, 0.0),
    )


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t distribution, exact to about ten digits."""
    if not 0 < probability < 1 or degrees <= 0:
        raise ValueError("the probability must be between 0 and 1, and the degrees of freedom above 0")
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    guess = _t_series(probability, degrees)
    return guess if degrees >= _SERIES_FROM else _t_by_newton(probability, degrees, guess)


def t_cdf(t: float, degrees: float) -> float:
    """Return P(T ≤ t) of Student's t distribution."""
    tail = t_p_value(t, degrees) / 2
    return 1 - tail if t > 0 else tail


def _t_series(probability: float, degrees: float) -> float:
    """Approximate the t quantile: the normal quantile and three terms of its series in 1 / degrees."""
    z = Z95 if probability == 0.975 else normal_quantile(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def t_p_value(t: float, degrees: float) -> float:
    """Return the two-sided p-value of a t statistic."""
    return incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of the beta distribution."""
    mean = a / (a + b)
    guess = mean + normal_quantile(probability) * math.sqrt(mean * (1 - mean) / (a + b + 1))
    log = _log_beta(a, b)
    return _by_newton(
        lambda x: incomplete_beta(x, a, b) - probability,
        lambda x: math.exp((a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - log),
        min(max(guess, mean / 100), 1 - (1 - mean) / 100),
        (0.0, 1.0),
    )


def bisect(is_outside: Callable[[float], bool], outside: float, inside: float, steps: int = 2_000) -> Interval:
    """Bisect to the point where `is_outside` stops being true, down to floating-point precision."""
    for _ in range(steps):
        middle = (outside + inside) / 2
        if middle in (outside, inside):
            break
        outside, inside = (middle, inside) if is_outside(middle) else (outside, middle)
    return outside, inside


def binomial_pmf(hits: int, n: int, share: float = 0.5) -> float:
    """Return the probability of exactly `hits` successes in n trials."""
    if share in (0.0, 1.0):
        return float(hits == n * share)
    log = math.lgamma(n + 1) - math.lgamma(hits + 1) - math.lgamma(n - hits + 1)
    return math.exp(log + hits * math.log(share) + (n - hits) * math.log1p(-share))


def binomial_cdf(hits: int, n: int, share: float = 0.5) -> float:
    """Return the probability of at most `hits` successes in n trials."""
    if hits < 0:
        return 0.0
    return 1.0 if hits >= n else incomplete_beta(1 - share, n - hits, hits + 1)


def _t_by_newton(probability: float, degrees: float, guess: float) -> float:
    """Refine a t quantile."""
    low, high = 0.0, max(guess, 1.0)
    while t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    log = _log_beta(degrees / 2, 0.5) + 0.5 * math.log(degrees)
    return _by_newton(
        lambda t: t_cdf(t, degrees) - probability,
        lambda t: math.exp(-(degrees + 1) / 2 * math.log1p(t * t / degrees) - log),
        min(max(guess, low), high),
        (low, high),
    )


def _by_newton(
    error: Callable[[float], float], slope: Callable[[float], float], guess: float, bounds: Interval
) -> float:
    """Return the root of an increasing function by Newton's method, or by bisection where a step leaves the bounds."""
    low, high = bounds
    x = guess
    for _ in range(2_000):
        off = error(x)
        low, high = (low, x) if off > 0 else (x, high)
        steepness = slope(x)
        step = off / steepness if steepness else math.inf
        if abs(step) <= 1e-11 * abs(x):  # converges quadratically: the next step would be a rounding error
            return min(max(x - step, low), high)
        x = x - step if low < x - step < high else (low + high) / 2
        if x in (low, high):
            break
    return x


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    log = a * math.log(x) + b * math.log1p(-x) - _log_beta(a, b)
    return math.exp(log) / a * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction by Lentz's method, two terms per step."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            fraction *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return fraction


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def finite_array(values: ArrayLike, what: str = "Scores") -> NDArray[Any]:
    """Return the values as an array. Raises ValueError unless all are finite."""
    import numpy as np  # late: see agentv.stats

    array = np.asarray(values, dtype=float)
    finite = np.isfinite(array)
    if not finite.all():
        raise ValueError(f"{what} must be finite numbers, got {array[~finite][0]}")
    return array


def vector(values: ArrayLike, what: str = "Scores") -> NDArray[Any]:
    """Return the values as a one-dimensional array of finite numbers."""
    array = finite_array(values, what)
    if array.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, got {array.ndim} dimensions")
    return array


def check_fraction(value: float, what: str = "A score") -> None:
    """Raise ValueError unless the value is from 0 to 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"{what} must be from 0 to 1, got {value}")


def check_nonnegative(value: float, what: str) -> None:
    """Raise ValueError unless the value is finite and not negative."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{what} must be finite and not negative, got {value}")
