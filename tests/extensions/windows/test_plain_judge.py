"""Functions that score answers in a process of their own."""

import asyncio

import msgspec
import pytest

from agentv.engine.job.request import CaseRequest
from agentv.evaluators.code.judge_io import Setup
from agentv.evaluators.code.payload import payload
from agentv.extensions.windows.plain_judge import judge_plainly
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.job import Judgement
from agentv.model.message import Message
from agentv.model.response import Response

FUNCTIONS = """
import os, sys, time

def length(context):
    print("a note that is not the score")
    return {"score": len(context.candidate_answer) / 10, "reasoning": context.case.id + os.environ["EXTRA"]}

async def waits(context):
    return True

def asks(context):
    return context.ask(None, "hello").send(None)

def fails(context):
    raise KeyError("price")

def ends(context):
    sys.exit("enough")

def hangs(context):
    time.sleep(1000)

def stops(context):
    os._exit(7)

number = 3
"""


@pytest.fixture
def judge(tmp_path):
    (tmp_path / "judges.py").write_text(FUNCTIONS, encoding="utf-8")
    case = EvalCase(id="case-1", input="question", expected_outcome="")

    def score_of(name, timeout_s=60.0):
        path = str(tmp_path / "judges.py")
        setup = Setup(reference=f"judges.py:{name}", path=path, cwd=str(tmp_path))
        answer = Response(messages=(Message("assistant", "twelve é"),))
        judgement = Judgement(CaseRequest(case), answer, candidate_answer="twelve é")
        body = msgspec.json.encode([payload(judgement, {}), {"EXTRA": "!"}])
        return asyncio.run(judge_plainly(setup, body, case, {"PATH": "/usr/bin"}, timeout_s))

    return score_of


def test_a_function_gets_the_answer_the_case_and_its_variables(judge):
    score = judge("length")
    assert (score["score"], score["reasoning"]) == (0.8, "case-1!")


def test_an_async_function_is_awaited(judge):
    assert judge("waits")["score"] == 1


@pytest.mark.parametrize(
    "name, message",
    [
        ("asks", "cannot call models"),
        ("fails", "judges.py:fails failed: KeyError"),
        ("ends", "judges.py:ends failed: SystemExit: enough"),
        ("stops", "ended with exit code 7"),
        ("number", "not a function but int"),
        ("absent", "has no 'absent'"),
    ],
)
def test_a_function_that_fails_is_an_error(judge, name, message):
    with pytest.raises(EvaluatorFailure, match=message):
        judge(name)


def test_a_function_that_hangs_is_stopped_in_time(judge):
    with pytest.raises(EvaluatorFailure, match=r"judges.py:hangs took longer than 0.2 s"):
        judge("hangs", 0.2)
