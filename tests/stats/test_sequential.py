"""Sequential tests: bets are fair, and intervals are valid at any time."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.stats.intervals import MeanAccumulator
from agentv.stats.sequential import BettingMean


def wealth(scores, claim, side):
    """The wealth of the bets on one side, from its definition."""
    room, direction = (1 - claim, -1) if side else (claim, 1)
    stakes = [0.75 / 2**step for step in range(9)]
    return sum(math.prod(1 + c * direction * (x - claim) / room for x in scores) for c in stakes) / 9


def fed(scores, claim=None, **options):
    mean = BettingMean(claim, **options)
    for score in scores:
        mean.add(score)
    return mean


@pytest.mark.parametrize("claim", [0.1, 0.5, 0.8])
def test_a_bet_against_a_true_claim_is_fair(claim):
    """Over all binary sequences, the expected wealth is 1."""
    worth = [0.0, 0.0]
    expected = 0.0
    for scores in itertools.product([0.0, 1.0], repeat=10):
        weight = math.prod(claim if score else 1 - claim for score in scores)
        for side in (0, 1):
            worth[side] += weight * wealth(scores, claim, side)
        expected += weight * fed(scores, claim, alpha=1e-9).e_value
    assert worth == pytest.approx([1, 1], abs=1e-9)
    assert expected == pytest.approx(1, abs=1e-9)
    assert fed(scores, claim, alpha=1e-9).e_value == pytest.approx(
        (wealth(scores, claim, 0) + wealth(scores, claim, 1)) / 2
    )


def test_each_group_is_one_fair_bet():
    """Groups of one or two correlated scores: the claim is about the mean over scores."""
    kinds = [((0.0, 1), 0.3), ((1.0, 1), 0.2), ((0.0, 2), 0.1), ((2.0, 2), 0.4)]
    claim = sum(p * s for (s, _), p in kinds) / sum(p * n for (_, n), p in kinds)
    expected = 0.0
    for groups in itertools.product(kinds, repeat=6):
        mean = BettingMean(claim, largest=2, alpha=1e-9)
        for (total, count), _ in groups:
            mean.add(total, count)
        expected += math.prod(p for _, p in groups) * mean.e_value
    assert expected == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "groups",
    [
        [(0.0, 1), (1.0, 1), (1.0, 1), (1.0, 1), (0.5, 1), (0.0, 1)],
        [(0.0, 2), (2.0, 2), (1.0, 1), (0.0, 1), (0.0, 0), (2.0, 2)],
    ],
)
def test_a_bet_on_draws_without_replacement_is_fair(groups):
    """Over all orders of a finite population, the expected wealth is 1 after every draw."""
    claim = sum(total for total, _ in groups) / sum(count for _, count in groups)
    totals = [0.0] * len(groups)
    orders = list(itertools.permutations(groups))
    for order in orders:
        mean = BettingMean(claim, largest=2, population=len(groups), alpha=1e-9)
        for place, (total, count) in enumerate(order):
            mean.add(total, count)
            totals[place] += mean.e_value / len(orders)
    assert totals == pytest.approx([1.0] * len(groups), abs=1e-9)


def test_draws_without_replacement_need_fewer_cases_and_are_rarely_wrong():
    draw = random.Random(11)
    scores = [1.0] * 240 + [0.0] * 60
    wrong, needed = 0, {300: 0, None: 0}
    for _ in range(150):
        draw.shuffle(scores)
        wrong += fed(scores, 0.8, population=300).decided is not None
        for population in needed:
            mean = BettingMean(0.7, population=population)
            needed[population] += next((n for n, score in enumerate(scores, 1) if mean.add(score) or mean.decided), 300)
    assert wrong <= 0.05 * 150
    assert needed[300] < 0.8 * needed[None]


def test_a_whole_population_has_no_uncertainty_left():
    scores = [1.0, 0.25, 0.0, 1.0] * 25
    low, high = fed(scores, population=100).interval
    assert low <= 0.5625 <= high and high - low < 0.02
    assert fed([1.0] * 40, 0.3, population=100).decided == "above"
    assert fed([0.0] * 99, 0.3, population=100).decided == "below"
    with pytest.raises(ValueError, match="only 100 groups"):
        fed([1.0] * 101, population=100)


def test_the_interval_of_a_complete_run_is_the_ordinary_one():
    draw = random.Random(12)
    groups = [[draw.random()] * draw.randint(1, 3) for _ in range(50)]
    watched, plain = BettingMean(largest=3), MeanAccumulator()
    for cluster, group in enumerate(groups):
        watched.add(sum(group), len(group))
        for score in group:
            plain.add(score, cluster)
    assert watched.fixed_interval == pytest.approx(plain.ci95)
    assert watched.interval[0] < watched.fixed_interval[0] < watched.fixed_interval[1] < watched.interval[1]


@given(st.lists(st.floats(0, 1), max_size=60), st.sampled_from([0.05, 0.3, 0.5, 0.9]))
def test_a_claim_is_decided_when_it_leaves_the_interval(scores, claim):
    mean = fed(scores, claim)
    low, high = mean.interval
    assert 0 <= low <= high <= 1
    if mean.decided == "above":
        assert low >= claim - 1e-5
    elif mean.decided == "below":
        assert high <= claim + 1e-5
    else:
        assert low <= claim + 1e-5
        assert high >= claim - 1e-5


def test_the_interval_narrows():
    chance = random.Random(3)
    scores = [float(chance.random() < 0.7) for _ in range(2_000)]
    widths = [interval[1] - interval[0] for interval in (fed(scores[:n]).interval for n in (20, 200, 2_000))]
    assert widths[0] > 1.5 * widths[1] > 3 * widths[2]
    assert widths[2] < 0.1
    assert fed([]).interval == (0.0, 1.0)


def test_groups_without_scores_are_not_bets():
    mean = BettingMean(0.5)
    mean.add(0.0, 0)
    assert (mean.groups, mean.n, mean.mean) == (0, 0, None)


def test_invalid_arguments_are_rejected():
    for options in ({"claim": 0.0}, {"claim": 1.0}, {"largest": 0}, {"alpha": 0.0}):
        with pytest.raises(ValueError, match="between 0 and 1"):
            BettingMean(**options)
    with pytest.raises(ValueError, match="at most 1"):
        BettingMean().add(2, 2)
    with pytest.raises(ValueError, match="no claim"):
        _ = BettingMean().e_value
