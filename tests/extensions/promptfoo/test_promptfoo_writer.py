"""`convert --to promptfoo`: cases as a configuration, with what is lost, and configurations that survive both ways."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

import agentv
from agentv.datasets.foreign.case_parts import NO_CHECK

DATA = Path(__file__).parents[2] / "data" / "promptfoo"

CASES = """
execution: {target: default, trials: 2}
evalcases:
  - id: capital
    expected_outcome: Names Oslo
    input: What is the capital of Norway?
    expected_output: Oslo
    tags: [geography]
    evaluators:
      - {type: contains, weight: 2}
      - {type: icontains, value: sweden, negate: true, name: no-sweden}
      - {type: json_schema, schema: {type: object}, transform: {json_path: answer.data}}
      - {type: javascript, code: output.length < 9, threshold: 0.5}
      - {type: ends_with, value: Oslo}
      - type: composite
        aggregator: weighted_average
        evaluators: [{type: regex, value: O.lo}, {type: latency, threshold: 900}]
      - {type: tool_trajectory, mode: any_order, minimums: {search: 1}}
  - id: chat
    expected_outcome: Is polite
    input: [{role: system, content: Be brief}, {role: user, content: Hello}]
"""

TESTS = [
    {
        "description": "capital",
        "vars": {"prompt": "What is the capital of Norway?"},
        "threshold": 0.8,
        "assert": [
            {"type": "contains", "value": "Oslo", "weight": 2.0},
            {"type": "not-icontains", "value": "sweden", "metric": "no-sweden"},
            {"type": "is-json", "value": {"type": "object"}, "transform": "JSON.parse(output).answer.data"},
            {"type": "javascript", "value": "output.length < 9", "threshold": 0.5},
            {"type": "javascript", "value": 'output.trim().endsWith("Oslo")'},
            {
                "type": "assert-set",
                "assert": [{"type": "regex", "value": "O.lo"}, {"type": "latency", "threshold": 900}],
            },
        ],
        "metadata": {"tags": ["geography"], "expected_outcome": "Names Oslo"},
    },
    {
        "description": "chat",
        "vars": {"prompt": '[{"role":"system","content":"Be brief"},{"role":"user","content":"Hello"}]'},
        "threshold": 0.8,
        "assert": [{"type": "llm-rubric", "value": "Is polite"}],
    },
]


@pytest.mark.parametrize("name", ["out.yaml", "out.json"])
def test_cases_become_tests_with_assertions(folder, command, name):
    folder.write("d.yaml", CASES)
    ended = command("convert", "d.yaml", name, "--to", "promptfoo")
    config = yaml.safe_load(Path(name).read_text("utf-8"))
    assert config["prompts"] == ["{{prompt}}"] and config["providers"] == ["echo"]
    assert config["evaluateOptions"] == {"repeat": 2} and config["tests"] == TESTS
    lost = {line.split("not written: ")[1] for line in ended.stderr.splitlines() if "not written: " in line}
    assert lost == {
        "the evaluator `tool_trajectory` (1 time)",
        "the targets: replace `echo` with your providers (1 time)",
    }
    assert [case.id for case in agentv.load_cases(name)] == ["capital", "chat"]


FAILS = {
    "type": "javascript",
    "value": f"({json.dumps({'pass': False, 'score': 0, 'reason': NO_CHECK})})",
}
CONVERTED = [
    ({"type": "skill_trigger", "skill": "x", "should_trigger": False}, {"type": "not-skill-used", "value": "x"}, ""),
    ({"type": "ends_with"}, {"type": "javascript", "value": 'output.trim().endsWith("Oslo")'}, ""),
    ({"type": "contains", "value": " Bergen "}, {"type": "contains", "value": "Bergen"}, ""),
    (
        {"type": "regex", "value": "a", "flags": "i"},
        {"type": "javascript", "value": 'new RegExp("a", "i").test(output)'},
        "",
    ),
    (
        {"type": "regex", "value": "a b", "flags": "x"},
        {"type": "regex", "value": "a b"},
        "`flags` of the evaluator `regex`",
    ),
    ({"type": "regex", "value": "(?i)a"}, {"type": "javascript", "value": 'new RegExp("a", "i").test(output)'}, ""),
    ({"type": "regex", "value": "(?P<n>a)"}, FAILS, "a pattern that only Python has"),
    ({"type": "similarity", "value": "a"}, {"type": "similar", "value": "a"}, "`method` of the evaluator `similarity`"),
    ({"type": "rouge", "value": "a"}, {"type": "rouge-n", "value": "a"}, "`variant` of the evaluator `rouge`"),
    ({"type": "equals", "value": "a", "negate": True}, {"type": "not-equals", "value": "a"}, "ignores white space"),
    ({"type": "llm_judge", "criteria": "Short"}, {"type": "llm-rubric", "value": "Short"}, ""),
    (
        {"type": "llm_judge", "prompt": "Rate {{ candidate_answer }}"},
        {"type": "llm-rubric", "value": "ok\n"},
        "the prompt of a judge",
    ),
    (
        {
            "type": "composite",
            "aggregator": "weighted_average",
            "evaluators": [{"type": "is_json"}, {"type": "token_usage", "max_total": 1}],
        },
        {"type": "assert-set", "assert": [{"type": "is-json"}]},
        "the evaluator `token_usage`",
    ),
    ({"type": "python", "code": "return len(output) < 9"}, {"type": "python", "value": "len(output) < 9"}, ""),
    ({"type": "python", "code": "a = 1\nreturn a"}, {"type": "python", "value": "a = 1\nreturn a"}, ""),
]


@pytest.mark.parametrize(("evaluator", "assertion", "loss"), CONVERTED)
def test_an_evaluator_becomes_an_assertion_or_a_named_loss(folder, command, evaluator, assertion, loss):
    case = {"id": "a", "expected_outcome": "ok\n", "input": "Hi", "expected_output": "Oslo", "evaluators": [evaluator]}
    folder.write("d.yaml", {"execution": {"target": "echo"}, "evalcases": [case]})
    ended = command("convert", "d.yaml", "out.json", "--to", "promptfoo")
    assert json.loads(Path("out.json").read_text("utf-8"))["tests"][0]["assert"] == [assertion]
    assert loss in ended.stderr if loss else "not written" not in ended.stderr


def test_rubric_items_weigh_as_much_as_their_evaluator(folder, command):
    rubric = {
        "type": "rubric",
        "weight": 2,
        "rubrics": [{"id": "a", "outcome": "x", "weight": 3}, {"id": "b", "outcome": "y"}],
    }
    case = {"id": "a", "expected_outcome": "ok", "input": "Hi", "evaluators": [rubric, {"type": "is_json"}]}
    folder.write("d.yaml", {"evalcases": [case]})
    command("convert", "d.yaml", "out.json", "--to", "promptfoo")
    assertions = json.loads(Path("out.json").read_text("utf-8"))["tests"][0]["assert"]
    assert [assertion.get("weight", 1) for assertion in assertions] == [1.5, 0.5, 1]


def test_losses_fail_a_strict_conversion(folder, command):
    folder.write("d.yaml", CASES)
    assert command("convert", "d.yaml", "out.yaml", "--to", "promptfoo", "--strict").code != 0
    assert not Path("out.yaml").exists()


def plain(case):
    specs = [{key: value for key, value in spec.to_data().items() if key != "name"} for spec in case.evaluators]
    inputs = [prompt.input for prompt in case.prompts] or [case.input]
    verdicts = case.execution.verdicts and case.execution.verdicts.passing
    return case.id, json.dumps([str(inputs), specs, verdicts, case.metadata], default=str, sort_keys=True)


@pytest.mark.parametrize("name", ["gates", "scenarios", "odd", "code"])
def test_a_configuration_survives_a_conversion_to_ours_and_back(folder, command, monkeypatch, name):
    shutil.copytree(DATA / name, folder.path / name)
    monkeypatch.chdir(folder.path / name)
    config = next(Path().glob("promptfooconfig.*")).name
    assert command("convert", config, "ours.yaml").code == 0
    assert command("convert", "ours.yaml", "theirs.yaml", "--to", "promptfoo").code == 0
    before, after = agentv.load_cases(config), agentv.load_cases("theirs.yaml")
    assert [plain(case) for case in after] == [plain(case) for case in before]
