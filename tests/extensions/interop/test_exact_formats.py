"""Files of other tools mean what they mean there: what is the user's, the reference, or a check stays that."""

import json
from pathlib import Path

import pytest

import agentv
from agentv.errors import LossWarning


def types(case):
    return [spec.type for spec in case.evaluators]


def text(messages):
    return messages[-1].content if messages else None


def losses(loaded):
    return [str(each) for each in loaded.warnings if isinstance(each, LossWarning)]


def test_an_eval_with_a_trigger_and_assertions_keeps_both(folder):
    evals = [
        {"id": 1, "prompt": "Greet", "should_trigger": True, "assertions": [{"type": "contains", "value": "Hi"}]},
        {"id": 2, "prompt": "Add", "should_trigger": False, "assertions": ["Answers 2"]},
    ]
    folder.write("greeter/evals/evals.json", {"skill_name": "greeter", "evals": evals})
    cases = folder.load("greeter/evals/evals.json")
    assert types(cases[0]) == ["skill_trigger", "contains"]
    assert types(cases[1]) == ["rubric", "skill_trigger"]
    trigger = next(spec for spec in cases[1].evaluators if spec.type == "skill_trigger")
    assert (trigger.settings["skill"], trigger.settings["should_trigger"]) == ("greeter", False)


def test_a_test_of_github_models_passes_with_any_choice_above_zero(folder, command):
    choices = [{"choice": "good", "score": 1}, {"choice": "fair", "score": 0.4}, {"choice": "poor", "score": 0}]
    judge = {"name": "quality", "llm": {"modelId": "m", "prompt": "Rate {{completion}}", "choices": choices}}
    folder.write("a.prompt.yml", {**PROMPT, "evaluators": [judge]})
    for score, verdict in ((0.4, "pass"), (0.0, "fail")):
        reply = json.dumps({"score": score, "hits": [], "misses": []})
        targets = [{"name": "default", "provider": "mock", "response": "Hi"}]
        folder.write(
            ".agentv/targets.yaml", {"targets": [*targets, {"name": "judge", "provider": "mock", "response": reply}]}
        )
        command("eval", "a.prompt.yml", "--judge", "judge", "--out", verdict, "--quiet")
        assert json.loads(Path(f"{verdict}/results.jsonl").read_text("utf-8"))["verdict"] == verdict


def test_an_item_of_openai_passes_if_every_grader_reaches_its_limit(folder, command):
    grade = "def grade(sample, item):\n    return item['score'] if sample['output_text'] == TEXT.strip() else 0\n"
    source = f'TEXT = """\nHi"""\n{grade}'
    answer = "{{ sample.output_text }}"
    criteria = [
        {"type": "python", "name": "code", "source": source, "pass_threshold": 0.5},
        {"type": "string_check", "name": "same", "operation": "eq", "input": answer, "reference": "Hi"},
    ]
    items = [
        {"item": {"id": "over", "input": "é", "score": 0.6}},
        {"item": {"id": "under", "input": "b", "score": 0.4}},
    ]
    folder.write("eval.json", json.dumps({"testing_criteria": criteria, "items": items}))
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "Hi"}]})
    command("eval", "eval.json", "--out", "run", "--quiet")
    records = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    assert {record["eval_id"]: record["verdict"] for record in records} == {"over": "pass", "under": "fail"}


def test_a_command_of_a_check_keeps_its_arguments(folder):
    check = {"check": "It builds.", "cmd": ["make", "all"], "expect_exit": 0}
    folder.write("evals/evals.json", {"evals": [{"id": 1, "prompt": "Go", "assertions": [check]}]})
    (spec,) = folder.load("evals/evals.json")[0].evaluators
    assert spec.type == "command" and list(spec.settings["command"]) == ["make", "all"]


def test_a_trigger_set_without_checks_is_still_one(folder):
    folder.write("greeter/evals/evals.json", {"skill_name": "g", "evals": [{"query": "Hi", "should_trigger": True}]})
    assert types(folder.load("greeter/evals/evals.json")[0]) == ["skill_trigger"]


def test_the_agent_never_sees_the_instructions_of_a_simulated_user(folder):
    secret = "Never say that you are a tester"
    task = {"id": "1", "user_scenario": {"persona": "Curt", "instructions": {"task_instructions": secret}}}
    golden = {"scenario": secret, "user_description": "Curt", "expected_outcome": "A refund"}
    folder.write("tasks.json", json.dumps([task]))
    folder.write("goldens.json", json.dumps([golden]))
    for path in ("tasks.json", "goldens.json"):
        (case,) = folder.load(path)
        assert case.user.goal == secret and case.user.persona == "Curt"
        assert secret not in str(case.input)
        assert case.input[-1].role == "assistant"  # so the simulated user opens


def test_a_golden_with_turns_goes_on_with_a_simulated_user(folder):
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    golden = {"scenario": "Refund", "user_description": "Curt", "expected_outcome": "Paid", "turns": turns}
    folder.write("goldens.json", json.dumps([golden]))
    (case,) = loaded = folder.load("goldens.json")
    assert [(message.role, message.content) for message in case.input] == [("user", "Hi"), ("assistant", "Hello")]
    assert (case.user.goal, case.user.persona) == ("Refund", "Curt") and not losses(loaded)


def test_an_object_in_expected_of_braintrust_is_the_reference(folder):
    folder.write("rows.jsonl", [{"input": "Where?", "expected": {"answer": "Oslo"}}, {"input": "a", "expected": "b"}])
    cases = folder.load("rows.jsonl")
    assert dict(text(cases[0].expected_output)) == {"answer": "Oslo"}
    assert text(cases[1].expected_output) == "b"


def test_reference_outputs_are_the_reference_and_outputs_are_kept(folder):
    folder.write("rows.jsonl", [{"inputs": {"q": "Why?"}, "outputs": {"a": "wrong"}, "reference_outputs": {"a": "So"}}])
    folder.write("rows.csv", 'inputs,outputs,reference_outputs\n"{""q"": ""Why?""}",wrong,So\n')
    for path in ("rows.jsonl", "rows.csv"):
        (case,) = folder.load(path)
        assert "So" in str(text(case.expected_output)) and "wrong" not in str(text(case.expected_output))
        assert "wrong" in str(case.metadata["outputs"])


WAZA = """\
skill: x
tasks: [{id: a, inputs: {prompt: Go}}]
graders:
  - {type: text, name: words, config: {contains: [one, two, three, four, five]}}
  - {type: text, name: form, weight: 3, config: {regex_match: [six]}}
"""
_WORDS = ("one", "two", "three", "four", "five", "six")
PROMPT = {
    "name": "n",
    "messages": [{"role": "user", "content": "{{input}}"}],
    "testData": [{"id": "a", "input": "Go"}],
    "evaluators": [{"name": word, "string": {"contains": word}} for word in _WORDS],
}


@pytest.mark.parametrize(("name", "text"), [("eval.yaml", WAZA), ("a.prompt.yml", json.dumps(PROMPT))])
def test_a_case_passes_only_if_all_checks_do_where_the_tool_decides_so(folder, command, name, text):
    folder.write(name, text)
    for answer, verdict in (("one two three four five six", "pass"), ("one two three four six", "fail")):
        folder.write(".agentv/targets.yaml", f"targets: [{{name: default, provider: mock, response: {answer}}}]\n")
        command("eval", name, "--out", verdict, "--quiet")
        record = json.loads(Path(f"{verdict}/results.jsonl").read_text("utf-8"))
        assert (record["verdict"], record["score"] > 0.8) == (verdict, True)


CASES = """\
cases:
  - {name: with, inputs: a, expected_output: b}
  - {name: without, inputs: a}
  - {name: own, inputs: a, evaluators: [EqualsExpected, {Contains: x}]}
"""


def test_equals_expected_skips_cases_without_an_expected_output(folder):
    cases = folder.load(folder.write("cases.yaml", CASES + "evaluators: [EqualsExpected]\n"))
    assert [types(case) for case in cases] == [["equals"], [], ["contains"]]
    cases = folder.load(folder.write("cases.yaml", CASES + "evaluators: [EqualsExpected, {MaxDuration: 2}]\n"))
    assert [types(case) for case in cases] == [["latency", "equals"], ["latency"], ["latency", "contains"]]


def test_a_case_that_equals_expected_skips_runs_without_a_score(folder, command):
    folder.write(".agentv/targets.yaml", "targets: [{name: default, provider: mock, response: b}]\n")
    folder.write("cases.yaml", CASES + "evaluators: [EqualsExpected]\n")
    assert command("eval", "cases.yaml", "--out", "run").code == 0
    records = map(json.loads, (folder.path / "run/results.jsonl").read_text("utf-8").splitlines())
    status = {record["eval_id"]: (record["status"], record["score"]) for record in records}
    assert status == {"with": ("ok", 1.0), "without": ("unscored", None), "own": ("ok", 0.0)}


def test_the_tests_of_humaneval_are_a_named_loss(folder):
    problem = {"task_id": "HumanEval/0", "prompt": "def f():", "test": "assert f()", "entry_point": "f"}
    loaded = folder.load(folder.write("problems.jsonl", [problem]))
    assert loaded.ids == ["HumanEval/0"]
    assert any("the tests of a problem" in loss for loss in losses(loaded))
    assert agentv.load_cases("problems.jsonl")[0].metadata["test"] == "assert f()"


def test_an_input_of_inspect_that_is_json_stays_text(folder):
    folder.write("samples.jsonl", [{"id": "a", "input": '{"a": 1}', "target": "x"}])
    assert text(folder.load("samples.jsonl")[0].input) == '{"a": 1}'


def test_equals_of_pydantic_evals_counts_white_space(folder, command):
    folder.write(".agentv/targets.yaml", "targets: [{name: default, provider: mock, response: ' b '}]\n")
    folder.write("cases.yaml", "cases: [{name: a, inputs: a, evaluators: [{Equals: {value: b}}]}]\n")
    command("eval", "cases.yaml", "--out", "run")
    assert json.loads((folder.path / "run/results.jsonl").read_text("utf-8"))["score"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"criteria":', "Invalid JSON"),
        ('{"criteria": [1]}', "'criteria' must be"),
        ("[]", "'criteria' must be"),
        ('{"criteria": {"tool_trajectory_avg_score": {"match_type": "X"}}}', "unknown 'match_type' X"),
    ],
)
def test_a_configuration_of_adk_that_cannot_be_read_is_an_error(folder, command, text, message):
    folder.write("test_config.json", text)
    folder.write("a.evalset.json", {"eval_set_id": "s", "eval_cases": [{"eval_id": "e", "conversation": [ADK_TURN]}]})
    outcome = command("cases", "a.evalset.json")
    assert outcome.code == 2 and "test_config.json" in outcome.stderr and message in outcome.stderr


ADK_TURN = {"user_content": {"parts": [{"text": "Hi"}]}, "final_response": {"parts": [{"text": "Hello"}]}}


def test_entries_of_a_trigger_set_are_never_dropped(folder, command):
    folder.write("triggers.json", {"skills": ["x", {"name": "s", "positive": ["a"], "negative": ["b"]}]})
    assert command("cases", "triggers.json").code == 2


def test_tool_calls_of_adk_must_be_the_same_unless_its_configuration_differs(folder, command):
    uses = [{"name": "set", "args": {"id": 1}}, {"name": "get"}]
    said = {"parts": [{"text": "Done"}]}
    turn = {"user_content": {"parts": [{"text": "Turn on"}]}, "final_response": said}
    turn["intermediate_data"] = {"tool_uses": uses}
    folder.write("a.evalset.json", {"eval_set_id": "home", "eval_cases": [{"eval_id": "e", "conversation": [turn]}]})
    (case,) = command("cases", "a.evalset.json", "--strict").printed
    check = case["evaluators"][-1]
    assert (check["mode"], check["args_match"]) == ("exact", "exact")
    assert check["expected"] == [{"tool": "set", "args": {"id": 1}}, {"tool": "get", "args": {}}]
    criteria = {"tool_trajectory_avg_score": {"threshold": 1, "match_type": "IN_ORDER"}, "my_metric": 0.5}
    folder.write("test_config.json", {"criteria": criteria})
    assert "the criterion 'my_metric' of ADK" in command("cases", "a.evalset.json", "--strict").stderr
    assert command("cases", "a.evalset.json").printed[0]["evaluators"][-1]["mode"] == "in_order"


@pytest.mark.parametrize(("threshold", "verdict"), [(0.6, "fail"), (0.5, "pass")])
def test_a_case_of_adk_passes_if_every_criterion_reaches_its_threshold(folder, command, threshold, verdict):
    rubrics = [{"rubric_id": name, "rubric_content": {"text_property": name}} for name in ("kind", "short")]
    quality = {"threshold": threshold, "rubrics": rubrics}
    folder.write("test_config.json", {"criteria": {"rubric_based_final_response_quality_v1": quality}})
    turn = {"user_content": {"parts": [{"text": "Hi"}]}}
    folder.write("a.evalset.json", {"eval_set_id": "home", "eval_cases": [{"eval_id": "e", "conversation": [turn]}]})
    checks = [{"id": name, "satisfied": name == "kind", "reasoning": ""} for name in ("kind", "short")]
    judge = {"name": "judge", "provider": "mock", "response": json.dumps({"checks": checks, "overall_reasoning": ""})}
    target = {"name": "default", "provider": "mock", "response": "Hi"}
    folder.write(".agentv/targets.yaml", {"targets": [target, judge]})
    command("eval", "a.evalset.json", "--out", "run", "--judge", "judge")
    assert json.loads((folder.path / "run/results.jsonl").read_text("utf-8"))["verdict"] == verdict


@pytest.mark.parametrize("steps", [{"intermediate_data": {"tool_uses": []}}, {}])
def test_a_turn_of_adk_without_expected_calls_allows_no_call(folder, command, steps):
    call = "tool_calls: [{tool: set}]"
    folder.write(".agentv/targets.yaml", f"targets: [{{name: default, provider: mock, response: Hi, {call}}}]\n")
    turn = {"user_content": {"parts": [{"text": "Hi"}]}, "final_response": {"parts": [{"text": "Hi"}]}, **steps}
    folder.write("a.evalset.json", {"eval_set_id": "home", "eval_cases": [{"eval_id": "e", "conversation": [turn]}]})
    command("eval", "a.evalset.json", "--out", "run")
    assert json.loads((folder.path / "run/results.jsonl").read_text("utf-8"))["verdict"] == "fail"
