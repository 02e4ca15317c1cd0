"""Draws of cases by history: their probabilities, and simulated claims about drawn cases and many variants."""

import numpy as np
import pytest
from draw_rows import curse_rows, history_rows, select_rows, until_rows
from recorded_rows import recorded_rows

from agentv.stats.case_draw import draw_probabilities, draw_units, expected_spread
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.means import clustered_mean
from agentv.stats.paired_comparison import compare_paired, compare_weighted

pytestmark = pytest.mark.ci


def test_cases_that_vary_have_a_larger_spread_and_none_has_none():
    spread = expected_spread([[1, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1], []])
    assert spread[1] > spread[2] > 0
    assert spread[0] == spread[3] > 0
    assert spread[4] == pytest.approx(spread[:4].mean())


@pytest.mark.parametrize("scores", [[[], []], [[1.0], [1.0]], [[0.5, 0.5], [0.5, 0.5]]])
def test_cases_that_look_the_same_have_the_same_spread(scores):
    assert np.ptp(expected_spread(scores)) == 0


@pytest.mark.parametrize("budget", [1, 7, 40, 99])
def test_the_probabilities_add_up_to_the_budget_and_are_exact(budget):
    draw = np.random.default_rng(1)
    probabilities = draw_probabilities(draw.random(100), np.ones(100), budget)
    assert probabilities.sum() == pytest.approx(budget)
    assert (probabilities > 0).all() and (probabilities <= 1).all()
    draws = [draw_units(probabilities, draw.permutation(100), draw.random()) for _ in range(3_000)]
    assert {len(units) for units in draws} == {budget}
    rates = np.bincount(np.concatenate(draws), minlength=100) / len(draws)
    assert np.abs(rates - probabilities).max() < 0.05


def test_a_unit_with_more_cases_costs_more_of_the_budget():
    cases = np.array([1.0] * 50 + [5.0] * 10)
    probabilities = draw_probabilities(np.ones(60), cases, 20)
    assert (probabilities * cases).sum() == pytest.approx(20)


def test_equal_weights_give_the_ordinary_mean():
    values, clusters = np.random.default_rng(2).random(30), np.arange(30) // 3
    weighted, plain = clustered_mean(values, clusters, weights=np.full(30, 8.0)), clustered_mean(values, clusters)
    assert weighted.value == pytest.approx(plain.value)
    assert weighted.ci95 == pytest.approx(plain.ci95, abs=0.02)


@pytest.mark.parametrize("probabilities", [[0.3] * 10 + [0.7] * 5, [0.1, 0.2, 0.3] * 7, [1.0, 0.7, 0.1] * 30])
def test_drawn_cases_that_all_pass_have_a_mean_of_1_and_an_interval(probabilities):
    mean = MeanAccumulator()
    for case, probability in enumerate(probabilities):
        mean.add(1.0, case, 1 / probability)
    assert mean.mean == 1 == mean.ci95[1]


def test_the_weighted_difference_and_its_error_are_those_of_the_formula():
    draw = np.random.default_rng(4)
    before, after, weights = draw.random(40), draw.random(40), 1 + draw.random(40)
    found = compare_weighted(before, after, weights)
    shares, delta = weights / weights.sum(), after - before
    mean = float((shares * delta).sum())
    assert found.mean_delta == pytest.approx(mean)
    error = np.sqrt(40 / 39 * np.square(shares * (delta - mean) / (1 - shares)).sum())
    assert found.standard_error == pytest.approx(error)
    assert found.differing == compare_paired(before, after).differing


@pytest.mark.parametrize("rows", [history_rows, select_rows])
def test_claims_hold_in_a_few_simulations(rows):
    assert [row for row in rows(30) if not row.is_within_limits] == []


def test_draws_from_the_answers_of_a_real_model_cover_its_full_runs():
    rows = list(recorded_rows(40))
    assert len({row.suite for row in rows}) == 2
    assert [row for row in rows if row.coverage[0] < 0.85] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rows", [history_rows, until_rows, select_rows, curse_rows, recorded_rows])
def test_every_claim_of_the_table_holds(rows):
    assert [row for row in rows() if not row.is_within_limits] == []
