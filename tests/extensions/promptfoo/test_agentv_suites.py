"""Suites of AgentV (TypeScript) 5 run with the targets of the project; what they are is decided by content."""

import json
from pathlib import Path

import pytest

from agentv.datasets.detection import detect

TARGETS = """
targets:
  - {name: parrot, provider: mock, response: "Hello Ada"}
  - {name: other, provider: mock, response: "Goodbye"}
"""
SUITE = """
providers: [parrot, {id: other}]
prompts: ["{{ input }}"]
threshold: 0.5
tests:
  - id: greets
    assert:
      - {type: contains, value: Hello}
      - {type: contains, value: "{{ name }}", required: true}
      - {type: not-contains, value: Goodbye}
    vars: {input: Greet Ada, name: Ada}
  - id: only-other
    options: {provider: other}
    threshold: 1
    assert: [{type: equals, value: Goodbye}, {type: contains, value: Hello}]
    vars: {input: [{role: user, content: Leave}]}
"""


def test_a_suite_runs_with_the_targets_of_the_project(folder, command, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write(".agentv/targets.yaml", TARGETS)
    folder.write("greet.eval.yaml", SUITE)
    command("eval", "greet.eval.yaml", "--out", "run")
    found = [json.loads(line) for line in Path("run/results.jsonl").read_text("utf-8").splitlines()]
    verdicts = {(each["eval_id"], each["target"]): (each["score"], each["verdict"]) for each in found}
    assert verdicts == {
        ("greets", "parrot"): (1.0, "pass"),
        ("greets", "other"): (0.0, "fail"),
        ("only-other", "other"): (0.5, "fail"),
    }


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("providers: [mine]\nprompts: ['{{q}}']\ntests: [{vars: {q: x}}]", "agentv-5"),
        ("prompts: ['{{q}}']\ntests: [{id: a, vars: {q: x}}]", "agentv-5"),
        ("providers: ['openai:gpt-4o']\nprompts: ['{{q}}']\ntests: [{vars: {q: x}, assert: [Is kind]}]", "agentv-5"),
        ("default_test: {vars: {q: x}}\nprompts: ['{{q}}']\ntests: [{id: a}]", "agentv-5"),
        ("providers: ['openai:gpt-4o']\nprompts: ['{{q}}']\ntests: [{vars: {q: x}}]", "promptfoo"),
        ("providers: [echo]\nprompts: ['{{q}}']\ntests: [{vars: {q: x}}]", "promptfoo"),
        ("providers: [mine]\nprompts: ['{{q}}']\ndefaultTest: {}\ntests: [{vars: {q: x}}]", "promptfoo"),
        ("target: llm\ntests: [{id: a, input: x, assert: [Is kind]}]", "yaml"),
        ("execution: {target: llm}\ntests: [{id: a, input: x, criteria: y}]", "yaml"),
    ],
)
def test_the_content_decides_between_promptfoo_and_agentv(folder, text, kind):
    assert detect(str(folder.write("suite.yaml", text))) == kind


TEST = "\ntests: [{id: a, criteria: b, vars: {input: x}}]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("providers: [a]\nextensions: ['other:x']" + TEST, "The extension 'other:x' is not supported"),
        ("providers: [a]\nnunjucks_filters: {up: up.js}" + TEST, "'nunjucks_filters' is not supported"),
        ("target: {extends: base, model: m}" + TEST, "'target.model' next to 'extends' is not supported"),
        ("environment: {type: docker, image: x}" + TEST, "'environment' of type 'docker' is not supported"),
        ("environment: {workdir: ., secrets: [X]}" + TEST, "'environment.secrets' is not supported"),
        ("providers: [a]\nprompts: ['{{ input }}']\ntests: [{id: a, criteria: b}]", "'input', which is the prompt"),
        ("providers: [a]\ntests: [{include: other.yaml, type: suite}]", "'include' of another suite"),
        (
            "providers: [a]\nprompts: ['Q: {{ input }}']"
            "\ntests: [{id: a, criteria: b, vars: {input: [{role: user, content: x}]}}]",
            "'input' has messages",
        ),
        (
            "providers: [a]\nprompts: ['{{ input }}']\ntests: [{id: a, vars: {input: x}, assert: [{type: nothing}]}]",
            "Unknown evaluator type 'nothing'",
        ),
        ("providers: [a]\ntests: [{id: a, criteria: b, vars: {input: '{{ env.HOME | upper }}'}}]", "env.HOME | upper"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(folder, text, message):
    assert message in str(folder.error(folder.write("suite.eval.yaml", text)))


def test_targets_of_a_suite_may_be_other_names_of_targets(command, folder):
    folder.write(".agentv/targets.yaml", "targets: [{name: base, provider: mock, response: hello}]\n")
    test = "{id: a, criteria: x, input: hi, assert: [{type: contains, value: hello}]}"
    suite = f"execution: {{targets: [{{name: variant, use_target: base}}, base]}}\ntests: [{test}]\n"
    path = folder.write("suite.yaml", suite)
    assert command("eval", path, "--out", "run").code == 0
    records = [json.loads(line) for line in (folder.path / "run" / "results.jsonl").read_text("utf-8").splitlines()]
    assert sorted((record["target"], record["score"]) for record in records) == [("base", 1.0), ("variant", 1.0)]
    ended = command("eval", folder.write("suite.yaml", suite.replace("use_target: base", "use_target: no")))
    assert ended.code == 2 and "refers to target 'no'" in ended.stderr


def test_an_earlier_suite_has_assertions_under_their_former_name(folder, command, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write(".agentv/targets.yaml", TARGETS)
    folder.write(
        "early.eval.yaml",
        """
experiment: {target: parrot}
assertions: [{name: polite, type: icontains, value: hello}]
tests:
  - id: greets
    criteria: Greets Ada
    input: Greet Ada
    assertions:
      - {name: leaves, type: contains, value: Goodbye}
""",
    )
    case = json.loads(command("cases", "early.eval.yaml").stdout)
    assert [(each["type"], each["name"]) for each in case["evaluators"]] == [
        ("contains", "leaves"),
        ("icontains", "polite"),
    ]
    assert case["execution"]["targets"] == ["parrot"]


def test_texts_and_patterns_of_a_suite_are_compared_as_in_agentv(folder, command, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write(".agentv/targets.yaml", "targets: [{name: parrot, provider: mock, response: '{\"a\": 1}'}]")
    folder.write(
        "texts.eval.yaml",
        r"""
providers: [parrot]
prompts: ["{{ input }}"]
tests:
  - {id: part, vars: {input: x}, assert: [{type: contains, value: '"a" '}]}
  - {id: not-part, vars: {input: x}, assert: [{type: not-icontains, value: ' "A"'}]}
  - {id: any, vars: {input: x}, assert: [{type: assert-set, assert: [{type: contains-any, value: ['"a" ']}]}]}
  - {id: other-json, vars: {input: x}, assert: [{type: equals, value: '{"a":1}'}]}
  - {id: trimmed, vars: {input: x}, assert: [{type: equals, value: ' {"a": 1} '}]}
  - {id: pattern, vars: {input: x}, assert: [{type: regex, value: '(?<key>"a").*\/?'}]}
""",
    )
    command("eval", "texts.eval.yaml", "--out", "run")
    results = [json.loads(line) for line in Path("run/results.jsonl").read_text("utf-8").splitlines()]
    assert {each["eval_id"]: each["score"] for each in results} == {
        "part": 0.0,
        "not-part": 1.0,
        "any": 0.0,
        "other-json": 0.0,
        "trimmed": 1.0,
        "pattern": 1.0,
    }


def test_defaults_without_a_counterpart_are_named(folder, command, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write(
        "suite.eval.yaml", "prompts: ['{{ input }}']\ndefaults: {provider: a, system_message: Be brief}" + TEST
    )
    assert "not kept: defaults.system_message" in command("cases", "suite.eval.yaml").stderr


def test_a_target_that_a_variable_extends_may_have_a_judge_there(folder, command, monkeypatch):
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("AGENT_TARGET", "parrot")
    folder.write(
        ".agentv/targets.yaml",
        """
targets:
  - {name: parrot, provider: mock, response: Hello, judge_target: critic}
  - {name: critic, provider: mock, response: '{"checks": [{"id": "rubric-1", "satisfied": true}]}'}
""",
    )
    folder.write(
        "alias.eval.yaml",
        "target: {name: mine, extends: '${{ AGENT_TARGET }}'}\nprompts: ['{{ input }}']\n"
        "tests: [{id: a, vars: {input: Hi}, assert: [Is kind]}]",
    )
    assert command("validate", "alias.eval.yaml").code == 0
    assert command("eval", "alias.eval.yaml").code == 0


def test_default_tests_may_have_assertions_under_their_former_name(folder, command, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write(
        "suite.eval.yaml",
        "prompts: ['{{ input }}']\ndefault_test: {assertions: [{type: contains, value: zz}]}\n"
        "tests: [{id: a, vars: {input: Hi}, assert: [{type: contains, value: b}]}]",
    )
    case = json.loads(command("cases", "suite.eval.yaml").stdout)
    assert [evaluator["value"] for evaluator in case["evaluators"]] == ["b", "zz"]


def test_assertions_under_both_names_are_refused(folder, command, monkeypatch):
    monkeypatch.chdir(folder.path)
    checks = "assert: [{type: contains, value: zz}], assertions: [{type: contains, value: H}]"
    folder.write("suite.eval.yaml", f"prompts: ['{{{{ input }}}}']\ntests: [{{id: a, vars: {{input: Hi}}, {checks}}}]")
    refused = command("validate", "suite.eval.yaml")
    assert (refused.code, "listed twice" in refused.stdout) == (1, True)


def test_other_names_of_other_names_have_the_judge_of_the_target(command, folder):
    targets = "[{name: base, provider: mock, response: hello, judge_target: critic}, {name: critic, provider: mock}]"
    folder.write(".agentv/targets.yaml", f"targets: {targets}\n")
    names = "{name: one, use_target: base}, {name: two, use_target: one}"
    path = folder.write(
        "suite.yaml", f"execution: {{targets: [{names}]}}\ntests: [{{id: a, criteria: x, input: hi}}]\n"
    )
    assert command("validate", path).code == 0
