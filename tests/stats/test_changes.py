"""Changes in a series of runs are found where they were planted, and in at most 5 % of flat series."""

import numpy as np
import pytest
from trend_rows import FALLS, FLAT, Shape, simulated, trend_rows

from agentv.stats.level_changes import LIMIT, RunValues, Wealth, change_points, surprise

pytestmark = pytest.mark.ci

NONE = np.arange(0)


def run_of(scores, errors=NONE, cases=None):
    return RunValues(np.arange(len(scores)) if cases is None else np.asarray(cases), np.asarray(scores, float), errors)


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [run_of([1, 0, 1])],
        [run_of([0.7] * 9)] * 5,
        [run_of([]), run_of([1, 0]), run_of([])],
        [run_of([1] * 50), run_of([0] * 50, cases=range(50, 100))],
    ],
    ids=["no run", "one run", "equal scores", "runs without scores", "no case in common"],
)
def test_a_series_without_information_has_no_change(runs):
    assert change_points(runs) == []


def test_two_runs_are_compared_by_flipping_the_signs_of_differences():
    # Of 2^5 assignments of five changed cases, one has all wins on the side of the second run.
    rise, fall = surprise([run_of([0] * 5 + [1] * 20), run_of([1] * 25)])
    assert rise == fall == pytest.approx(1.863, abs=0.001)  # Φ(1.863) = 31/32
    assert surprise([run_of([1] * 25), run_of([0] * 5 + [1] * 20)])[0] == pytest.approx(-1.863, abs=0.001)
    assert surprise([run_of([1, 0]), run_of([0, 1])]) == (0.0, 0.0)


def test_a_step_is_located_with_both_levels_over_shared_cases():
    draw = np.random.default_rng(1)
    runs = [run_of(draw.random(200) < (0.9 if number < 4 else 0.6)) for number in range(8)]
    [change] = change_points(runs)
    assert (change.position, change.cases) == (4, 200)
    assert change.found_at in (4, 5)
    assert (change.before, change.after) == pytest.approx((0.9, 0.6), abs=0.04)
    assert change.p_value < 0.05


def test_several_steps_are_found_in_order():
    draw = np.random.default_rng(2)
    levels = [0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.8, 0.8, 0.8]
    assert [change.position for change in change_points([run_of(draw.random(300) < x) for x in levels])] == [3, 6]


def test_a_report_does_not_depend_on_later_runs():
    runs, _ = simulated(Shape("", 200, 14, fall=0.15, at=6), np.random.default_rng(3))
    [found] = change_points(runs)
    for look in range(len(runs) + 1):
        positions = [change.position for change in change_points(runs[:look])]
        assert positions == ([found.position] if look > found.found_at else [])


def test_new_cases_are_not_a_change():
    # From run 5 on, half of the cases are replaced by hard ones.
    old, new = np.arange(100), np.r_[np.arange(50), np.arange(100, 150)]
    draw = np.random.default_rng(4)
    runs = [run_of(draw.random(100) < 0.9, cases=old) for _ in range(4)]
    runs += [run_of(draw.random(100) < np.where(new < 100, 0.9, 0.2), cases=new) for _ in range(4)]
    assert change_points(runs) == []


def test_failures_that_turn_into_errors_are_not_a_rise():
    draw = np.random.default_rng(5)
    runs = [run_of(draw.random(200) < 0.7) for _ in range(4)]
    for _ in range(4):
        passed = draw.random(200) < 0.7
        kept = passed | (draw.random(200) < 0.2)
        runs.append(run_of(passed[kept], np.flatnonzero(~kept), np.flatnonzero(kept)))
    assert change_points(runs) == []
    # Without the errors, the mean of the scored cases rose.
    assert change_points([run._replace(errors=NONE) for run in runs])[0].after > 0.85


def test_wealth_without_a_change_reaches_the_limit_in_less_than_5_percent():
    draw = np.random.default_rng(6)
    reached = 0
    for _ in range(120):
        wealth = Wealth()
        most = 0.0
        for z in draw.standard_normal(30):
            wealth.add(z, z)
            most = max(most, wealth.total)
        reached += most >= LIMIT
    assert reached / 120 <= 0.07


def test_flat_series_rarely_change_and_falls_are_found():
    chosen = [shape for shape in FLAT if shape.n * shape.runs <= 600]
    rows = list(trend_rows(30, chosen, FALLS))
    assert [row for row in rows if not row.is_within_limits] == []
    assert sum(row.rate for row in rows[: len(chosen)]) / len(chosen) <= 0.05


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_every_flat_shape_changes_in_at_most_5_percent():
    assert [row for row in trend_rows() if not row.limits[0] <= row.rate <= row.limits[1]] == []


@pytest.mark.parametrize("n", [10, 20, 60])
def test_small_gains_that_may_hide_rare_losses_are_not_a_change(n):
    draw = np.random.default_rng(5)
    found = 0
    for _ in range(100):
        first = np.full(n, 0.6)
        second = np.where(draw.random(n) < 0.05, 0.03, 0.63)
        cases, none = np.arange(n), np.arange(0)
        found += bool(change_points([RunValues(cases, first, none), RunValues(cases, second, none)]))
    assert found <= 12
