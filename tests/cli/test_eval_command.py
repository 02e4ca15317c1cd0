"""`agentv eval`: exit codes, gates, errors, budget and output."""

import json
import re

import pytest

SAYS_YES = {"type": "contains", "value": "yes", "name": "says-yes"}
PAID = """
def answer(prompt):
    if prompt == "broken":
        raise RuntimeError("does not work")
    return {"text": prompt, "cost_usd": 0.25}
"""


@pytest.fixture
def project(folder):
    folder.write(
        "targets.yaml", {"targets": [{"name": "default", "provider": "python", "function": "agent.py:answer"}]}
    )
    folder.write("agent.py", PAID)
    return folder


def dataset(project, *answers, **document):
    cases = [{"id": f"c{number}", "expected_outcome": "x", "input": text} for number, text in enumerate(answers)]
    project.write("d.yaml", {"evaluators": [SAYS_YES], **document, "evalcases": cases})


def records(project, out="out"):
    return [json.loads(line) for line in (project.path / out / "results.jsonl").read_bytes().splitlines()]


HALF = ("yes", "no")
ERRORS = ("yes", "yes", "yes", "broken")


def test_without_paths_the_folder_evals_is_evaluated(folder, command):
    outcome = command("eval")
    assert outcome.code == 2 and "no folder 'evals' here" in outcome.stderr and "agentv init" in outcome.stderr
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "yes"}]})
    folder.write("evals/d.yaml", {"evaluators": [SAYS_YES], "evalcases": [{"id": "a", "criteria": "x", "input": "y"}]})
    outcome = command("eval", "--targets", "targets.yaml")
    assert outcome.code == 0 and "Passed 100 % of the 1 case" in outcome.stdout


@pytest.mark.parametrize(
    ("answers", "arguments", "code"),
    [
        (("yes",), (), 0),
        (("no", "no"), (), 0),
        (HALF, ("--threshold", "0.5"), 0),
        (HALF, ("--threshold", "0.51"), 1),
        (HALF, ("--min-pass-rate", "0.5"), 0),
        (HALF, ("--min-pass-rate", "0.6"), 1),
        (HALF, ("--threshold", "0.4", "--min-pass-rate", "0.6"), 1),
        (("yes", "no", "yes"), ("--fail-fast",), 1),
        (("yes", "yes"), ("--fail-fast",), 0),
        (ERRORS, (), 0),
        (ERRORS, ("--max-errors", "0"), 3),
        (ERRORS, ("--max-errors", "1"), 0),
        (ERRORS, ("--max-errors", "25%"), 0),
        (ERRORS, ("--max-errors", "24%"), 3),
        (ERRORS, ("--threshold", "0.5"), 3),
        (ERRORS, ("--threshold", "0.5", "--max-errors", "1"), 0),
        (("broken", "broken"), (), 3),
        (("broken", "broken"), ("--max-errors", "100%"), 3),
        (("yes",) * 8, ("--budget-usd", "1", "--workers", "1"), 4),
        (("yes",) * 3, ("--budget-usd", "1"), 0),
    ],
)
def test_the_exit_code_depends_on_the_outcome(project, command, answers, arguments, code):
    dataset(project, *answers)
    ended = command("eval", "d.yaml", "--out", "out", *arguments)
    assert ended.code == code, ended
    manifest = json.loads((project.path / "out" / "run.json").read_bytes())
    assert manifest["exit_code"] == code
    if code:
        assert re.search({1: "^Gate: ", 3: "^(Failed|Stopped): ", 4: "^Stopped: "}[code], ended.stderr, re.MULTILINE)
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nowhere.yaml",),
        ("d.yaml", "--target", "nobody"),
        ("d.yaml", "--trials", "0"),
        ("d.yaml", "--timeout", "0"),
        ("d.yaml", "--threshold", "80"),
        ("d.yaml", "--min-pass-rate", "-0.1"),
        ("d.yaml", "--max-errors", "many"),
        ("d.yaml", "--budget-usd", "0"),
        ("d.yaml", "--workers", "0"),
        ("d.yaml", "--shard", "3/2"),
        ("d.yaml", "--filter", "nothing"),
        ("d.yaml", "--targets", "nowhere.yaml"),
        ("d.yaml", "--unknown"),
    ],
)
def test_usage_errors_exit_with_2_before_the_run(project, command, arguments):
    dataset(project, "yes")
    ended = command("eval", *arguments)
    assert ended.code == 2
    assert "Error" in ended.stderr and "Traceback" not in ended.stderr
    assert not (project.path / ".agentv").exists()


@pytest.mark.parametrize("sample", ["0", "200%", "0%", "nan", "x"])
def test_an_impossible_sample_is_refused_as_it_was_written(command, sample):
    ended = command("eval", "d.yaml", "--sample", sample)
    assert ended.code == 2
    assert f"--sample takes a number of cases or a percentage such as 10%, got '{sample}'\n" in ended.stderr


def test_a_baseline_that_no_file_uses_is_refused(project, command):
    dataset(project, "yes")
    ended = command("eval", "d.yaml", "--baseline", "nope")
    assert ended.code == 2 and "agentv compare NEW --baseline RUN" in ended.stderr
    assert "--baseline decides nothing: no file sets `regression_tolerance`" in ended.stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--threshold", "80", "must be a number from 0 to 1, got '80'; write 0.8 for 80%"),
        ("--threshold", "1.5", "must be a number from 0 to 1, got '1.5'; write 0.015 for 1.5%"),
        ("--min-pass-rate", "80%", "must be a number from 0 to 1, got '80%'; write 0.8 for 80%"),
        ("--threshold", "nan", "must be a number from 0 to 1, got 'nan'"),
        ("--workers", "abc", "must be a whole number of at least 1, got 'abc'"),
        ("--timeout", "0", "must be a number above 0, got '0'"),
    ],
)
def test_an_invalid_number_is_rejected_with_the_allowed_range(command, option, value, said):
    ended = command("eval", "d.yaml", option, value)
    assert ended.code == 2 and f"Invalid value for '{option}': {said}\n" in ended.stderr


@pytest.mark.parametrize(("minimum", "code"), [(0.5, 0), (0.6, 1)])
def test_a_dataset_can_require_a_mean_of_an_evaluator(project, command, minimum, code):
    dataset(project, *HALF, execution={"thresholds": {"says-yes": minimum}})
    ended = command("eval", "d.yaml")
    assert ended.code == code
    if code:
        assert "default: says-yes: mean 0.500 (2 of 2 jobs scored) is below the threshold 0.6" in ended.stderr


def test_a_threshold_of_a_dataset_allows_no_errors(project, command):
    dataset(project, *ERRORS, execution={"thresholds": {"says-yes": 0.5}})
    assert command("eval", "d.yaml").code == 3


def test_every_target_must_meet_the_gate(project, command):
    targets = [{"name": "good", "provider": "mock", "response": "yes"}, {"name": "bad", "provider": "mock"}]
    project.write("targets.yaml", {"targets": targets})
    dataset(project, "no", "no")
    ended = command("eval", "d.yaml", "--target", "good", "--target", "bad", "--threshold", "0.5")
    assert ended.code == 1
    assert (
        "bad: mean 0.000 (2 of 2 jobs scored) is below the threshold 0.5" in ended.stderr
        and "good:" not in ended.stderr
    )


def test_a_budget_stops_new_jobs_and_a_larger_one_resumes_the_run(project, command):
    dataset(project, *(["yes"] * 8))
    ended = command("eval", "d.yaml", "--out", "out", "--budget-usd", "1", "--workers", "1")
    assert ended.code == 4 and "the budget is used up" in ended.stderr
    assert "agentv eval --resume --out out --budget-usd USD" in ended.stdout
    assert len(records(project)) == 4
    summary = json.loads((project.path / "out" / "summary.json").read_bytes())["targets"]["default"]
    assert (summary["cost_usd"], summary["skipped"], summary["scored"]) == (1.0, 4, 4)
    again = command("eval", "--resume", "--out", "out")
    assert again.code == 4 and len(records(project)) == 4
    more = command("eval", "--resume", "--out", "out", "--budget-usd", "2.5")
    assert more.code == 0 and len(records(project)) == 8


def test_a_budget_needs_a_price(project, command):
    model = {"name": "default", "provider": "openai", "model": "nobody-knows-it", "api_key": "none"}
    project.write("targets.yaml", {"targets": [model]})
    dataset(project, "yes")
    ended = command("eval", "d.yaml", "--budget-usd", "1")
    assert ended.code == 2
    assert "--budget-usd cannot be enforced: the price of target 'default' is unknown" in ended.stderr
    assert not (project.path / ".agentv" / "results").exists()


def test_a_function_without_a_cost_ends_a_run_with_a_budget(project, command):
    project.write("silent.py", "def answer(prompt):\n    return 'yes'\n")
    target = {"name": "default", "provider": "python", "function": "silent.py:answer"}
    project.write("targets.yaml", {"targets": [target]})
    dataset(project, "yes")
    ended = command("eval", "d.yaml", "--budget-usd", "1")
    assert ended.code == 2
    assert "does not report the cost of its answers" in ended.stderr


def test_a_mock_is_free_under_a_budget(project, command):
    project.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    dataset(project, "yes")
    assert command("eval", "d.yaml", "--budget-usd", "1").code == 0


MOCK = {"name": "default", "provider": "mock", "response": "yes"}
GATED_MOCK = "Warning: The gate checks canned answers: target 'default' is a mock."
ECHO = {"prompts": ["yes"], "providers": ["echo"], "tests": [{"assert": [{"type": "contains", "value": "yes"}]}]}


@pytest.mark.parametrize(
    ("arguments", "document", "warnings"),
    [
        (("--threshold", "0.5"), {}, 1),
        (("--min-pass-rate", "0.5"), {}, 1),
        (("--min-score", "0.5"), {}, 1),
        ((), {"execution": {"thresholds": {"says-yes": 0.5}}}, 1),
        (("--no-gate",), {"execution": {"thresholds": {"says-yes": 0.5}}}, 0),
        (("--max-errors", "0"), {}, 0),
        (("--threshold", "0.5", "--quiet"), {}, 0),
        ((), {}, 0),
    ],
)
def test_a_gate_on_a_mock_warns_once(project, command, arguments, document, warnings):
    project.write("targets.yaml", {"targets": [MOCK]})
    dataset(project, "a", "b", **document)
    ended = command("eval", "d.yaml", *arguments)
    assert ended.code == 0, ended
    assert ended.stderr.count("canned answers") == ended.stderr.count(GATED_MOCK) == warnings


def test_a_gate_on_two_mocks_names_both_of_them(project, command):
    project.write("targets.yaml", {"targets": [MOCK, {**MOCK, "name": "other"}]})
    dataset(project, "a")
    ended = command("eval", "d.yaml", "--target", "default", "--target", "other", "--threshold", "0.5")
    assert "canned answers: targets 'default', 'other' are mocks." in ended.stderr


def test_a_gate_on_the_echo_provider_of_promptfoo_does_not_warn(folder, command):
    folder.write("promptfooconfig.yaml", ECHO)
    ended = command("eval", "promptfooconfig.yaml", "--threshold", "0.5")
    assert ended.code == 0 and "canned" not in ended.stderr


def test_a_mock_that_replaces_a_provider_of_promptfoo_is_warned_about(folder, command):
    folder.write("targets.yaml", {"targets": [{**MOCK, "name": "openai:gpt-5"}]})
    folder.write("promptfooconfig.yaml", {**ECHO, "providers": ["openai:gpt-5"]})
    ended = command("eval", "promptfooconfig.yaml", "--threshold", "0.5")
    assert "target 'openai:gpt-5' is a mock" in ended.stderr, ended


def test_fail_fast_stops_at_the_first_failure(project, command):
    dataset(project, "yes", "no", *(["yes"] * 50))
    ended = command("eval", "d.yaml", "--out", "out", "--fail-fast", "--workers", "1")
    assert ended.code == 1
    assert [record["score"] for record in records(project)] == [1.0, 0.0]
    assert "agentv eval --resume --out out" in ended.stdout
    assert command("eval", "--resume", "--out", "out", "--quiet").code == 0
    assert len(records(project)) == 52


def test_data_goes_to_stdout_and_messages_to_stderr(project, command):
    dataset(project, *ERRORS, "no")
    ended = command("eval", "d.yaml", "--out", "out")
    assert "mean        0.750 (95 % interval" in ended.stdout and "n = 4)" in ended.stdout
    assert "scored      4 of 5 cases; not scored: 1 error\n" in ended.stdout
    assert "says-yes" in ended.stdout and "does not contain 'yes'" in ended.stdout
    assert "agentv eval --retry-errors out" in ended.stdout
    assert ended.stdout.rstrip().endswith("Results: out")
    assert "First process error in c3: " in ended.stderr and "5/5" in ended.stderr
    assert "\x1b[" not in ended.stdout + ended.stderr


def test_json_is_the_only_output_on_stdout(project, command):
    dataset(project, *HALF)
    ended = command("eval", "d.yaml", "--out", "out", "--json", "--threshold", "0.9")
    assert ended.code == 1
    (printed,) = ended.printed
    assert (printed["run"], printed["exit_code"]) == ("out", 1)
    assert printed["summary"] == json.loads((project.path / "out" / "summary.json").read_bytes())


def test_a_run_folder_that_cannot_be_created_has_a_hint(project, command):
    dataset(project, *HALF)
    ended = command("eval", "d.yaml", "--out", "d.yaml/run")
    assert ended.code == 2 and "Choose another folder with --out" in ended.stderr


def test_quiet_prints_only_the_reason_of_a_failure(project, command):
    dataset(project, *HALF)
    assert command("eval", "d.yaml", "--quiet", "--out", "a").stdout == ""
    ended = command("eval", "d.yaml", "--quiet", "--out", "b", "--threshold", "0.9")
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr == "Gate: default: mean 0.500 (2 of 2 jobs scored) is below the threshold 0.9\n"


def test_quiet_prints_the_first_error_if_errors_fail_the_run(project, command):
    dataset(project, "broken", "broken")
    ended = command("eval", "d.yaml", "--quiet", "--out", "a")
    assert (ended.code, ended.stdout) == (3, "")
    lines = ended.stderr.splitlines()
    assert lines[0] == "2 errors (not scored): a" and lines[1].startswith("First error in ") and len(lines) == 3
    assert lines[2] == "Failed: Every job errored"


def test_why_prints_the_reason_for_each_job(project, command):
    dataset(project, *ERRORS)
    assert command("eval", "d.yaml", "--out", "first", "--quiet").code == 0
    ended = command("eval", "d.yaml", "--out", "second", "--retry-errors", "first", "--why", "--trials", "2")
    assert "c3 (default): errored (process)" in ended.stderr
    assert "c0 (default, trial 2): not in the earlier run" in ended.stderr
    assert "c0 (default): carried over from " in ended.stderr


def test_why_with_quiet_prints_only_the_reasons(project, command):
    dataset(project, *ERRORS)
    assert command("eval", "d.yaml", "--out", "first", "--quiet").code == 0
    ended = command("eval", "d.yaml", "--out", "second", "--retry-errors", "first", "--why", "--quiet")
    *reasons, last = ended.stderr.splitlines()
    assert len(reasons) == len(ERRORS)
    assert all(" (default): " in line for line in reasons)
    assert last == "1 error (not scored): second"


def test_help_shows_examples_and_exit_codes(command):
    shown = command("eval", "--help")
    assert shown.code == 0
    assert "agentv eval --resume" in shown.stdout and "130 interrupted" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (("--out", "records.txt", "--format", "jsonl"), "{"),
        (("--out", "records.txt", "--format", "yaml"), "---"),
        (("--out", "records.jsonl", "--format", "yaml"), "---"),
    ],
)
def test_the_format_of_a_records_file_can_be_set(project, command, arguments, begins):
    dataset(project, "yes")
    assert command("eval", "d.yaml", *arguments, "--quiet").code == 0
    assert (project.path / arguments[1]).read_text(encoding="utf-8").startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--format", "yaml"), "--out is not set"), (("--out", "evals", "--format", "yaml"), "It is a folder")],
)
def test_a_format_without_a_file_is_refused(project, command, arguments, message):
    dataset(project, "yes")
    (project.path / "evals").mkdir(exist_ok=True)
    ended = command("eval", "d.yaml", *arguments)
    assert ended.code == 2 and message in ended.stderr


@pytest.mark.parametrize(
    ("name", "hint"), [("o.csv", "agentv report RUN o.csv"), ("o.json", "--format"), ("sub/O.TXT", "--format")]
)
def test_an_out_file_with_an_unknown_extension_is_refused(project, command, name, hint):
    dataset(project, "yes")
    ended = command("eval", "d.yaml", "--out", name)
    assert ended.code == 2 and f"Cannot write {name}" in ended.stderr and hint in ended.stderr
    assert not (project.path / name).exists()


@pytest.mark.parametrize("name", ["v1.2", "2026.11.15", ".hidden", "plain"])
def test_a_folder_may_have_dots_in_its_name(project, command, name):
    dataset(project, "yes")
    assert command("eval", "d.yaml", "--out", name, "--quiet").code == 0
    assert (project.path / name / "results.jsonl").is_file()


@pytest.mark.parametrize("option", ["--out", "--record"])
@pytest.mark.parametrize("name", ["d.jsonl", "d.yaml", "targets.yaml", "link.jsonl"])
def test_a_run_never_overwrites_its_inputs(project, command, option, name):
    project.write("d.jsonl", [{"id": "a", "expected_outcome": "x", "input": "yes"}])
    project.write("d.yaml", {"dataset": "d", "evaluators": [{"type": "contains", "value": "yes"}]})
    project.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    (project.path / "link.jsonl").symlink_to("d.jsonl")
    before = (project.path / name).read_bytes()
    ended = command("eval", "d.jsonl", option, name)
    assert ended.code == 2 and f"Cannot write {name}\n  It is an input of the run" in ended.stderr
    assert (project.path / name).read_bytes() == before and not (project.path / ".agentv").exists()


def test_a_records_file_is_replaced_only_by_a_complete_one(project, command):
    dataset(project, "yes", "no")
    kept = project.path / "kept.jsonl"
    kept.write_text("old\n")
    (project.path / "records.jsonl").symlink_to("kept.jsonl")
    assert command("eval", "d.yaml", "--out", "records.jsonl", "--quiet").code == 0
    assert len(kept.read_text().splitlines()) == 2 and (project.path / "records.jsonl").is_symlink()
    assert not list(project.path.glob(".*.tmp"))


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_prints_of_a_function_do_not_mix_with_json_on_stdout(project, command, kind):
    project.write("agent.py", f"print('imported')\n\n{kind} answer(prompt):\n    print('asked')\n    return prompt\n")
    dataset(project, "yes")
    ended = command("eval", "d.yaml", "--out", "out", "--json")
    assert json.loads(ended.stdout)["exit_code"] == 0
    assert "imported" in ended.stderr and "asked" in ended.stderr


def test_quiet_prints_one_line_if_jobs_errored(project, command):
    dataset(project, *ERRORS)
    ended = command("eval", "d.yaml", "--out", "out", "-q")
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", "1 error (not scored): out\n")


def test_quiet_prints_nothing_without_errors(project, command):
    dataset(project, "yes", "no")
    ended = command("eval", "d.yaml", "--out", "out", "-q")
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", "")
