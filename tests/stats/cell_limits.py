"""Limits of simulated rates: the nominal level and two standard errors of the simulation."""

import math

ENOUGH = 1_000
"""With this number of simulations, an interval that covers 95 % is below 93 % by chance in 2 of 1,000 cells."""


def two_errors(level, simulations):
    return 2 * math.sqrt(level * (1 - level) / simulations)


def at_most(level, simulations):
    """The nominal level of false verdicts plus two standard errors."""
    return 0.0, level + two_errors(level, simulations)


def at_least(level, simulations):
    """A power less two standard errors."""
    return level - two_errors(level, simulations), 1.0


def coverage(simulations):
    """At least 93 %; less two standard errors in a quick test."""
    return (0.93, 1.0) if simulations >= ENOUGH else at_least(0.93, simulations)


def range_of(low, high, simulations):
    """From the first rate to the second, with two standard errors on both sides."""
    return low - two_errors(low, simulations), high + two_errors(high, simulations)
