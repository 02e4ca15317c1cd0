"""Gates that look at single cases, and those that other tools' files bring along."""

import json

import pytest

CONFIG = """\
prompts: ["{{answer}}"]
providers: [echo]
tests:
  - {description: good, vars: {answer: "yes"}, assert: [{type: contains, value: "yes"}]}
  - {description: bad, vars: {answer: "no"}, assert: [{type: contains, value: "yes"}]}
"""
PROMPT = """\
---
name: reply
test_settings:
  dataset: ./rows.jsonl
  evals: [exact_match]
  SETTING
---
<User>{props.question}</User>
"""


def rows(*questions):
    return "".join(json.dumps({"input": {"question": each}, "expected_output": "yes"}) + "\n" for each in questions)


@pytest.fixture
def prompt_file(folder):
    def write(setting, *questions):
        folder.write("reply.prompt.mdx", PROMPT.replace("SETTING", setting))
        folder.write("rows.jsonl", rows(*questions))
        folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})

    return write


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 1),
        (("--no-gate",), 0),
        (("--threshold", "0.5"), 0),
        (("--min-pass-rate", "0.5"), 0),
        (("--min-score", "0"), 0),
        (("--min-score", "0.1"), 1),
        (("--max-errors", "0"), 1),
    ],
)
def test_every_test_of_a_promptfoo_configuration_has_to_pass_without_another_gate(folder, command, options, code):
    folder.write("promptfooconfig.yaml", CONFIG)
    assert command("eval", "promptfooconfig.yaml", *options).code == code


def test_a_promptfoo_configuration_whose_tests_pass_exits_0(folder, command):
    folder.write("promptfooconfig.yaml", CONFIG.replace('answer: "no"', 'answer: "yes!"'))
    assert command("eval", "promptfooconfig.yaml").code == 0


@pytest.mark.parametrize(("rate", "code"), [("50", 0), ("50.1", 1), ("0", 0), ("nonsense", 1), ("", 1)])
def test_the_pass_rate_of_promptfoo_is_honoured(folder, command, monkeypatch, rate, code):
    monkeypatch.setenv("PROMPTFOO_PASS_RATE_THRESHOLD", rate)
    folder.write("promptfooconfig.yaml", CONFIG)
    assert command("eval", "promptfooconfig.yaml").code == code


def test_the_exit_code_of_promptfoo_is_honoured(folder, command, monkeypatch):
    monkeypatch.setenv("PROMPTFOO_FAILED_TEST_EXIT_CODE", "100")
    folder.write("promptfooconfig.yaml", CONFIG)
    ended = command("eval", "promptfooconfig.yaml")
    assert ended.code == 100
    assert "promptfooconfig.yaml: 1 of 2 tests did not pass, and every test has to pass" in ended.stderr


def test_a_test_that_errors_did_not_pass(folder, command):
    broken = CONFIG.replace('{type: contains, value: "yes"}]}\n', '{type: python, value: "1 / 0"}]}\n', 1)
    folder.write("promptfooconfig.yaml", broken.replace('answer: "no"', 'answer: "yes!"'))
    ended = command("eval", "promptfooconfig.yaml")
    assert ended.code == 1 and "1 of 2 tests did not pass" in ended.stderr


def suite(folder, *answers):
    cases = [{"id": each, "input": each, "assertions": [{"type": "contains", "value": "yes"}]} for each in answers]
    folder.write("d.yaml", {"tests": cases})
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})


def test_every_case_has_to_reach_the_minimum_score(folder, command):
    suite(folder, "yes", "yes sir", "no")
    assert command("eval", "d.yaml", "--threshold", "0.5", "--out", "run").code == 0
    ended = command("eval", "d.yaml", "--min-score", "0.5")
    assert ended.code == 1
    assert "1 of 3 cases scored below --min-score 0.5: no (default: 0.000)" in ended.stderr
    assert command("rescore", "run", "--min-score", "0.5").code == 1
    assert command("rescore", "run", "--min-score", "0").code == 0


def test_a_case_is_judged_by_its_mean_over_trials(folder, command):
    suite(folder, "q")
    folder.write("count.py", "def answer(trial):\n    return 'yes' if trial % 2 else 'no'\n")
    target = {"name": "default", "provider": "python", "function": "count.py:answer"}
    folder.write(".agentv/targets.yaml", {"targets": [target]})
    options = ("--trials", "2", "--workers", "1")
    assert command("eval", "d.yaml", *options, "--min-score", "0.5").code == 0
    assert command("eval", "d.yaml", *options, "--min-score", "0.6").code == 1


def test_an_error_fails_the_minimum_score_too(folder, command):
    suite(folder, "yes", "no")
    folder.write("fail.py", "def answer(prompt):\n    if prompt == 'no': raise ValueError\n    return prompt\n")
    target = {"name": "default", "provider": "python", "function": "fail.py:answer"}
    folder.write(".agentv/targets.yaml", {"targets": [target]})
    assert command("eval", "d.yaml", "--min-score", "0.5").code == 3


def test_the_threshold_of_a_file_with_tests_is_explained(folder, command):
    suite(folder, "yes")
    note = "use --min-score for that"
    assert note in command("eval", "d.yaml", "--threshold", "0.5").stderr
    assert note not in command("eval", "d.yaml", "--min-score", "0.5").stderr


def test_thresholds_of_a_prompt_file_are_gates(prompt_file, command):
    prompt_file("score_thresholds: {exact_match: 0.9}", "yes", "no")
    ended = command("eval", "reply.prompt.mdx")
    assert ended.code == 1 and "exact_match: mean 0.500" in ended.stderr
    assert command("eval", "reply.prompt.mdx", "--no-gate").code == 0


@pytest.mark.parametrize("setting", ["score_thresholds: {exact_match: 90}", "regression_tolerance: some"])
def test_a_gate_of_a_prompt_file_must_be_a_fraction(prompt_file, command, setting):
    prompt_file(setting, "yes")
    assert command("eval", "reply.prompt.mdx").code == 2


def test_the_tolerance_of_a_prompt_file_needs_a_baseline(prompt_file, command):
    prompt_file("regression_tolerance: 0.1", "yes", "no")
    ended = command("eval", "reply.prompt.mdx")
    assert ended.code == 0
    assert "regression_tolerance 0.1 was not checked: there is no baseline" in ended.stdout + ended.stderr


def test_a_drop_against_the_baseline_is_a_gate(prompt_file, folder, command):
    prompt_file("regression_tolerance: 0.1", "yes", "no")
    assert command("eval", "reply.prompt.mdx", "--out", "base").code == 0
    assert command("eval", "reply.prompt.mdx", "--baseline", "base").code == 0
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "never"}]})
    ended = command("eval", "reply.prompt.mdx", "--baseline", "base")
    assert ended.code == 1 and "fell from 1.000 to 0.000, more than regression_tolerance 0.1" in ended.stderr
    assert command("eval", "reply.prompt.mdx", "--baseline", "base", "--no-gate").code == 0


def test_settings_files_that_are_not_read_are_named(folder, command):
    suite(folder, "yes")
    folder.write("agentv.config.ts", "export default defineConfig({ limits: { maxCostUsd: 2.5 } }) // workers: 3\n")
    stderr = command("eval", "d.yaml").stderr
    assert "agentv.config.ts is not read. It sets maxCostUsd: 2.5 (--budget-usd)\n" in stderr


def test_settings_files_that_are_not_read_are_errors_with_strict(folder, command):
    suite(folder, "yes")
    folder.write("agentv.config.ts", "export default { workers: 3 }\n")
    ended = command("eval", "d.yaml", "--strict", "--quiet")
    assert ended.code == 2 and "agentv.config.ts is not read. It sets workers: 3" in ended.stderr
    checked = command("validate", "d.yaml")
    assert checked.code == 0 and "is not read. It sets workers: 3" in checked.stdout + checked.stderr
    assert command("validate", "d.yaml", "--strict").code == 1


def test_threshold_with_tests_is_an_error_with_strict(folder, command):
    folder.write("d.yaml", "tests:\n  - {id: a, input: x, criteria: c, assertions: [{type: contains, value: yes}]}\n")
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "yes"}]})
    assert "--threshold is the mean of all cases" in command("eval", "d.yaml", "--threshold", "0.5").stderr
    ended = command("eval", "d.yaml", "--threshold", "0.5", "--strict")
    assert ended.code == 2 and "--threshold is the mean of all cases" in ended.stderr


@pytest.mark.parametrize("judge", ["${{ NO_SUCH_JUDGE }}", "gone"])
def test_an_unresolved_judge_is_an_error_only_if_a_judge_is_needed(folder, command, judge):
    suite(folder, "yes")
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "grader_target": judge}]})
    assert command("eval", "d.yaml").code == 0
    ended = command("eval", "d.yaml", "--evaluator", "llm_judge")
    assert ended.code == 2 and judge.strip("${} ") in ended.stderr


def test_only_the_score_of_a_composite_decides_in_files_with_tests(folder, command):
    members = [{"name": "p", "type": "contains", "value": "yes"}, {"name": "q", "type": "contains", "value": "no"}]
    share = {"name": "s", "type": "composite", "aggregator": {"type": "threshold", "threshold": 0.5}}
    test = {"id": "a", "input": "x", "criteria": "c", "assertions": [{**share, "assertions": members}]}
    folder.write("d.yaml", {"tests": [test]})
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "yes"}]})
    assert command("eval", "d.yaml", "--min-pass-rate", "1").code == 1
