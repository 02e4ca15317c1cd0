"""Successive halving: how many variants and cases each round has, and which variants go on."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import msgspec

CONFIRMATION = 0.6
"""The fraction of the cases that take no part in the choice, and confirm it."""

_FINALISTS = 5
"""The largest number of variants of which a round picks the best one."""

Scores = Mapping[Any, float]
"""The mean score of each case that a variant answered, by case."""


class Round(msgspec.Struct, frozen=True):
    """A round of the choice: all `variants` left answer `cases` more cases, and the best `survivors` go on."""

    variants: int
    cases: int
    survivors: int

    @property
    def calls(self) -> int:
        """The number of answers in the round."""
        return self.variants * self.cases


class Schedule(msgspec.Struct, frozen=True):
    """The rounds, and the number of cases on which the winner is compared with the baseline."""

    rounds: tuple[Round, ...]
    confirmation: int

    @property
    def calls(self) -> int:
        """The number of answers in total, with one trial."""
        return sum(each.calls for each in self.rounds) + 2 * self.confirmation

    @property
    def cases(self) -> int:
        """The number of different cases."""
        return sum(each.cases for each in self.rounds) + self.confirmation


def plan_rounds(variants: int, cases: int, calls: int | None = None) -> Schedule:
    """Return the schedule for all cases, or for as many as the number of calls allows.

    The rounds halve the variants until five are left, of which the next picks one; each has the same number of calls.
    Two variants need no choice: one is the baseline, and the other is confirmed. Karnin, Koren & Somekh (2013), Almost
    Optimal Exploration in Multi-Armed Bandits, ICML.
    """
    schedule = _schedule(variants, cases)
    if calls is None or schedule.calls <= calls:
        return schedule
    low, high = 0, cases
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _schedule(variants, middle).calls <= calls else (low, middle)
    return _schedule(variants, low)


def _schedule(variants: int, cases: int) -> Schedule:
    counts = [variants] if variants > 2 else []
    while counts and counts[-1] > _FINALISTS:
        counts.append(math.ceil(counts[-1] / 2))
    survivors = [*counts[1:], 1]
    scale = (1 - CONFIRMATION) * cases / sum(1 / count for count in counts) if counts else 0.0
    rounds = tuple(Round(count, round(scale / count), rest) for count, rest in zip(counts, survivors, strict=False))
    return Schedule(rounds, cases - sum(each.cases for each in rounds))


def surviving(scores: Mapping[str, Scores], count: int) -> tuple[str, ...]:
    """Return the variants with the highest means over the cases that all of them scored, in the given order.

    A variant without any score is out. If no case was scored by all, each has its own mean. Ties go to the first.
    """
    scored = {name: values for name, values in scores.items() if values}
    common = set.intersection(*map(set, scored.values())) if scored else set()
    means = {name: fmean([values[case] for case in (common or values)]) for name, values in scored.items()}
    best = sorted(means, key=lambda name: -means[name])[:count]
    return tuple(name for name in scores if name in best)
