"""The sequential test of a bisection: the difference of a case, and how often chance is called a difference."""

import random
from math import log

import pytest

from agentv.extensions.bisect.evidence import Evidence, difference, evidence_that_lower

MISSING = ...


@pytest.mark.parametrize(
    ("higher", "lower", "expected"),
    [
        ([1.0], [0.0], 1.0),
        ([1.0, 0.0], [0.25], 0.25),
        ([1.0, None], [0.0], 1.0),  # the other commit on this side has a score
        ([1.0], [None], 0.0),  # the error may hide a 1
        ([0.5], [None], -0.5),
        ([None], [0.5], -0.5),  # the error may hide a 0
        ([None], [None], None),
        ([1.0, None], [None], None),  # the case errors on both sides
        ([MISSING], [1.0], None),
        ([MISSING, 1.0], [0.0], 1.0),
    ],
)
def test_errors_count_against_the_claim_unless_both_sides_have_them(higher, lower, expected):
    assert difference(higher, lower) == expected


def test_identical_answers_are_no_evidence():
    answers = {("d", f"c{number}", 1): 1.0 for number in range(500)}
    assert evidence_that_lower([answers], [answers], [[key] for key in answers]).p_value == 1


def test_twelve_lost_cases_of_twelve_decide():
    found = Evidence()
    for _ in range(12):
        found.add([1.0])
    assert found.p_value < 0.01


def test_a_conversation_is_one_bet():
    together, apart = Evidence(largest=4), Evidence()
    together.add([1.0] * 4)
    for _ in range(4):
        apart.add([1.0])
    assert together.peak < apart.peak


@pytest.mark.parametrize("references", [1, 3])
def test_equal_commits_are_told_apart_with_at_most_the_stated_probability(references):
    chance, trials, wrong = random.Random(1), 400, 0
    for _ in range(trials):
        rates = [chance.random() for _ in range(60)]
        sides = [
            {("d", str(case), 1): float(chance.random() < rate) for case, rate in enumerate(rates)}
            for _ in range(references + 1)
        ]
        units = [[key] for key in sides[0]]
        wrong += evidence_that_lower(sides[1:], sides[:1], units).peak >= log(1 / 0.1)
    assert wrong / trials <= 0.1
