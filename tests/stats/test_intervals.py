"""Intervals: closed forms, scipy where installed, and coverage."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.stats.distributions import Z95, t_cdf, t_quantile
from agentv.stats.intervals import MeanAccumulator, clopper_pearson, proportion_interval, rare_limit, wilson
from agentv.stats.means import clustered_mean, paired_difference
from agentv.stats.paired_comparison import compare_paired
from agentv.stats.power import non_inferiority

pytestmark = pytest.mark.ci


def fed(scores, clusters=None):
    mean = MeanAccumulator()
    for position, score in enumerate(scores):
        mean.add(score, None if clusters is None else clusters[position])
    return mean


# Quantiles of printed tables, to three decimal places.
TABLE = {3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 30: 2.042, 60: 2.000, 120: 1.980}


@pytest.mark.parametrize("degrees", TABLE)
def test_quantiles_match_printed_tables(degrees):
    assert round(t_quantile(0.975, degrees), 3) == TABLE[degrees]


@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975, 0.995, 0.9999])
def test_quantiles_agree_with_closed_forms(probability):
    tail = 4 * probability * (1 - probability)
    assert t_quantile(probability, 1) == pytest.approx(math.tan(math.pi * (probability - 0.5)))
    assert t_quantile(probability, 2) == pytest.approx((2 * probability - 1) * math.sqrt(2 / tail))
    # With four degrees of freedom: 2 sqrt(q - 1), q = cos(arccos(sqrt(a)) / 3) / sqrt(a), a = 4 p (1 - p).
    q = math.cos(math.acos(math.sqrt(tail)) / 3) / math.sqrt(tail)
    assert t_quantile(probability, 4) == pytest.approx(2 * math.sqrt(q - 1), rel=1e-9)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4.5, 7, 29, 200, 5000])
@pytest.mark.parametrize("probability", [0.001, 0.025, 0.3, 0.5, 0.8, 0.975, 0.9999])
def test_the_quantile_is_the_inverse_of_the_distribution(probability, degrees):
    assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-10)


def test_many_degrees_of_freedom_approach_the_normal_distribution():
    assert t_quantile(0.975, 9_999) == pytest.approx(t_quantile(0.975, 10_000), abs=1e-7)
    assert t_quantile(0.975, 1e9) == pytest.approx(Z95, abs=1e-8)


def test_invalid_arguments_are_rejected():
    for probability, degrees in [(0.0, 3), (1.0, 3), (0.5, 0)]:
        with pytest.raises(ValueError, match="probability"):
            t_quantile(probability, degrees)


def test_quantiles_and_proportions_match_scipy():
    stats = pytest.importorskip("scipy.stats")
    for degrees in (1, 2, 3, 5, 8.5, 30, 99, 1000, 20_000):
        for probability in (0.55, 0.9, 0.975, 0.999):
            assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-9)
    for hits, n in [(0, 10), (3, 10), (10, 10), (37, 1000)]:
        known = stats.binomtest(hits, n).proportion_ci(method="wilson")
        assert wilson(hits / n, n) == pytest.approx((known.low, known.high), abs=1e-12)


def test_wilsons_interval_matches_published_values():
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for hits, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson(hits / n, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson(1.0, 20) == (pytest.approx(1 - 0.1611, abs=5e-5), 1.0)
    assert wilson(0.0, 0) is None


def test_the_interval_of_a_mean_is_students_t():
    mean = fed([0.2, 0.4, 0.6, 0.8])
    half = t_quantile(0.975, 3) * math.sqrt(0.2 / 3 / 4)
    assert mean.n == 4
    assert mean.mean == pytest.approx(0.5)
    assert mean.ci95 == pytest.approx((0.5 - half, 0.5 + half))


def test_binary_scores_get_the_exact_interval():
    assert fed([1, 0, 1, 1]).ci95 == clopper_pearson(3, 4)
    assert fed([1.0] * 30).ci95 == clopper_pearson(30, 30)
    assert fed([0]).ci95 == clopper_pearson(0, 1)


@pytest.mark.parametrize("scores", [[], [0.5]])
def test_too_few_scores_have_no_interval(scores):
    assert fed(scores).ci95 is None


@pytest.mark.parametrize("clusters", [None, [0, 0, 0, 1, 1, 1]], ids=["alone", "clustered"])
def test_equal_scores_still_have_an_interval(clusters):
    unseen = rare_limit(0, len(set(clusters)) if clusters else 6)
    assert fed([0.7] * 6, clusters).ci95 == pytest.approx((0.7 * (1 - unseen), 0.7 + 0.3 * unseen))


def test_five_scores_of_1_and_almost_the_same_have_about_the_same_interval():
    assert fed([1.0] * 5).ci95 == pytest.approx((0.478, 1.0), abs=0.001)
    assert fed([1.0] * 4 + [0.99]).ci95 == pytest.approx((0.524, 1.0), abs=0.001)


@pytest.mark.parametrize("scores", [[1, 1, 1], [1, 1, 0], [1, 0, 0, 1, 1, 0, 1]])
@pytest.mark.parametrize("trials", [2, 5])
def test_repeated_trials_with_the_same_scores_do_not_widen_the_interval(scores, trials):
    repeated, cases = scores * trials, [*range(len(scores))] * trials
    assert fed(repeated, cases).ci95 == pytest.approx(fed(scores).ci95)


def test_many_equal_scores_have_a_narrow_interval():
    low, high = fed([0.7] * 10_000).ci95
    assert (low, high) == (pytest.approx(0.7, abs=0.001), pytest.approx(0.7, abs=0.001))


@pytest.mark.parametrize("size", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("sign", [1, -1])
def test_equal_differences_are_claimed_only_if_unseen_changes_cannot_outweigh_them(size, sign):
    answers = []
    for n in (2, 5, 6, 10, 30, 300):
        # Differences that differ only by rounding, such as 0.8 - 0.6 and 0.7 - 0.5.
        before = np.array([0.5 - sign * size / 2 + number % 3 * 0.01 for number in range(n)])
        found = compare_paired(before, before + sign * size)
        table = compare_paired(before, before + sign * size, test=False)
        assert found.standard_error == 0.0
        assert table.p_value == pytest.approx(2.0 ** (1 - n))
        assert found.answer == table.answer
        if found.answer != "cannot tell":
            assert n >= 6
            assert size > rare_limit(0, n) / 2
        answers.append(found.answer)
    assert answers[-1] == ("better" if sign > 0 else "worse")


@pytest.mark.parametrize(("wins", "losses", "answer"), [(0, 4, "cannot tell"), (5, 0, "cannot tell"), (6, 0, "better")])
def test_a_claim_about_pass_or_fail_needs_six_changed_cases(wins, losses, answer):
    ties = 400 - wins - losses
    before, after = [0] * wins + [1] * (losses + ties), [1] * wins + [0] * losses + [1] * ties
    assert compare_paired(before, after).answer == answer


def test_two_equal_gains_are_not_a_claim():
    assert compare_paired([0.5, 0.5], [0.9, 0.91]).answer == "cannot tell"


def test_non_inferiority_of_equal_differences_uses_the_interval():
    few, many = (compare_paired([0.7] * n, [0.5] * n).estimate for n in (5, 500))
    assert non_inferiority(few, 0.1)[::2] == ("inconclusive", None)
    assert non_inferiority(many, 0.1).outcome == "refuted"
    assert non_inferiority(many, 0.3).outcome == "shown"


def test_equal_values_without_bounds_have_no_interval():
    assert paired_difference([1.0, 1.0, 1.0], [5.0, 5.0, 5.0]).estimate[:3] == (4.0, 0.0, None)
    assert clustered_mean([1.0] * 20, within=(0.0, 1.0)).ci95 == pytest.approx((1 - rare_limit(0, 20), 1.0))


def test_bounds_stay_within_0_and_1():
    low, high = fed([0.99, 1.0, 0.5]).ci95
    assert (low >= 0.0, high) == (True, 1.0)


def test_clusters_of_one_score_have_no_effect():
    scores = [0.1, 0.5, 0.7, 0.2]
    assert fed(scores, range(4)).ci95 == pytest.approx(fed(scores).ci95)
    assert fed([0, 1, 1, 1], range(4)).ci95 == fed([0, 1, 1, 1]).ci95


def test_clusters_of_equal_scores_count_as_one_score_each():
    once, thrice = [0.2, 0.5, 0.6, 0.9], [score for score in (0.2, 0.5, 0.6, 0.9) for _ in range(3)]
    clusters = [number for number in range(4) for _ in range(3)]
    assert fed(thrice, clusters).clusters == 4
    assert fed(thrice, clusters).ci95 == pytest.approx(fed(once).ci95)


def test_the_clustered_interval_matches_the_formula():
    scores, clusters = [0.1, 0.9, 0.4, 0.5, 0.8], [0, 0, 2, 2, None]
    mean = sum(scores) / 5
    sums = [0.1 + 0.9 - 2 * mean, 0.4 + 0.5 - 2 * mean, 0.8 - mean]
    half = t_quantile(0.975, 2) * math.sqrt(3 / 2 * sum(total**2 for total in sums)) / 5
    low, high = fed(scores, clusters).ci95
    assert low <= max(0, mean - half)
    assert high >= min(1, mean + half)


def test_one_cluster_has_a_wide_interval_or_none():
    assert fed([0.2, 0.7], [0, 0]).ci95 is None
    assert fed([1, 0], [0, 0]).ci95 == proportion_interval(0.5, 1)


@given(st.lists(st.tuples(st.floats(0, 1), st.none() | st.integers(0, 5)), max_size=40))
def test_an_interval_contains_its_mean_and_stays_in_bounds(pairs):
    mean = fed([score for score, _ in pairs], [cluster for _, cluster in pairs])
    if mean.ci95 is not None:
        low, high = mean.ci95
        assert 0 <= low <= mean.mean + 1e-12
        assert mean.mean - 1e-12 <= high <= 1


def test_order_and_a_common_offset_do_not_reduce_precision():
    scores = [0.1 + 0.8 * (number % 7) / 6 for number in range(10_000)]
    variance = np.var(scores, ddof=1)
    low, high = fed(scores).ci95
    assert (high - low) / 2 == pytest.approx(t_quantile(0.975, 9_999) * math.sqrt(variance / 10_000), rel=1e-9)


def coverage(draw, truth, rounds=800, seed=1):
    """How often the interval of a draw contains the true value."""
    chance = random.Random(seed)
    held = 0
    for _ in range(rounds):
        low, high = draw(chance).ci95 or (1, 0)
        held += low <= truth <= high
    return held / rounds


@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
@pytest.mark.parametrize("n", [20, 100])
def test_intervals_of_pass_rates_cover_the_true_value(share, n):
    def draw(chance):
        return fed([float(chance.random() < share) for _ in range(n)])

    assert coverage(draw, share) >= 0.94


@pytest.mark.parametrize("n", [4, 12, 60])
def test_intervals_of_means_cover_the_true_value(n):
    assert coverage(lambda chance: fed([chance.random() for _ in range(n)]), 0.5) >= 0.93


@pytest.mark.parametrize("binary", [True, False])
def test_only_clustered_intervals_cover_the_true_value_of_clusters(binary):
    def draw(chance, clustered=True):
        mean = MeanAccumulator()
        for cluster in range(25):
            level = chance.betavariate(1, 1)
            for _ in range(8):
                score = float(chance.random() < level) if binary else (level + chance.random()) / 2
                mean.add(score, cluster if clustered else None)
        return mean

    assert 0.93 <= coverage(draw, 0.5) <= 0.99
    assert coverage(lambda chance: draw(chance, clustered=False), 0.5) < 0.85
