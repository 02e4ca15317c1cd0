"""`validate` and `eval --dry-run` accept the same projects."""

import json
import os
import tempfile

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from agentv.cli import cli

NAMES = ["default", "judge", "user", "vectors", "other"]
ENTRIES = [
    {"type": "contains", "value": "a"},
    {"type": "contains"},
    {"type": "contains", "value": "a", "target": "nobody"},
    {"type": "contains", "value": "a", "transform": {"function": "checks.py:clean"}},
    {"type": "contains", "value": "a", "transform": {"function": "checks.py:gone"}},
    {"type": "contains", "value": ""},
    {"type": "containz", "value": "a"},
    {"type": "regex", "value": "("},
    {"type": "latency", "threshold": 5},
    {"type": "tool_trajectory", "mode": "exact"},
    {"type": "field_accuracy", "fields": [{"path": "a"}]},
    {"type": "llm_judge"},
    {"type": "llm_judge", "target": "judge"},
    {"type": "llm_judge", "target": ["judge", "other"]},
    {"type": "llm_judge", "prompt": "prompt.md"},
    {"type": "llm_judge", "prompt": "missing.md"},
    {"type": "llm_judge", "prompt": "Good? {{ candidate_answr }}", "target": "judge"},
    {"type": "rubric", "rubrics": ["Greets"], "target": "other"},
    {"type": "faithfulness", "target": "judge"},
    {"type": "factuality", "target": "judge"},
    {"type": "similarity", "method": "embedding", "value": "a"},
    {"type": "similarity", "method": "embedding", "value": "a", "target": "vectors"},
    {"type": "similarity", "method": "ratio"},
    {"type": "python", "function": "checks.py:check"},
    {"type": "python", "function": "checks.py:gone"},
    {"type": "python", "function": "gone.py:check"},
    {"type": "code_judge", "script": ["python3", "gone.py"]},
    {"type": "code_judge", "script": "python3 checks.py", "target": True},
    {"type": "checks.py:Mine"},
    {"type": "checks.py:Gone"},
    {"type": "composite", "evaluators": [{"type": "equals"}], "aggregator": "weighted_average"},
    {"type": "composite", "evaluators": [{"type": "llm_judge"}], "aggregator": "threshold"},
    {"type": "composite", "evaluators": ["Greets"], "aggregator": {"type": "llm_judge", "target": "other"}},
    {"type": "composite", "evaluators": [], "aggregator": "weighted_average"},
    "Greets back",
]
CHECKS = """
from agentv.evaluators.base import Evaluator
from agentv.model.evaluator import Score

def clean(text): return text
def check(context): return 1

class Mine(Evaluator, frozen=True, kw_only=True):
    def score(self, judgement): return Score(1.0)
"""

ACCEPTED = [ENTRIES[0], {"type": "llm_judge"}, {"type": "python", "function": "checks.py:check"}]
# Twice as many good entries as bad ones, so that both answers are tried.
entries = st.lists(st.sampled_from(ENTRIES) | st.sampled_from(ACCEPTED) | st.sampled_from(ACCEPTED), max_size=2)
target = st.fixed_dictionaries(
    {"name": st.sampled_from(NAMES), "provider": st.just("mock"), "response": st.just("a")},
    optional={
        "judge_target": st.sampled_from([*NAMES, "nobody"]),
        "transform": st.sampled_from([{"function": "checks.py:clean"}, {"function": "gone.py:clean"}]),
    },
)
execution = st.fixed_dictionaries(
    {},
    optional={
        "target": st.sampled_from([*NAMES, "nobody"]),
        "targets": st.lists(st.sampled_from(NAMES), max_size=2),
        "trials": st.just(2),
        "thresholds": st.sampled_from([{"contains": 0.5}, {"none": 0.5}]),
    },
)
case = st.fixed_dictionaries(
    {"expected_outcome": st.just("x"), "input": st.just("q")},
    optional={
        "expected_output": st.just("a"),
        "context": st.just(["p"]),
        "evaluators": entries,
        "execution": execution,
        "user": st.sampled_from([{"goal": "g"}, {"goal": "g", "target": "other"}]),
        "turns": st.lists(st.fixed_dictionaries({"input": st.just("t")}, optional={"evaluators": entries}), max_size=1),
    },
)


def exit_code(*arguments):
    return CliRunner().invoke(cli, arguments).exit_code


def write(name, data):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w", encoding="utf-8") as file:
        file.write(data if isinstance(data, str) else json.dumps(data))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def named(name):
    return {"name": name, "provider": "mock", "response": "a"}


some_targets = st.lists(target, min_size=1, max_size=4, unique_by=lambda each: each["name"])
all_targets = st.just([named(name) for name in NAMES])


@given(some_targets | all_targets, st.lists(case, min_size=1, max_size=2))
def test_validate_and_eval_refuse_the_same_projects(targets, cases):
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write(".agentv/targets.yaml", {"targets": targets})
            write("checks.py", CHECKS)
            write("prompt.md", "Good? {{ candidate_answer }}")
            write("d.yaml", {"cases": [{"id": str(number), **each} for number, each in enumerate(cases)]})
            validated = CliRunner().invoke(cli, ["validate", "d.yaml"])
            planned = CliRunner().invoke(cli, ["eval", "d.yaml", "--dry-run"])
            assert (validated.exit_code == 0) == (planned.exit_code == 0), validated.stdout + str(planned.exception)
        finally:
            os.chdir(before)


REFUSED = {
    "no embedder": {"type": "similarity", "method": "embedding", "value": "a"},
    "no judge": {"type": "llm_judge"},
    "unknown judge": {"type": "llm_judge", "target": "nobody"},
}


@pytest.mark.parametrize("entry", REFUSED.values(), ids=REFUSED)
def test_validate_and_eval_refuse_unusable_judges(here, entry):
    write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "a"}]})
    write("d.yaml", {"cases": [{"id": "a", "expected_outcome": "x", "input": "q", "evaluators": [entry]}]})
    assert exit_code("validate", "d.yaml") == 1
    assert exit_code("eval", "d.yaml", "--dry-run") != 0


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".agentv/targets.yaml", "targets:\n  - {name: default, provider: moc}\n"),
        (".agentv/config.yaml", "execution: {target: nobody}\n"),
        (".agentv/config.yaml", "execution: {trials: 0}\n"),
    ],
)
def test_files_used_by_a_run_are_checked_with_the_dataset(here, file, text):
    write(".agentv/targets.yaml", "targets:\n  - {name: default, provider: mock, response: a}\n")
    write(file, text)
    write("d.yaml", "cases: [{id: a, expected_outcome: x, input: q, evaluators: [{type: contains, value: a}]}]\n")
    assert exit_code("validate", "d.yaml") == 1
    assert exit_code("eval", "d.yaml", "--dry-run") != 0


def test_both_name_the_line_of_the_sidecar_that_is_wrong(here):
    write(".agentv/targets.yaml", {"targets": [named("default")]})
    write("d.jsonl", '{"id": "a", "expected_outcome": "x", "input": "q"}\n')
    write("d.yaml", "description: d\nevaluators:\n  - {type: python, function: missing.py:f}\n")
    assert "d.yaml\n     3:20  error" in CliRunner().invoke(cli, ["validate", "d.jsonl"]).stdout
    assert "line 3 in d.yaml" in str(CliRunner().invoke(cli, ["eval", "d.jsonl"]).exception)


def test_a_missing_targets_file_is_noted(here):
    write("d.yaml", "cases: [{id: a, expected_outcome: x, input: q, evaluators: [{type: llm_judge}]}]\n")
    found = CliRunner().invoke(cli, ["validate", "d.yaml"])
    assert found.exit_code == 0 and "No targets file found" in found.stderr
    write("d.yaml", "cases: [{id: a, expected_outcome: x, input: q, evaluators: [{type: contains}]}]\n")
    assert exit_code("validate", "d.yaml") == 1


def test_validate_does_not_import_user_classes(here):
    base = "from agentv.evaluators.base import Evaluator\n"
    write("own.py", f"open('imported', 'w').close()\n{base}class Mine(Evaluator):\n    def score(self, _): ...\n")
    write(".agentv/targets.yaml", "targets:\n  - {name: default, provider: mock, response: a}\n")
    write("d.yaml", "cases: [{id: a, expected_outcome: x, input: q, evaluators: [{type: 'own.py:Mine'}]}]\n")
    assert exit_code("validate", "d.yaml") == 0
    assert not os.path.exists("imported")
