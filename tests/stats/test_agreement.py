"""Agreement of raters against worked examples, statsmodels, and by how often intervals hold the truth."""

import math

import numpy as np
import pytest
from statsmodels.stats.inter_rater import cohens_kappa

from agentv.stats.agreement import cohen_kappa, krippendorff_alpha


def ratings(table):
    """Two raters' ratings from their cross table."""
    pairs = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    return [first for first, _ in pairs], [second for _, second in pairs]


def test_kappa_of_the_textbook():
    # 50 applications, two readers: both yes 20, both no 15, 5 and 10 apart: p_o = 0.7, p_e = 0.5.
    found = cohen_kappa(*ratings([[20, 5], [10, 15]]))
    assert (found.observed, found.expected, found.value) == pytest.approx((0.7, 0.5, 0.4))
    assert (found.n, found.categories, found.table) == (50, (0, 1), ((20, 5), (10, 15)))


TABLES = [
    [[20, 5], [10, 15]],
    [[44, 5, 1], [7, 20, 3], [9, 5, 6]],
    [[10, 2, 0, 1], [3, 12, 4, 0], [0, 5, 9, 2], [1, 0, 3, 14]],
    [[90, 1], [2, 1]],
]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_kappa_is_that_of_statsmodels(table, weights):
    known = cohens_kappa(np.array(table), wt=None if weights == "none" else weights)
    found = cohen_kappa(*ratings(table), weights=weights)
    assert found.value == pytest.approx(known.kappa, abs=1e-12)
    assert found.standard_error == pytest.approx(known.std_kappa, abs=1e-9)
    assert found.ci95 == pytest.approx((max(-1, known.kappa_low), min(1, known.kappa_upp)), abs=1e-9)


def test_raters_who_always_say_the_same_thing_tell_nothing():
    found = cohen_kappa(["pass"] * 9, ["pass"] * 9)
    assert (found.value, found.ci95, found.observed) == (None, None, 1.0)


def test_full_agreement_and_full_disagreement():
    assert cohen_kappa([0, 1, 0, 1], [0, 1, 0, 1]).value == pytest.approx(1)
    assert cohen_kappa([0, 1, 0, 1], [1, 0, 1, 0]).value == pytest.approx(-1)


def test_categories_that_nobody_chose_change_distances_only():
    first, second = ["bad", "good", "bad", "fine"], ["bad", "fine", "fine", "fine"]
    order = ["awful", "bad", "fine", "good"]
    assert cohen_kappa(first, second).value == cohen_kappa(first, second, categories=order).value
    assert cohen_kappa(first, second, weights="linear", categories=order).table[1] == (0, 1, 1, 0)


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match="2 and 1 ratings"):
        cohen_kappa([1, 2], [1])
    with pytest.raises(ValueError, match="nothing"):
        cohen_kappa([], [])
    with pytest.raises(ValueError, match="'c'"):
        cohen_kappa(["a"], ["c"], categories=["a", "b"])
    with pytest.raises(ValueError, match="rated twice"):
        krippendorff_alpha([[1, None], [2]])


# Krippendorff (2011): four observers, twelve units, gaps.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


@pytest.mark.parametrize(("scale", "value"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_krippendorffs_example(scale, value):
    found = krippendorff_alpha(list(zip(*OBSERVERS, strict=True)), scale=scale)
    assert round(found.value, 3) == value
    assert (found.units, found.values) == (11, 40)
    low, high = found.ci95
    assert low < found.value <= high <= 1


def test_alpha_of_two_raters_and_two_values_is_the_closed_form():
    # Krippendorff (2011), binary example: ten units, o_01 + o_10 = 8 of 20, n_0 = 14, n_1 = 6.
    first = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    second = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    units = list(zip(first, second, strict=True))
    assert krippendorff_alpha(units).value == pytest.approx(1 - 19 * 8 / (2 * 14 * 6))
    assert krippendorff_alpha(units, scale="interval").value == pytest.approx(1 - 19 * 8 / (2 * 14 * 6))


def test_alpha_without_variation_is_none_and_the_seed_repeats_it():
    assert krippendorff_alpha([[1, 1], [1, 1]]).value is None
    units = [[i % 3, (i * i) % 7 % 3] for i in range(40)]
    assert krippendorff_alpha(units, seed=3) == krippendorff_alpha(units, seed=3)
    assert krippendorff_alpha(units, seed=3).ci95 != krippendorff_alpha(units, seed=4).ci95


def test_kappas_interval_holds_the_truth():
    chance = np.random.default_rng(1)
    # Two raters who each see the same truth and err one time in ten: p_o = 0.82, p_e = 0.5, so kappa = 0.64.
    held = 0
    for _ in range(400):
        truth = chance.integers(0, 2, 200)
        first, second = (np.where(chance.random(200) < 0.1, 1 - truth, truth).tolist() for _ in range(2))
        low, high = cohen_kappa(first, second).ci95
        held += low <= 0.64 <= high
    assert 0.92 <= held / 400 <= 0.98
    assert math.isclose((0.82 - 0.5) / 0.5, 0.64)
