"""Every function rejects arguments that are not finite numbers, scores or counts."""

import math

import pytest

from agentv import stats

NAN, INFINITE = math.nan, math.inf

ARRAYS = {
    "a mean": lambda x: stats.clustered_mean([0.5, x]),
    "a difference": lambda x: stats.paired_difference([0.5, 0.1], [x, 0.2]),
    "a comparison": lambda x: stats.compare_paired([x, 0.1], [0.3, 0.2]),
    "sign flips": lambda x: stats.sign_flip_test([0.5, x]),
    "a running mean": lambda x: stats.MeanAccumulator().add(x),
    "a bet": lambda x: stats.BettingMean(0.5).add(x),
    "a share": lambda x: stats.wilson(x, 10),
    "Holm": lambda x: stats.holm([0.5, x]),
    "cases": lambda x: stats.cases_needed(x, stats.Noise(1.0)),
    "a variance": lambda x: stats.cases_needed(0.1, stats.Noise(x)),
    "a margin": lambda x: stats.non_inferiority(stats.clustered_mean([0.1, 0.2]), x),
}


@pytest.mark.parametrize("value", [NAN, INFINITE, -INFINITE], ids=str)
@pytest.mark.parametrize("function", ARRAYS.values(), ids=ARRAYS)
def test_numbers_that_are_not_finite_are_rejected(function, value):
    with pytest.raises(ValueError, match=r"nan|inf"):
        function(value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.compare_paired([0, 0], [5, 7]),
        lambda: stats.compare_paired([0, -1], [1, 1]),
        lambda: stats.MeanAccumulator().add(1.7),
        lambda: stats.MeanAccumulator().add(-0.1, 3),
        lambda: stats.BettingMean(0.5).add(1.5),
        lambda: stats.BettingMean(0.5, largest=3).add(-0.5, 3),
        lambda: stats.wilson(1.2, 10),
        lambda: stats.wilson(-0.2, 10),
    ],
)
def test_scores_and_proportions_outside_0_and_1_are_rejected(call):
    with pytest.raises(ValueError, match="0 to"):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.mcnemar_exact(-1, 2), "-1"),
        (lambda: stats.mcnemar_mid_p(2, -1), "-1"),
        (lambda: stats.clopper_pearson(5, 10, 1.0), "1.0"),
        (lambda: stats.clustered_mean([[0.1], [0.2]]), "one-dimensional"),
        (lambda: stats.holm([0.1, 2.0]), "2.0"),
        (lambda: stats.cases_needed(0.1, stats.Noise(-1.0)), "-1.0"),
        (lambda: stats.variance_of_difference(0.1, 0.1, 0.1, 0), "0"),
    ],
)
def test_invalid_arguments_are_named_in_the_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
