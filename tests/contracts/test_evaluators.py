"""The contract of every evaluator type in the registry."""

import asyncio
import pickle

import pytest

from agentv.engine.checks.preflight import Preflight
from agentv.engine.checks.project_facts import ProjectFacts
from agentv.engine.job.request import CaseRequest
from agentv.engine.scoring.grades import evaluator_result
from agentv.model.case import CaseDetails, EvalCase
from agentv.model.diagnostics import Problems
from agentv.model.evaluator import EvaluatorFailure, EvaluatorSpec, Score
from agentv.model.job import Judgement
from agentv.model.message import Message
from agentv.model.origin import Origin, Place
from agentv.model.response import Response
from agentv.registry import EVALUATORS
from agentv.settings.evaluator_reader import read_entry

OWN = {
    "code_judge": {"script": ["python3", "judge.py"]},
    "python": {"function": "judge.py:judge"},
    "command": {"command": ["python3", "judge.py"], "fail_codes": [1, 2]},
    "javascript": {"code": "output.length > 3"},
    "composite": {"evaluators": [{"type": "contains", "value": "a"}, "Greets"], "aggregator": "weighted_average"},
    "tool_trajectory": {"mode": "any_order", "minimums": {"search": 1}},
    "skill_trigger": {"skill": "csv-analyzer"},
    "field_accuracy": {"fields": [{"path": "a.b", "match": "fuzzy"}]},
    "latency": {"threshold": 1},
    "cost": {"budget": 1},
    "token_usage": {"max_total": 1},
    "execution_metrics": {"max_tokens": 1, "max_tool_calls": 2},
    "json_schema": {"schema": {"type": "object"}},
    "rubric": {"rubrics": [{"id": "tone", "score_ranges": {"0": "rude", "5": "kind"}}]},
    "llm_judge": {"prompt": [{"role": "user", "content": "{{ candidate_answer }}"}], "votes": 2},
    "regex": {"value": "a+"},
    "moderation": {"categories": ["insults"]},
    "json_diff": {"ignore": ["a.b"]},
    "context_graded": {"grades": "faithfulness", "passages": {"json_path": "context"}},
    "embedding_similarity": {"value": ["a"]},
    "model_graded": {"prompt": "{{ output }}", "value": "Greets"},
    "tool_steps": {"check": "tool-used", "value": "search"},
    "scoring_function": {"evaluators": [{"type": "contains", "value": "a"}], "function": "judge.py"},
}
"""Settings of types with required settings, or with several values."""

HOSTILE = {
    "empty": "",
    "blank": " \n\t",
    "huge": "a" * 200_000,
    "deep": "[" * 5_000,
    "number": "1e999",
    "object": '{"score": 1, "a": {"b": null}}',
    "fence": '```json\n{"a": 1}\n```',
    "lone surrogate": "\ud800",
    "odd characters": "\u0000\u202e\u200b\ufeff🏳️‍🌈",
    "template": "{{ candidate_answer }} {% raw %}",
}

kinds = pytest.mark.parametrize("type_", EVALUATORS.names())


def read(type_, **more):
    problems = Problems()
    spec = read_entry({"type": type_, "name": "it", **OWN.get(type_, {}), **more}, (), problems)
    assert not problems, f"Add valid settings of '{type_}' to OWN: {list(problems)}"
    return spec


def judgement(text, **more):
    case = EvalCase(
        "one",
        expected_outcome="It works",
        input="What?",
        expected_output=(Message("assistant", {"a": {"b": "c"}}),),
        details=CaseDetails(context=("a passage",)),
    )
    return Judgement(CaseRequest(case), Response(messages=(Message("assistant", text),)), candidate_answer=text, **more)


@kinds
def test_an_entry_survives_a_round_trip_through_data(type_):
    spec = read(type_, weight=2, negate=True)
    again = read_entry(spec.to_data(), (), Problems())
    assert again == spec
    assert again.evaluator == spec.evaluator
    assert again.to_data() == spec.to_data()


@kinds
def test_an_entry_can_be_pickled_hashed_and_compared(type_):
    spec = read(type_)
    copy = pickle.loads(pickle.dumps(spec))
    assert (copy, copy.evaluator) == (spec, spec.evaluator)
    assert len({spec, copy}) == len({spec.evaluator, copy.evaluator}) == 1
    assert spec != read(type_, weight=2)


@kinds
def test_a_spec_without_its_evaluator_is_the_same_spec(type_):
    spec = read(type_)
    bare = EvaluatorSpec(type=spec.type, name=spec.name, settings=spec.settings)
    assert bare == spec and hash(bare) == hash(spec)


@kinds
def test_an_unknown_key_is_an_error_unless_the_type_accepts_any(type_):
    problems = Problems()
    spec = read_entry({"type": type_, **OWN.get(type_, {}), "no_such_key": 1}, ("here",), problems)
    if EVALUATORS.find(type_).open_settings:
        assert not problems
        assert spec.evaluator.config == {"no_such_key": 1}
    else:
        assert [(each.severity, each.path) for each in problems] == [("error", ("here", "no_such_key"))]


@kinds
def test_a_misspelt_common_key_is_an_error_with_a_suggestion(type_):
    problems = Problems()
    read_entry({"type": type_, **OWN.get(type_, {}), "wieght": 2}, (), problems)
    hints = [] if EVALUATORS.find(type_).open_settings else ["Did you mean 'weight'?"]
    assert [each.hint for each in problems.errors] == hints


@kinds
def test_a_key_of_another_tool_is_an_error_unless_the_type_has_it(type_):
    problems = Problems()
    read_entry({"type": type_, **OWN.get(type_, {}), "context_transform": "x"}, (), problems)
    assert [each.field for each in problems.errors] == (
        [] if EVALUATORS.find(type_).open_settings else ["context_transform"]
    )


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("type_", [name for name in EVALUATORS.names() if read(name).evaluator.is_plain])
def test_a_check_scores_any_answer_or_fails_with_a_reason(type_, text):
    try:
        score = read(type_).evaluator.score(judgement(text))
    except EvaluatorFailure as failure:
        assert str(failure)
    else:
        assert isinstance(score, Score)
        assert 0 <= score.score <= 1


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("type_", [name for name in EVALUATORS.names() if read(name).evaluator.needs.judge_calls])
def test_any_judge_response_gives_a_score_or_a_reason(type_, text):
    async def ask(target, messages, wanted=None):
        return Response(messages=(Message("assistant", text),))

    answer = judgement(text, ask=ask, judges=("judge",))
    try:
        score = asyncio.run(read(type_).evaluator.evaluate(answer))
    except (EvaluatorFailure, ValueError) as failure:  # a run reports both as an evaluator that failed
        assert str(failure)
    else:
        assert 0 <= score.score <= 1


@kinds
def test_negation_inverts_scores_but_not_failures(type_):
    score = Score(0.25, ("kept",), ("missed",))
    result = evaluator_result(read(type_, negate=True), score, None)
    assert (result.score, result.hits, result.misses) == (0.75, ("missed",), ("kept",))


@kinds
def test_checks_before_a_run_execute_no_user_code(type_, tmp_path, monkeypatch):
    if type_ == "javascript":
        pytest.importorskip("quickjs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.py").write_text("open('ran', 'w').close()\ndef judge(context): return 1\n")
    spec = read(type_, transform={"function": "judge.py:judge"})
    case = EvalCase("a", evaluators=(spec,), place=Place(Origin("d.yaml", "d", str(tmp_path), str(tmp_path)), 1))
    preflight = Preflight(ProjectFacts(known=("default", "judge"), may_judge=("default", "judge")))
    problems = list(preflight.problems(case, ("default",)))
    needs = ("expected_output", "context", "embedding")
    assert all(any(name in each.message for name in needs) for each in problems)
    assert not (tmp_path / "ran").exists()
