"""The pairwise judge compares twice, with the positions swapped, so that a preferred position does not win."""

import asyncio
import json

import pytest

from agentv.model.evaluator import EvaluatorFailure
from agentv.model.response import answer


def judged(scoring, prefer, **settings):
    """Score with a judge whose choice depends on the two answers it is shown."""
    seen = []

    async def ask(target, messages, wanted=None):
        first, second = (text.split("\n")[1] for text in str(messages[1].content).split("<<<")[-2:])
        seen.append((first, second))
        return answer(json.dumps({"reasoning": "because", "better": prefer(first, second)}))

    evaluator = scoring.evaluator("pairwise", **settings)
    judgement = scoring.judgement("mine", "theirs", ask=ask, judges=("judge",))
    return asyncio.run(evaluator.evaluate(judgement)), seen


# (choice, score, whether both orders agree)
CHOICES = {
    "the answer": (lambda first, second: "first" if first == "mine" else "second", 1, True),
    "the other": (lambda first, second: "first" if first == "theirs" else "second", 0, True),
    "a tie": (lambda first, second: "tie", 0.5, True),
    "the first position": (lambda first, second: "first", 0.5, False),
    "the second position": (lambda first, second: "second", 0.5, False),
}


@pytest.mark.parametrize(("prefer", "score", "consistent"), CHOICES.values(), ids=CHOICES)
def test_both_orders_are_judged_and_a_preferred_position_gives_a_tie(scoring, prefer, score, consistent):
    found, seen = judged(scoring, prefer)
    assert (found.score, found.details["consistent"]) == (score, consistent)
    assert sorted(seen) == [("mine", "theirs"), ("theirs", "mine")]


def test_each_vote_is_two_calls(scoring):
    found, seen = judged(scoring, lambda first, second: "tie", votes=3, value="given")
    assert len(seen) == 6 == scoring.evaluator("pairwise", votes=3).needs.judge_calls
    assert {"given", "mine"} == {text for pair in seen for text in pair}
    assert len(found.details["votes"]) == 6


def test_another_choice_is_not_a_preference(scoring):
    with pytest.raises(EvaluatorFailure, match="'better' must be one of first, second, tie"):
        judged(scoring, lambda first, second: "both")
