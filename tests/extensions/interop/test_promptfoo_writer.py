"""`convert --to promptfoo`: cases as a configuration, with what is lost, and configurations that survive both ways."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

import agentv

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
        "metadata": {"tags": ["geography"]},
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
