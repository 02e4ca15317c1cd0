"""Gates that look at single cases, and those that other tools' files bring along."""

import pytest

from agentv.runs.trials import combined_score

CONFIG = """\
prompts: ["{{answer}}"]
providers: [echo]
tests:
  - {description: good, vars: {answer: "yes"}, assert: [{type: contains, value: "yes"}]}
  - {description: bad, vars: {answer: "no"}, assert: [{type: contains, value: "yes"}]}
"""


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


HALF = [{"type": "contains", "value": "yes"}, {"type": "contains", "value": "sir"}]


@pytest.mark.parametrize(
    ("suite_limit", "own_limit", "options", "code"),
    [
        (0.8, 0.5, (), 1),
        (0.5, None, (), 0),
        (0.6, None, (), 1),
        (None, 0.5, (), 0),
        (None, None, (), 0),
        (0.8, None, ("--no-gate",), 0),
        (0.8, None, ("--min-score", "0.5"), 0),
    ],
)
def test_the_threshold_of_a_suite_of_agentv_decides_the_exit_code(
    folder, command, suite_limit, own_limit, options, code
):
    own = {} if own_limit is None else {"execution": {"threshold": own_limit}}
    shared = {} if suite_limit is None else {"execution": {"threshold": suite_limit}}
    folder.write("d.yaml", {**shared, "tests": [{"id": "a", "input": "yes", "criteria": "c", **own, "assert": HALF}]})
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    ended = command("eval", "d.yaml", *options)
    assert ended.code == code
    reason = f"d.yaml: 1 of 1 case scored below {suite_limit}, the threshold of the suite: a (default: 0.500)"
    assert (reason in ended.stderr) == (code == 1)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (0.9, 0.3, "below 0.9, the threshold of a.yaml"),
        (0.9, None, "below 0.9, the threshold of a.yaml"),
        (0.3, 0.9, "below 0.9, the threshold of the suite"),
        (None, 0.9, "below 0.9, the threshold of the suite"),
        (0.5, 0.3, None),
    ],
)
def test_later_suites_of_agentv_reach_the_threshold_of_the_first_too(folder, command, first, second, reason):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    for name, limit, checks in (("a", first, HALF[:1]), ("b", second, HALF)):
        tests = [{"id": name, "input": "yes", "criteria": "c", "assert": checks}]
        folder.write(f"{name}.yaml", {"execution": {} if limit is None else {"threshold": limit}, "tests": tests})
    ended = command("eval", "a.yaml", "b.yaml")
    assert ended.code == (reason is not None)
    assert reason is None or f"b.yaml: 1 of 1 case scored {reason}: b (default: 0.500)" in ended.stderr


@pytest.mark.parametrize(("own", "required", "code"), [(0.9, False, 1), (None, True, 1), (0.5, False, 0)])
def test_a_case_that_fails_above_the_threshold_of_the_suite_fails_the_run(folder, command, own, required, code):
    checks = [HALF[0], {**HALF[1], "required": required}]
    test = {"id": "a", "input": "yes", "criteria": "c", "execution": {} if own is None else {"threshold": own}}
    folder.write("d.yaml", {"execution": {"threshold": 0.4}, "tests": [{**test, "assert": checks}]})
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    ended = command("eval", "d.yaml")
    assert ended.code == code
    assert ("a (default: failed a required evaluator or a higher limit)" in ended.stderr) == (code == 1)


@pytest.mark.parametrize(("required", "code"), [(True, 1), (False, 0)])
def test_a_missed_requirement_fails_the_minimum_score_of_a_suite_of_agentv(folder, command, required, code):
    checks = [{**HALF[0], "weight": 9}, {**HALF[1], "required": required}]
    folder.write("d.yaml", {"tests": [{"id": "a", "input": "yes", "criteria": "c", "assert": checks}]})
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    assert command("eval", "d.yaml", "--min-score", "0.8").code == code


def test_a_job_that_errors_is_below_the_threshold_of_the_suite(folder, command):
    check = {"type": "python", "code": "1 / 0"}
    tests = [{"id": each, "input": "yes", "criteria": "c", "assert": HALF[:1]} for each in "ab"]
    tests[1]["assert"] = [check]
    folder.write("d.yaml", {"execution": {"threshold": 0.9}, "tests": tests})
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    ended = command("eval", "d.yaml")
    assert ended.code == 1 and "d.yaml: 1 of 2 jobs errored, and every case has to reach 0.9" in ended.stderr


@pytest.mark.parametrize(("weight", "options", "code"), [(0, (), 1), (1, (), 0), (0, ("--skip-eval",), 0)])
@pytest.mark.parametrize("gate", [{"threshold": 0.5}, {"threshold": 0.5, "trials": {"count": 2}}])
def test_a_case_of_agentv_whose_weights_are_all_0_misses_the_threshold(folder, command, gate, weight, options, code):
    tests = [
        {"id": each, "input": "yes", "criteria": "c", "assert": [{**HALF[0], "weight": weight if each == "b" else 1}]}
        for each in "ab"
    ]
    folder.write("d.yaml", {"execution": gate, "tests": tests})
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    ended = command("eval", "d.yaml", *options)
    assert ended.code == code
    assert (
        "1 of 2 cases scored below 0.5, the threshold of the suite: b (default: not scored)" in ended.stderr
    ) == code


@pytest.mark.parametrize(("limit", "is_named"), [(0.5, True), (0.8, False), (0.9, False)])
def test_a_suite_threshold_that_agentv_stores_differently_is_named(folder, command, limit, is_named):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    test = {"id": "a", "input": "yes", "criteria": "c", "assert": HALF[:1]}
    folder.write("d.yaml", {"execution": {"threshold": limit}, "tests": [test]})
    note = "AgentV (TypeScript) stores tests that score below 0.8 as failed"
    assert (note in command("eval", "d.yaml").stderr) == is_named
    assert command("eval", "d.yaml", "--strict").code == (2 if is_named else 0)
    assert command("validate", "d.yaml", "--strict").code == is_named


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


def count_answers(folder, *passing):
    """Write a target that passes the trials with these numbers."""
    folder.write("count.py", f"def answer(trial):\n    return 'yes sir' if trial in {passing} else 'yes'\n")
    target = {"name": "default", "provider": "python", "function": "count.py:answer"}
    folder.write(".agentv/targets.yaml", {"targets": [target]})


@pytest.mark.parametrize(
    ("strategy", "passing", "limit", "code"),
    [
        (None, (2,), 0.9, 0),
        ("pass_at_k", (), 0.9, 1),
        ("mean", (2,), 0.9, 1),
        ("mean", (2,), 0.6, 0),
        ("confidence_interval", (2, 3), 0.6, 1),
        ("confidence_interval", (1, 2, 3), 0.9, 0),
    ],
)
def test_the_strategy_of_trials_decides_the_gate_of_a_suite(folder, command, strategy, passing, limit, code):
    count_answers(folder, *passing)
    trials = {"count": 3} if strategy is None else {"count": 3, "strategy": strategy}
    test = {"id": "a", "input": "q", "criteria": "c", "assert": HALF}
    folder.write("d.yaml", {"execution": {"threshold": limit, "trials": trials}, "tests": [test]})
    assert command("eval", "d.yaml", "--workers", "1").code == code
    assert command("eval", "d.yaml", "--workers", "1", "--min-score", str(limit)).code == code
    assert command("eval", "d.yaml", "--no-gate").code == 0


def test_the_minimum_score_of_the_command_holds_without_the_gates_of_files(folder, command):
    suite(folder, "no")
    assert command("eval", "d.yaml", "--no-gate", "--min-score", "0.5").code == 1


def test_a_suite_without_a_threshold_has_that_of_another_suite_of_the_run(folder, command):
    suite(folder, "no")
    folder.write(
        "c.yaml", {"execution": {"threshold": 0.9}, "tests": [{"id": "b", "input": "yes", "assert": HALF[:1]}]}
    )
    assert command("eval", "d.yaml").code == 0
    assert command("eval", "c.yaml", "d.yaml").code == 1


@pytest.mark.parametrize(
    ("strategy", "scores", "combined"),
    [
        ("pass_at_k", [0.5, 0.85, 1.0], 0.85),
        ("pass_any", [0.5, 0.85, 1.0], 1.0),
        ("pass_all", [0.5, 0.85, 1.0], 0.5),
        ("mean", [0.5, 1.0], 0.75),
        ("confidence_interval", [0.5], 0.5),
        ("confidence_interval", [0.5, 1.0], 0.0),
        ("confidence_interval", [0.5, 0.6] * 16, 0.55 - 1.96 * (0.08 / 31 / 32) ** 0.5),
    ],
)
def test_scores_of_trials_are_combined_as_agentv_does(strategy, scores, combined):
    trials = list(enumerate(scores, 1))
    assert combined_score(reversed(trials), strategy) == pytest.approx(combined)


def test_only_the_answer_that_misses_a_requirement_is_said_to_miss_one(folder, command):
    check = {"type": "contains", "value": "yes"}
    checks = [{**check, "required": True, "negate": True, "value": "bad"}, *({**check, "name": f"c{n}"} for n in "12")]
    folder.write("d.yaml", {"tests": [{"id": "a", "input": "q", "criteria": "c", "assert": checks}]})
    targets = [{"name": name, "provider": "mock", "response": text} for name, text in (("x", "yes bad"), ("y", "no"))]
    folder.write(".agentv/targets.yaml", {"targets": targets})
    ended = command("eval", "d.yaml", "--target", "x", "--target", "y", "--min-score", "0.5")
    assert "a (x: failed a required evaluator or a higher limit), a (y: 0.333)" in ended.stderr
