"""The comparison of `FuzzyMatch` in OpenAI Evals."""

import pytest

from agentv.engine.job.request import CaseRequest
from agentv.extensions.interop.fuzzy_match import FuzzyMatch
from agentv.model.case import EvalCase
from agentv.model.job import Judgement
from agentv.model.response import Response


@pytest.mark.parametrize(
    ("answer", "score"),
    [("It is the north-sea.", 0), ("It is the North  Sea!", 1), ("Sea", 1), ("Baltic Sea", 0), ("", 0), ("the", 0)],
)
def test_one_of_the_answer_and_the_reference_contains_the_other(answer, score):
    judgement = Judgement(CaseRequest(EvalCase("sea", input="Which?")), Response(messages=()), candidate_answer=answer)
    assert FuzzyMatch(value=["A North Sea", "Skagerrak"]).score(judgement).score == score
