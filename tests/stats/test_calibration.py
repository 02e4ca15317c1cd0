"""Calibration of judges: closed forms, and the coverage of intervals."""

import random
from itertools import product

import numpy as np
import pytest

from agentv.extensions.judge.corrected_rate import balance_p_value, next_labels, prediction_powered, rogan_gladen
from agentv.stats.intervals import wilson
from agentv.stats.judge_calibration import Labelled, Stratum, accuracy, cohen_kappa, confusion, kappa, kappa_value
from late import Late

pytestmark = pytest.mark.ci

stats, raters = Late("scipy.stats"), Late("statsmodels.stats.inter_rater")
FIGURES = ("accuracy", "kappa", "Rogan-Gladen", "PPI++")

# True pass rate; how often the judge passes good answers; how often it fails bad ones.
TRUTHS = [(0.7, 0.9, 0.8), (0.9, 0.95, 0.6), (0.5, 0.8, 0.95), (0.85, 0.97, 0.9), (0.8, 0.75, 0.7), (0.3, 0.9, 0.9)]
TRUTHS += [(0.97, 0.99, 0.9), (0.5, 0.98, 0.98), (0.6, 0.6, 0.6)]

# Labels drawn at random, cases, whether scores are graded, and labels drawn by `next_labels`.
DESIGNS = [(30, 300, True, 0), (100, 500, False, 0), (100, 2000, True, 0), (200, 800, True, 0), (60, 500, True, 60)]


def labelled(both, missed, let_through, caught):
    """Labels from the counts of the four cells, in that order."""
    cells = [(True, True), (True, False), (False, True), (False, False)]
    counts = (both, missed, let_through, caught)
    return tuple(Labelled(y, f, float(f)) for (y, f), n in zip(cells, counts, strict=True) for _ in range(n))


def of_all(cells, size=None):
    return [Stratum("all", size or len(cells), cells)]


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ([[20, 5], [10, 15]], 0.4),
        ([[45, 15], [25, 15]], 0.13043478260869565),
        ([[25, 35], [5, 35]], 0.25925925925925924),
        ([[10, 0], [0, 10]], 1.0),
        ([[0, 10], [10, 0]], -1.0),
        ([[5, 5], [5, 5]], 0.0),
        ([[11, 3, 1], [1, 8, 0], [0, 2, 14]], 783 / 1063),
    ],
)
def test_kappa_is_agreement_beyond_chance(table, value):
    found = cohen_kappa(table)
    assert found.value == pytest.approx(value, abs=1e-4)
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert found.n == sum(map(sum, table))


@pytest.mark.parametrize("table", [[[10, 0], [0, 0]], [[0, 0], [0, 0]]])
def test_kappa_is_undefined_if_both_raters_always_use_one_label(table):
    assert cohen_kappa(table) is None


TABLES = [
    [[20, 5], [10, 15]],
    [[44, 5, 1], [7, 20, 3], [9, 5, 6]],
    [[10, 2, 0, 1], [3, 12, 4, 0], [0, 5, 9, 2], [1, 0, 3, 14]],
    [[90, 1], [2, 1]],
]


@pytest.mark.parametrize("table", TABLES)
def test_kappa_matches_statsmodels(table):
    known = raters.cohens_kappa(np.array(table))
    assert cohen_kappa(table).value == pytest.approx(known.kappa, abs=1e-12)


def test_the_interval_of_kappa_narrows_with_more_labels():
    few, many = cohen_kappa([[20, 5], [10, 15]]), cohen_kappa([[2000, 500], [1000, 1500]])
    assert many.high - many.low < (few.high - few.low) / 5


def test_full_agreement_of_few_labels_still_has_a_wide_interval():
    found = cohen_kappa([[6, 0], [0, 6]])
    assert found.value == found.high == 1
    assert found.low < 0.9


def test_the_confusion_table_has_labels_in_rows():
    assert confusion(labelled(4, 3, 2, 1)) == ((4, 3), (2, 1))


def test_accuracy_is_the_rate_of_agreement_with_an_exact_interval():
    found = accuracy(of_all(labelled(40, 5, 5, 50)))
    assert found == (pytest.approx(0.9), pytest.approx(0.8238, abs=1e-4), pytest.approx(0.9510, abs=1e-4), 100)


def test_a_judge_that_is_always_right_in_every_stratum_has_accuracy_1():
    strata = [Stratum(name, size, labelled(1, 0, 0, 1)) for name, size in (("a", 1), ("b", 2), ("c", 3), ("d", 4))]
    found = accuracy(strata)
    assert found.value == found.high == 1
    assert found.low < 0.9


@pytest.mark.parametrize(("passed", "labels", "all_passed", "cases"), [(19, 20, 280, 400), (5, 9, 6, 12), (0, 3, 4, 9)])
def test_the_balance_of_labels_is_tested_as_fisher_does(passed, labels, all_passed, cases):
    table = [[passed, labels - passed], [all_passed - passed, cases - labels - all_passed + passed]]
    known = stats.fisher_exact(table).pvalue
    assert balance_p_value(passed, labels, all_passed, cases) == pytest.approx(known, abs=1e-9)


def test_labels_of_all_cases_are_balanced():
    assert balance_p_value(70, 100, 70, 100) == 1
    assert balance_p_value(0, 0, 70, 100) == 1


def test_rogan_gladen_corrects_the_errors_of_the_judge():
    # The judge passes 80 % of good and 10 % of bad answers, and 45 % of a thousand: (0.45 - 0.1) / 0.7.
    found = rogan_gladen(labelled(80, 20, 10, 90), 450, 1000)
    assert found.value == pytest.approx(0.5)
    assert found.low < 0.45 and found.high > 0.55


def test_rogan_gladen_with_all_cases_labelled_gives_the_pass_rate_of_labels():
    cells = labelled(80, 20, 10, 90)
    assert rogan_gladen(cells, 90, 200).value == pytest.approx(0.5)


@pytest.mark.parametrize("cells", [(30, 3, 0, 0), (0, 0, 4, 9)])
def test_rogan_gladen_needs_labels_of_both_kinds(cells):
    assert rogan_gladen(labelled(*cells), 20, 100) is None


@pytest.mark.parametrize("cells", [(6, 4, 5, 5), (3, 2, 2, 3), (2, 1, 1, 1)])
def test_a_judge_that_may_be_guessing_gives_the_whole_range(cells):
    found = rogan_gladen(labelled(*cells), 50, 100)
    assert (found.low, found.high) == (0, 1)


@pytest.mark.parametrize("cells", [(5, 5, 5, 5), (2, 8, 8, 2), (1, 1, 1, 1), (43, 10, 9, 0)])
def test_a_judge_that_passes_bad_answers_as_often_as_good_ones_cannot_be_corrected(cells):
    assert rogan_gladen(labelled(*cells), 50, 100) is None


def test_prediction_powered_corrects_the_labels_by_the_scores_of_all_cases():
    cells = labelled(45, 5, 5, 45)
    more = prediction_powered(of_all(cells, 10_000), mean_score=0.6)
    assert more.value == pytest.approx(0.58, abs=0.003)
    alone = accuracy(of_all(labelled(50, 0, 50, 0)))
    assert more.high - more.low < 0.7 * (alone.high - alone.low)


def test_a_judge_with_constant_scores_has_no_effect():
    cells = labelled(30, 0, 20, 0)
    assert prediction_powered(of_all(cells, 1000), mean_score=1.0).value == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("scores", "value"),
    [
        ((1.0, 0.9, 0.8), 2 / 3 - 0.4),
        ((0.9, 0.9, 0.8), 2 / 3 - (2.6 / 3 - 0.5)),
        ((0.8, 0.8, 0.9), 2 / 3),
    ],
)
def test_the_correction_of_few_labels_is_limited(scores, value):
    # Two of three labels pass. The slope of so few labels is 3 or more, or negative: too uncertain to use.
    cells = tuple(Labelled(n < 2, score >= 0.8, score) for n, score in enumerate(scores))
    found = prediction_powered(of_all(cells, 8), mean_score=0.5)
    assert found.value == pytest.approx(value)
    assert found.low < value < found.high


def test_with_all_cases_labelled_only_variance_between_cases_is_left():
    found = prediction_powered(of_all(labelled(45, 5, 5, 45)), mean_score=0.5)
    assert found.value == 0.5
    assert (found.low, found.high) == pytest.approx(wilson(0.5, 100))


def test_strata_are_weighted_by_their_cases_not_their_labels():
    passes = Stratum("pass", 900, labelled(9, 0, 1, 0))
    fails = Stratum("fail", 100, labelled(0, 5, 0, 45))
    assert accuracy([passes, fails]).value == pytest.approx(0.9)
    assert prediction_powered([passes, fails], mean_score=0.9).value == pytest.approx(0.82)
    assert kappa([passes, fails]).value == pytest.approx(kappa_value([[0.81, 0.01], [0.09, 0.09]]))


def test_a_stratum_without_labels_makes_all_estimates_unknown():
    strata = [Stratum("pass", 90, labelled(9, 0, 1, 0)), Stratum("fail", 10, ())]
    assert accuracy(strata) is kappa(strata) is prediction_powered(strata, 0.9) is None


@pytest.mark.parametrize(
    ("strata", "count", "chosen"),
    [
        ([Stratum("pass", 80, ()), Stratum("fail", 20, ())], 4, [2, 2]),
        ([Stratum("pass", 80, labelled(5, 0, 5, 0)), Stratum("fail", 80, labelled(0, 0, 0, 10))], 6, [6, 0]),
        ([Stratum("pass", 12, labelled(5, 0, 5, 0)), Stratum("fail", 10, labelled(0, 5, 0, 5))], 20, [2, 0]),
        ([Stratum("pass", 2, ()), Stratum("fail", 0, ())], 20, [2, 0]),
        ([], 20, []),
    ],
)
def test_the_next_labels_go_where_they_reduce_the_variance_most(strata, count, chosen):
    assert next_labels(strata, count) == chosen


def drawn(chance, truth, graded):
    """One case: whether it is good, whether the judge passes it, and the judge's score."""
    rate, finds, rejects = truth
    good = chance.random() < rate
    passed = chance.random() < (finds if good else 1 - rejects)
    if not graded:
        return Labelled(good, passed, float(passed))
    if passed:
        return Labelled(good, passed, 0.8 + 0.2 * chance.random())
    # Good answers that the judge fails score higher than bad ones, so scores carry more information than verdicts.
    return Labelled(good, passed, 0.8 * chance.random() ** (0.5 if good else 1))


def estimates(chance, truth, design):
    random_labels, size, graded, further = design
    cases = [drawn(chance, truth, graded) for _ in range(size)]
    passed = sum(case.passed for case in cases)
    mean = sum(case.score for case in cases) / size
    chosen, rest = cases[:random_labels], cases[random_labels:]
    strata = of_all(tuple(chosen), size)
    if further:
        more = next_labels(by_verdict(chosen, passed, size), further)
        chosen = [*chosen, *[c for c in rest if c.passed][: more[0]], *[c for c in rest if not c.passed][: more[1]]]
        strata = by_verdict(chosen, passed, size)
    corrected = None if further else rogan_gladen(chosen, passed, size)
    return accuracy(strata), kappa(strata), corrected, prediction_powered(strata, mean)


def by_verdict(labels, passed, size):
    passes = tuple(each for each in labels if each.passed)
    fails = tuple(each for each in labels if not each.passed)
    return [Stratum("pass", passed, passes), Stratum("fail", size - passed, fails)]


def coverage(truth, design, datasets, seed):
    """The fraction of simulated data sets whose intervals contain the true value, by estimate."""
    rate, finds, rejects = truth
    agreement = kappa_value([[rate * finds, rate * (1 - finds)], [(1 - rate) * (1 - rejects), (1 - rate) * rejects]])
    truths = (rate * finds + (1 - rate) * rejects, agreement, rate, rate)
    chance = random.Random(seed)
    held, told = [0] * 4, [0] * 4
    for _ in range(datasets):
        for index, found in enumerate(estimates(chance, truth, design)):
            if found is not None:
                told[index] += 1
                held[index] += found.low <= truths[index] <= found.high
    return {name: held[i] / told[i] for i, name in enumerate(FIGURES) if told[i]}


@pytest.mark.parametrize("design", [(100, 400, True, 0), (60, 400, False, 40)])
def test_intervals_cover_the_true_value_in_a_small_simulation(design):
    found = coverage(TRUTHS[0], design, datasets=200, seed=3)
    # Of 200, 95 % are 190 give or take 3: these bounds are four of those away.
    assert all(share >= 0.89 for share in found.values()), found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_intervals_cover_the_true_value_in_at_least_93_percent_of_data_sets(design, capsys):
    rows = [(truth, coverage(truth, design, datasets=2000, seed=11)) for truth in TRUTHS]
    with capsys.disabled():
        print(f"\nlabels, cases, graded, further labels: {design}")
        for truth, found in rows:
            print("  ", truth, "  ".join(f"{name} {100 * share:.1f} %" for name, share in found.items()))
    # 2,000 data sets determine the coverage to about 0.5 %; these bounds are two of those below 93 %.
    assert not [(truth, name, share) for truth, found in rows for name, share in found.items() if share < 0.92]


@pytest.mark.parametrize(("labels", "truth"), list(product((100, 200), TRUTHS)), ids=str)
def test_the_interval_of_accuracy_covers_the_true_value_in_at_least_95_percent(labels, truth):
    rate, finds, rejects = truth
    agree = rate * finds + (1 - rate) * rejects
    shares = stats.binom.pmf(range(labels + 1), labels, agree)
    intervals = [accuracy(of_all(labelled(k, 0, labels - k, 0), 1000)) for k in range(labels + 1)]
    held = sum(share for share, found in zip(shares, intervals, strict=True) if found.low <= agree <= found.high)
    assert held >= 0.95
