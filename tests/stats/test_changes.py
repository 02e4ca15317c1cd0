"""Change points in a series of means are found where they were planted, and nowhere else."""

import random

import pytest

from agentv.stats.intervals import wilson
from agentv.stats.sequential import Point, change_points


def run_of(chance, share, n):
    """The mean of n binary scores, with its interval."""
    passed = sum(chance.random() < share for _ in range(n)) / n
    return Point(passed, *wilson(passed, n))


@pytest.mark.parametrize("points", [[], [Point(0.5, 0.4, 0.6)], [Point(0.5, 0.5, 0.5)] * 3])
def test_a_series_that_is_too_short_has_no_change(points):
    assert change_points(points) == []


def test_a_step_is_located_with_both_levels():
    points = [Point(0.8, 0.78, 0.82)] * 4 + [Point(0.6, 0.58, 0.62)] * 3
    [change] = change_points(points)
    assert change.position == 4
    assert (change.before, change.after) == pytest.approx((0.8, 0.6))
    assert change.p_value < 0.001


def test_several_steps_are_found_in_order():
    levels = [0.9, 0.9, 0.5, 0.5, 0.5, 0.7, 0.7]
    changes = change_points([Point(level, level - 0.02, level + 0.02) for level in levels])
    assert [change.position for change in changes] == [2, 5]
    assert [change.after for change in changes] == pytest.approx([0.5, 0.7])


def test_a_wide_interval_has_less_weight():
    points = [Point(0.8, 0.78, 0.82)] * 3 + [Point(0.2, 0.0, 1.0)] + [Point(0.8, 0.78, 0.82)] * 3
    assert change_points(points) == []


def test_a_series_without_a_change_is_split_in_at_most_5_percent():
    chance = random.Random(1)
    split = sum(bool(change_points([run_of(chance, 0.8, 200) for _ in range(12)])) for _ in range(600))
    assert split / 600 <= 0.07


def test_a_planted_drop_is_found_most_of_the_time():
    chance = random.Random(2)
    found = 0
    for _ in range(200):
        points = [run_of(chance, 0.85, 400) for _ in range(6)] + [run_of(chance, 0.72, 400) for _ in range(6)]
        found += any(abs(change.position - 6) <= 1 for change in change_points(points))
    assert found / 200 >= 0.95
