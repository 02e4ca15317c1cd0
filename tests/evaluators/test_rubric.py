"""Rubrics: scores from checks and points, gates, several votes, and unusable responses."""

import math

import pytest

from agentv.evaluators.judges.judge_responses import UnusableResponse
from agentv.evaluators.judges.rubric import (
    RubricItem,
    ScoreRange,
    _shown,
    has_points,
    read_checks,
    rubric_items,
    rubric_score,
)

RANGES = [
    ScoreRange(score_range=(0, 4), expected_outcome="poor"),
    ScoreRange(score_range=(5, 10), expected_outcome="good"),
]


def item(id, weight=1.0, **settings):
    return RubricItem(id=id, expected_outcome=f"does {id}", weight=weight, **settings)


def points(id, weight=1.0, **settings):
    return item(id, weight, score_ranges=RANGES, **settings)


def reply(**checks):
    """Return a judge's object: booleans are checks, numbers are points."""
    entries = [
        {"id": id.replace("_", "-"), "satisfied" if isinstance(value, bool) else "score": value, "reasoning": f"r {id}"}
        for id, value in checks.items()
    ]
    return {"checks": entries, "overall_reasoning": "all in all"}


def scored(items, *votes, how=None):
    return rubric_score(items, [("", read_checks(vote, items)) for vote in votes], how)


A, B, C = item("a"), item("b"), item("c")
FREE = {"required": False}

CHECKLISTS = [
    # items, checks, score, verdict
    ([A], {"a": True}, 1.0, None),
    ([A], {"a": False}, 0.0, "fail"),
    ([A, B], {"a": True, "b": False}, 0.5, "fail"),
    ([A, B], {"a": True, "b": True}, 1.0, None),
    ([A, B, C], {"a": True, "b": False, "c": True}, 2 / 3, "fail"),
    ([A, item("b", **FREE)], {"a": True, "b": False}, 0.5, None),
    ([item("a", **FREE), item("b", **FREE)], {"a": False, "b": False}, 0.0, None),
    ([item("a", 3), item("b", 1, **FREE)], {"a": True, "b": False}, 0.75, None),
    ([item("a", 3, **FREE), item("b", 1)], {"a": False, "b": True}, 0.25, None),
    ([item("a", 0), B], {"a": True, "b": True}, 1.0, None),
    ([item("a", 0), B], {"a": False, "b": True}, 1.0, "fail"),
    ([item("a", 0, **FREE), B], {"a": False, "b": True}, 1.0, None),
    ([item("a", 0.1), item("b", 0.2), item("c", 0.7)], {"a": True, "b": True, "c": True}, 1.0, None),
    ([item("a", 1e100), B], {"a": True, "b": True}, 1.0, None),
    # a missing item is not met and still counts in the denominator
    ([A, B], {"a": True}, 0.5, "fail"),
    ([A, item("b", **FREE)], {"a": True}, 0.5, None),
    ([A, item("b", 3, **FREE)], {"a": True}, 0.25, None),
]

POINTS = [
    ([points("a")], {"a": 10}, 1.0, None),
    ([points("a")], {"a": 0}, 0.0, None),
    ([points("a")], {"a": 7}, 0.7, None),
    ([points("a")], {"a": 7.0}, 0.7, None),
    ([points("a"), points("b")], {"a": 10, "b": 5}, 0.75, None),
    ([points("a", 3), points("b", 1)], {"a": 10, "b": 2}, 0.8, None),
    ([points("a", 0), points("b")], {"a": 0, "b": 6}, 0.6, None),
    ([points("a", required=True)], {"a": 10}, 1.0, None),
    ([points("a", required=True)], {"a": 9}, 0.9, "fail"),
    ([points("a", required=False)], {"a": 1}, 0.1, None),
    ([points("a", required_min_score=6)], {"a": 6}, 0.6, None),
    ([points("a", required_min_score=6)], {"a": 5}, 0.5, "fail"),
    ([points("a", min_score=0.6)], {"a": 6}, 0.6, None),
    ([points("a", min_score=0.6)], {"a": 5}, 0.5, "fail"),
    ([points("a", required_min_score=6), points("b", 9)], {"a": 5, "b": 10}, 0.95, "fail"),
    ([points("a", required=True, required_min_score=3)], {"a": 3}, 0.3, None),
    ([points("a", required=False, required_min_score=3)], {"a": 2}, 0.2, "fail"),
    ([points("a", required_min_score=0)], {"a": 0}, 0.0, None),
    # next to an item with ranges, an item without ranges gets points too, and has no gate
    ([points("a"), B], {"a": 10, "b": 4}, 0.7, None),
    ([points("a"), item("b", required=True)], {"a": 10, "b": 4}, 0.7, "fail"),
    # a minimum number of points turns a checklist into points
    ([item("a", required_min_score=5), B], {"a": 5, "b": 5}, 0.5, None),
    ([points("a"), points("b")], {"a": 10}, 0.5, None),
    ([points("a"), points("b", required_min_score=1)], {"a": 10}, 0.5, "fail"),
]


@pytest.mark.parametrize(("items", "checks", "score", "verdict"), [*CHECKLISTS, *POINTS])
def test_rubric_scores(items, checks, score, verdict):
    found = scored(items, reply(**checks))
    assert math.isclose(found.score, score, abs_tol=1e-12) and 0 <= found.score <= 1
    assert found.verdict == verdict
    assert len(found.hits) + len(found.misses) == len(items) == len(found.details["checks"])


T, F = {"a": True}, {"a": False}
VOTES = [
    # items, how, votes, score, verdict, spread, agreement
    ([A], None, [T, T, F], 1.0, None, 1.0, 2 / 3),
    ([A], None, [T, F, F], 0.0, "fail", 1.0, 2 / 3),
    ([A], None, [T, F], 0.0, "fail", 1.0, 0.5),
    ([A], "majority", [T, T, F], 1.0, None, 1.0, 2 / 3),
    ([A], "mean", [T, T, F], 2 / 3, None, 1.0, 2 / 3),
    ([A], "mean", [T, F], 0.5, "fail", 1.0, 0.5),
    ([A, B], None, [{"a": True, "b": True}, {"a": True}, {"a": True, "b": False}], 0.5, "fail", 0.5, 2 / 3),
    ([points("a")], None, [{"a": 7}, {"a": 8}, {"a": 9}], 0.8, None, 0.2, 1 / 3),
    ([points("a")], "majority", [{"a": 7}, {"a": 7}, {"a": 10}], 0.7, None, 0.3, 2 / 3),
    ([points("a")], "majority", [{"a": 4}, {"a": 8}], 0.6, None, 0.4, 0.5),
    ([points("a", required_min_score=8)], None, [{"a": 7}, {"a": 9}], 0.8, None, 0.2, 0.5),
    ([points("a", required_min_score=8)], None, [{"a": 7}, {"a": 8}], 0.75, "fail", 0.1, 0.5),
    ([points("a")], None, [{"a": 5}, {"a": 5}, {"a": 5}], 0.5, None, 0.0, 1.0),
]


@pytest.mark.parametrize(("items", "how", "votes", "score", "verdict", "spread", "agreement"), VOTES)
def test_several_votes(items, how, votes, score, verdict, spread, agreement):
    found = scored(items, *(reply(**vote) for vote in votes), how=how)
    assert math.isclose(found.score, score, abs_tol=1e-12)
    assert found.verdict == verdict
    assert math.isclose(found.details["spread"], spread, abs_tol=1e-12)
    assert math.isclose(found.details["agreement"], agreement)
    assert len(found.details["votes"]) == len(votes)


UNFIT = [
    ([A], {}, "it has no list 'checks'"),
    ([A], {"checks": {}}, "it has no list 'checks'"),
    ([A], {"checks": []}, "'checks' is empty"),
    ([A], {"checks": ["a"]}, "an entry of 'checks' is not an object"),
    ([A], {"checks": [{"satisfied": True}]}, "a check has no 'id'"),
    ([A], {"checks": [{"id": None, "satisfied": True}]}, "a check has no 'id'"),
    ([A], {"checks": [{"id": True, "satisfied": True}]}, "a check has no 'id'"),
    ([A, B], {"checks": [{"id": "x", "satisfied": True}]}, "the unknown id 'x'; the ids are a, b"),
    ([A], {"checks": [{"id": "a", "satisfied": True}, {"id": "a", "satisfied": False}]}, "has the id 'a' twice"),
    ([A], {"checks": [{"id": "a"}]}, "must be true or false"),
    ([A], {"checks": [{"id": "a", "satisfied": "yes"}]}, "must be true or false"),
    ([A], {"checks": [{"id": "a", "satisfied": 1}]}, "must be true or false"),
    ([A], {"checks": [{"id": "a", "satisfied": None}]}, "must be true or false"),
    ([A], {"checks": [{"id": "a", "score": 10}]}, "must be true or false"),
    ([points("a")], {"checks": [{"id": "a", "satisfied": True}]}, "must be a whole number from 0 to 10"),
    ([points("a")], {"checks": [{"id": "a", "score": 11}]}, "must be a whole number from 0 to 10"),
    ([points("a")], {"checks": [{"id": "a", "score": -1}]}, "must be a whole number from 0 to 10"),
    ([points("a")], {"checks": [{"id": "a", "score": 7.5}]}, "must be a whole number from 0 to 10"),
    ([points("a")], {"checks": [{"id": "a", "score": "7"}]}, "must be a whole number from 0 to 10"),
    ([points("a")], {"checks": [{"id": "a", "score": True}]}, "must be a whole number from 0 to 10"),
    ([points("a")], {"checks": [{"id": "a", "score": float("inf")}]}, "must be a whole number from 0 to 10"),
    ([A], {"checks": [{"id": "a", "satisfied": True, "reasoning": 3}]}, "'reasoning' must be a string"),
    (
        [A],
        {"checks": [{"id": "a", "satisfied": True}], "overall_reasoning": []},
        "'overall_reasoning' must be a string",
    ),
]


@pytest.mark.parametrize(("items", "data", "reason"), UNFIT)
def test_an_invalid_check_is_refused_with_the_reason(items, data, reason):
    with pytest.raises(UnusableResponse) as raised:
        read_checks(data, items)
    assert reason in str(raised.value)


def test_a_check_of_an_unknown_id_is_ignored_if_every_item_has_one():
    checks = read_checks({"checks": [{"id": id, "satisfied": True} for id in ("a", "x", "b")]}, [A, B])
    assert list(checks.by_id) == ["a", "b"]


def test_numeric_and_text_ids_are_equal():
    items = [RubricItem(id=7, expected_outcome="x"), RubricItem(id="8", expected_outcome="y")]
    checks = {"checks": [{"id": "7", "satisfied": True}, {"id": 8, "satisfied": True}]}
    assert scored(items, checks).score == 1.0


def test_items_without_an_id_are_numbered():
    items = rubric_items(["first", "second"])
    assert not has_points(items)
    assert scored(items, reply(rubric_1=True, rubric_2=False)).score == 0.5


def test_sentences_describe_each_item():
    found = scored([A, item("b", 2, **FREE), C], reply(a=True, b=False))
    assert found.hits == ("does a",)
    assert found.misses == ("does b: r b", "does c: the judge left it out")
    assert found.reasoning == "all in all"
    assert found.details["checks"] == [
        {"id": "a", "satisfied": True, "weight": 1.0, "required": True, "met": True, "reasoning": "r a"},
        {"id": "b", "satisfied": False, "weight": 2, "required": False, "met": False, "reasoning": "r b"},
        {
            "id": "c",
            "satisfied": False,
            "weight": 1.0,
            "required": True,
            "met": False,
            "reasoning": "the judge left it out",
        },
    ]


def test_raw_points_are_kept_in_the_details():
    found = scored([points("a"), points("b", required=True)], reply(a=7, b=9))
    assert found.details["raw_scores"] == {"a": 7, "b": 9}
    assert (found.details["normalization"], found.details["aggregation"]) == ("score / 10", "weighted_average")
    assert found.hits == ("does a (7 of 10)",)
    assert found.misses == ("does b (9 of 10): r b",)
    assert [check["met"] for check in found.details["checks"]] == [True, False]


def test_the_judge_is_told_that_an_item_only_guards_against_contradictions():
    shown = _shown(RubricItem(id="a", expected_outcome="The shop opens at 9", operator="contradiction"))
    assert shown["expected_outcome"].startswith("Met unless the answer claims something that contradicts this")
    assert shown["expected_outcome"].endswith(": The shop opens at 9")
