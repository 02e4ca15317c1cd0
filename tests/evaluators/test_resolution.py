"""Evaluators built from specs: built-in types, custom types, and the errors of invalid specs."""

import pytest

from agentv.errors import UsageError
from agentv.evaluators.checks.text_checks import Contains
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.values import freeze
from agentv.registry import EVALUATORS
from agentv.settings.evaluator_reader import evaluator_of

OWN = '''
from agentv.evaluators.base import Evaluator
from agentv.model.evaluator import Score

class Longest(Evaluator, frozen=True, kw_only=True):
    """The answer has at most `most` words."""

    words: int

    def complaints(self):
        return [] if self.words else ["'words' is 0"]

    def score(self, judgement):
        return Score(float(len(judgement.candidate_answer.split()) <= self.words))

class Plain: pass
def function(context): return 1
'''


def spec(type_, transform=None, **settings):
    return EvaluatorSpec(type=type_, name="mine", settings=freeze(settings), transform=freeze(transform))


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return lambda value: str(tmp_path / value)


NEEDED = {
    "command": {"command": "true"},
    "skill_trigger": {"skill": "x"},
    "code_judge": {"script": "x"},
    "python": {"function": "a.py:f"},
    "javascript": {"code": "true"},
    "composite": {"evaluators": ["x"], "aggregator": "weighted_average"},
    "tool_trajectory": {"mode": "any_order", "minimums": {"a": 1}},
    "field_accuracy": {"fields": [{"path": "a"}]},
    "latency": {"threshold": 1},
    "cost": {"budget": 1},
    "token_usage": {"max_total": 1},
    "execution_metrics": {"max_tokens": 1},
    "json_schema": {"schema": {}},
    "context_graded": {"grades": "faithfulness", "passages": {"json_path": "context"}},
    "embedding_similarity": {"value": ["a"]},
    "model_graded": {"prompt": "{{ output }}"},
    "scoring_function": {"evaluators": ["x"], "function": "judge.py"},
    "tool_steps": {"check": "tool-used", "value": "x"},
}


@pytest.mark.parametrize("type_", EVALUATORS.names())
def test_every_type_is_built_from_its_spec(type_):
    assert isinstance(evaluator_of(spec(type_, **NEEDED.get(type_, {}))), EVALUATORS.find(type_))


def test_other_spellings_mean_the_same():
    assert evaluator_of(spec("contains", value="a")) == Contains(value="a")
    assert evaluator_of(spec("contains-any", values=["a"])) == evaluator_of(spec("contains_any", value=["a"]))


def test_a_custom_type_is_found_and_scores(own, scoring):
    evaluator = evaluator_of(spec("own.py:Longest", words=2), own)
    assert evaluator.is_plain
    assert [scoring.run(evaluator, scoring.judgement(text)).score for text in ("a b", "a b c")] == [1, 0]


REFUSED = [
    ("contians", {}, "Unknown evaluator type 'contians'", "Did you mean 'contains'?"),
    ("contains", {"value": []}, "Field 'value' must be", ""),
    ("latency", {}, "Missing required field: 'threshold'", ""),
    ("contains", {"provider": "x"}, "Field 'provider' is not supported. Name the judge in `target`", ""),
    ("own.py:Longst", {}, "own.py has no 'Longst'. Did you mean 'Longest'?", ""),
    ("own.py:Longest", {}, "Missing required field: 'words'", ""),
    ("own.py:Longest", {"words": 1, "wrods": 2}, "Unknown field 'wrods'. Did you mean 'words'?", ""),
    ("own.py:Longest", {"words": 0}, "'words' is 0", ""),
    ("own.py:Plain", {}, "'own.py:Plain' is not a subclass of agentv.evaluators.base.Evaluator", ""),
    ("own.py:function", {}, "is not a subclass", "For a function, use `type: python` and `function: own.py:function`"),
    ("none.py:Longest", {}, "File 'none.py' cannot be read", ""),
]


@pytest.mark.parametrize(("type_", "settings", "message", "hint"), REFUSED)
def test_an_invalid_spec_is_refused_with_the_reason(own, type_, settings, message, hint):
    with pytest.raises(UsageError) as raised:
        evaluator_of(spec(type_, **settings), own)
    assert message in str(raised.value)
    assert hint in raised.value.hint


def test_a_malformed_transform_is_found_before_anything_runs():
    with pytest.raises(UsageError, match=r"'transform.regex' is not a valid regular expression"):
        evaluator_of(spec("contains", transform={"regex": "("}, value="a"))


def test_all_problems_are_reported_together():
    with pytest.raises(UsageError) as raised:
        evaluator_of(spec("levenshtein", transform={"regx": "a"}, threshold=5))
    assert raised.value.headline == "Cannot use evaluator 'mine'"
    assert len(raised.value.detail.splitlines()) == 2


@pytest.mark.parametrize("type_", EVALUATORS.names())
def test_every_type_can_score(type_):
    assert evaluator_of(spec(type_, **NEEDED.get(type_, {}))).can_run
