"""Trajectory assertions of promptfoo and AgentV (TypeScript) 5: which tool calls they accept."""

import pytest

from agentv.engine.job.request import CaseRequest
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.job import Judgement
from agentv.model.message import Message, ToolCall
from agentv.model.response import Response
from agentv.model.values import freeze
from agentv.settings.evaluator_reader import evaluator_of

CALLS = [
    {"tool": "Read", "input": {"path": "a.py", "limit": 10, "opts": {"x": 1, "y": [1, 2]}}},
    {"tool": "search_docs", "input": '{"query": "b", "k": 5}'},
    {"tool": "read", "input": {}},
    {"tool": "shell", "input": {"command": ["git", "status"]}},
    {"tool": "finish"},
]


def score_of(calls, **settings):
    evaluator = evaluator_of(EvaluatorSpec(type="tool_steps", name="tool_steps", settings=freeze(settings)))
    made = tuple(ToolCall(call["tool"], freeze(call.get("input"))) for call in calls)
    messages = (Message("assistant", "done", tool_calls=made),)
    request = CaseRequest(EvalCase(id="one", expected_outcome="It works", input="x"))
    return evaluator.score(Judgement(request, Response(messages=messages), candidate_answer="done")).score


@pytest.mark.parametrize(
    ("check", "value", "holds"),
    [
        ("tool-used", "READ", True),
        ("tool-used", "search_*", True),
        ("tool-used", "search?", False),
        ("tool-used", "se.rch_docs", False),
        ("tool-used", ["read", "search_docs"], True),
        ("tool-used", ["read", "write"], False),
        ("tool-used", {"name": "read", "min": 2}, True),
        ("tool-used", {"name": "read", "min": 3}, False),
        ("tool-used", {"pattern": "*", "name": "read", "max": 4}, False),
        ("tool-used", {"name": "write", "min": 0, "max": 0}, True),
        ("tool-used", {"name": "read", "max": 1}, False),
        ("tool-used", {"name": "read", "min": None, "max": "1"}, True),
        ("tool-sequence", ["read", "finish"], True),
        ("tool-sequence", ["finish", "read"], False),
        ("tool-sequence", ["read", "read", "read"], False),
        (
            "tool-sequence",
            {"steps": ["read", {"pattern": "search*"}, "read", "shell", "finish"], "mode": "exact"},
            True,
        ),
        ("tool-sequence", {"steps": ["read", "finish"], "mode": "exact"}, False),
        ("tool-args-match", {"name": "read", "args": {"path": "a.py"}}, True),
        ("tool-args-match", {"name": "read", "args": {"opts": {"y": [1, 2]}}}, True),
        ("tool-args-match", {"name": "read", "args": {"opts": {"y": [1]}}}, False),
        ("tool-args-match", {"name": "search_docs", "arguments": {"query": "b"}, "mode": "exact"}, False),
        ("tool-args-match", {"name": "search_docs", "args": {"query": "b"}, "mode": "exact", "ignore": "k"}, True),
        ("tool-args-match", {"name": "search_*", "args": {"query": "b"}, "mode": "exact", "ignore": ["?"]}, True),
        (
            "tool-args-match",
            {"name": "search_*", "args": {"query": "b"}, "mode": "exact", "defaults": {"k": 5}},
            True,
        ),
        (
            "tool-args-match",
            {"name": "search_*", "args": {"query": "b"}, "mode": "exact", "defaults": {"k": 6}},
            False,
        ),
        ("tool-args-match", {"name": "finish", "args": {}}, False),
        ("step-count", {"type": "tool", "max": 4}, False),
        ("step-count", {"type": "tool", "min": 5, "max": 5}, True),
        ("step-count", {"type": ["tool", "command"], "pattern": "*read*", "min": 2}, True),
    ],
)
@pytest.mark.parametrize("inverse", [False, True])
def test_a_check_of_tools_holds(check, value, holds, inverse):
    is_list_of_tools = check == "tool-used" and isinstance(value, list)  # one of them is called, so that neither holds
    expected = 0 if is_list_of_tools and inverse else holds != inverse
    assert score_of(CALLS, check=check, value=value, inverse=inverse) == expected


@pytest.mark.parametrize(
    ("value", "score"), [(["write", "delete"], 1), (["write", "search*"], 0), (["write"], 1), ("read", 0)]
)
def test_none_of_the_tools_of_a_negated_list_may_be_called(value, score):
    assert score_of(CALLS, check="tool-used", value=value, inverse=True) == score


@pytest.mark.parametrize(
    ("check", "value", "score"),
    [
        ("tool-used", "shell", 0),
        ("tool-used", "finish", 1),
        ("step-count", {"type": "command", "pattern": "git", "min": 1}, 1),
        ("step-count", {"type": "command", "pattern": "git st*", "min": 1}, 1),
        ("step-count", {"type": "tool", "max": 4}, 1),
    ],
)
def test_calls_of_a_shell_are_commands_in_agentv(check, value, score):
    assert score_of(CALLS, check=check, value=value, commands=True) == score


ODD_ARGS = ({"mode": "subset"}, {"defaults": [1]}, {"defaults": None}, {"ignore": 5}, {"ignore": [""]})


@pytest.mark.parametrize("value", [["write"], {"name": "read", "max": 0}])
def test_an_answer_without_calls_is_checked_too(value):
    assert [score_of([], check="tool-used", value=value, inverse=inverse) for inverse in (False, True)] == [0, 1]


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *(("tool-used", []), ("tool-used", {"min": 1}), ("tool-used", [{"name": "a"}]), ("tool-sequence", {})),
        *(("tool-sequence", "a"), ("step-count", {"type": "tool"}), ("step-count", {"max": "1"})),
        *(("tool-args-match", {"name": "a", "args": {}, **more}) for more in ODD_ARGS),
    ],
)
def test_a_value_that_is_no_check_of_tools_is_refused(folder, command, check, value):
    entry = {"type": "tool_steps", "check": check, "value": value}
    case = {"id": "a", "input": "x", "expected_outcome": "y", "evaluators": [entry]}
    folder.write("d.yaml", {"evalcases": [case]})
    outcome = command("validate", "d.yaml")
    assert outcome.code == 1 and any(f"'{key}' " in outcome.stdout for key in ("value", "mode", "defaults", "ignore"))
