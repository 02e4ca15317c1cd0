"""The pytest plugin, run in separate pytest processes: cases as tests, datasets as test files, reports."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path

import pytest
from junitparser import JUnitXml

pytestmark = pytest.mark.ci

CASES = [
    {"id": "good", "expected_outcome": "x", "input": "an a", "tags": ["first"]},
    {"id": "bad", "expected_outcome": "x", "input": "other"},
]
CONTAINS = [{"type": "contains", "value": "a"}]


@pytest.fixture
def project(folder, warm_pytest):
    """A project with an echo target and a dataset with one passing and one failing case."""
    folder.write(".git/HEAD", "")
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    folder.write("evals/echo.eval.yaml", {"evaluators": CONTAINS, "evalcases": CASES})
    folder.pytest = partial(run_pytest, [warm_pytest])
    return folder


def run_pytest(program, *arguments, code):
    """Run pytest with two plugins only, check its exit code, and return its output."""
    plugins = ["-p", "no:cacheprovider", "-p", "agentv.pytest_plugin.plugin", "-p", "xdist.plugin"]
    command = [*program, "-q", *plugins, *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COLUMNS"))}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading all installed plugins takes most of the time
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=200, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def installed():
    from importlib.metadata import entry_points

    return any(point.value == "agentv.pytest_plugin.plugin" for point in entry_points(group="pytest11"))


def run_records():
    """Return the records of the only run."""
    [run] = Path(".agentv/results").iterdir()
    lines = (run / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return run, {record["eval_id"]: record for record in map(json.loads, lines)}


TEST = """
import agentv

@agentv.cases("evals/echo.eval.yaml")
def test_answers(case, agentv_answer):
    answer = agentv_answer(case.input[0].content.upper())
    assert "A" in answer, "there is no A"
"""


def test_each_case_becomes_a_test(project):
    project.write("tests/test_answers.py", TEST)
    printed = project.pytest("tests", "-vv", code=1)
    assert "test_answers[good] PASSED" in printed and "test_answers[bad] FAILED" in printed
    assert "1 passed" in project.pytest("tests", "-k", "good", code=0)


def test_datasets_are_relative_to_the_test_file(project, monkeypatch):
    project.write("tests/test_answers.py", TEST)
    monkeypatch.chdir(project.path / "tests")
    assert "1 failed, 1 passed" in project.pytest(code=1)


def module_source(decorator, body, argument="case"):
    """Return a test file with one test."""
    return f"import os, agentv\n\n@agentv.cases({decorator})\ndef test_x({argument}):\n    {body}\n"


def test_options_select_cases_and_set_the_argument_name(project):
    decorator = "'evals', filter='tag=first', argument='row'"
    project.write("test_options.py", module_source(decorator, "assert row.id == 'good'", "row"))
    assert "1 passed" in project.pytest("test_options.py", code=0)


def test_an_invalid_dataset_is_an_error_with_its_message(project):
    project.write("test_wrong.py", module_source("'evals/none.yaml'", "pass"))
    printed = project.pytest("test_wrong.py", code=2)
    assert "evals/none.yaml" in printed and "Traceback" not in printed and "load_cases" not in printed


def test_a_refused_case_is_an_error_and_its_test_does_not_run(project):
    broken = {"description": "broken", "vars": {"x": "b"}, "assert": [{"type": "regex", "value": "("}]}
    fine = {"description": "fine", "vars": {"x": "a"}, "assert": [{"type": "regex", "value": "a"}]}
    project.write("suite.yaml", {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [fine, broken]})
    project.write("test_x.py", module_source("'suite.yaml'", "print('ran', case.id)"))
    shown = project.pytest("test_x.py", "-s", "--agentv-report", code=1)
    assert "1 passed" in shown and "1 error" in shown
    assert "refused case 'broken'" in shown and "not a valid regular expression" in shown
    assert "ran fine" in shown and "ran broken" not in shown
    _, found = run_records()
    assert (found["broken"]["status"], found["broken"]["error"]["stage"]) == ("error", "setup")


def test_tests_from_cases_become_a_run(project):
    project.write("tests/test_answers.py", TEST)
    printed = project.pytest("tests", "--agentv-report", code=1)
    run, records = run_records()
    assert f"agentv: 2 results in .agentv/results/{run.name}" in printed
    assert (records["good"]["score"], records["good"]["candidate_answer"]) == (1.0, "AN A")
    assert (records["bad"]["verdict"], records["bad"]["target"]) == ("fail", "tests/test_answers.py::test_answers")
    assert "there is no A" in records["bad"]["misses"][0]
    assert (run / "report.html").is_file() and (run / "summary.json").is_file()
    assert [json.loads(line)["line"] for line in (run / "cases.jsonl").read_text().splitlines()] == [1, 1]


STACKED = """
import agentv, pytest

@agentv.cases("evals/echo.eval.yaml")
@pytest.mark.parametrize("how", ["loud", len, "same", "same"])
class TestMany:
    def test_answers(self, case, how): ...
"""


def test_other_parameters_name_the_target_and_repeats_are_trials(project):
    project.write("tests/test_many.py", STACKED)
    project.pytest("tests", "--agentv-report", code=0)
    [run] = Path(".agentv/results").iterdir()
    records = map(json.loads, (run / "results.jsonl").read_text().splitlines())
    found = sorted((record["target"].partition("[")[2], record["trial"]) for record in records)
    assert found == [("len]", 1)] * 2 + [("loud]", 1)] * 2 + [("same]", 1)] * 2 + [("same]", 2)] * 2


@pytest.mark.parametrize("body", ["raise ValueError('boom')", "broken()"])
def test_other_exceptions_are_errors_without_a_score(project, body):
    project.write(
        "test_x.py", f"import agentv\n\n@agentv.cases('evals/echo.eval.yaml')\ndef test_x(case):\n    {body}\n"
    )
    project.pytest("test_x.py", "--agentv-report", code=1)
    _, records = run_records()
    assert {record["status"] for record in records.values()} == {"error"}
    assert records["good"]["score"] is None


def test_datasets_are_not_collected_by_default(project):
    assert "no tests ran" in project.pytest("evals", code=5)


def test_a_dataset_is_a_test_file(project):
    printed = project.pytest("--agentv-evals", "-vv", code=1)
    assert "evals/echo.eval.yaml::good PASSED" in printed
    assert "evals/echo.eval.yaml::bad FAILED" in printed
    assert "missed: does not contain 'a'" in printed and "Traceback" not in printed and "runtest" not in printed
    assert not Path(".agentv/results").exists()


def test_special_characters_in_ids_are_escaped_in_test_names(project):
    cases = [{**CASES[0], "id": "two\nlines \u202e"}, {**CASES[0], "id": "thresholds"}]
    project.write("evals/odd.eval.yaml", {"evaluators": CONTAINS, "evalcases": cases})
    printed = project.pytest("evals/odd.eval.yaml", "--agentv-evals", "--agentv-threshold", "0.5", "-rA", code=0)
    for name in ("two\\nlines \\u{202e}", "thresholds", "thresholds of all cases"):
        assert f"PASSED evals/odd.eval.yaml::{name}\n" in printed


def test_single_cases_can_be_run_by_id(project):
    assert "1 passed" in project.pytest("--agentv-evals", "evals/echo.eval.yaml::good", code=0)
    assert "1 failed" in project.pytest("--agentv-evals", "-k", "bad", code=1)


def test_only_selected_cases_are_run(project):
    project.write(
        ".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "python", "function": "t.py:answer"}]}
    )
    project.write("t.py", "def answer(prompt):\n    open('asked', 'a').write(prompt + '\\n')\n    return 'a'\n")
    project.pytest("--agentv-evals", "evals/echo.eval.yaml::good", code=0)
    asked = next(project.path.rglob("asked"))
    assert asked.read_text() == "an a\n"


def test_patterns_in_the_configuration_select_datasets(project):
    project.write("pytest.ini", "[pytest]\nagentv_evals = data/*.jsonl\n")
    project.write("data/rows.jsonl", CASES[:1])
    project.write("data/rows.yaml", {"evaluators": CONTAINS})
    printed = project.pytest("-vv", code=0)
    assert "data/rows.jsonl::good PASSED" in printed and "1 passed" in printed


def test_a_warning_about_a_dataset_points_at_the_dataset(project):
    project.write("rows.eval.jsonl", [{**CASES[0], "evaluators": CONTAINS}])
    printed = project.pytest("--agentv-evals", "rows.eval.jsonl", code=0)
    assert "rows.eval.jsonl:0: MissingSidecarWarning: Sidecar metadata file not found: rows.eval.yaml" in printed
    assert "_pytest" not in printed


def test_an_error_is_not_a_test_failure(project):
    project.write(
        ".agentv/targets.yaml",
        {"targets": [{"name": "default", "provider": "mock", "fault_rate": 1, "max_retries": 0}]},
    )
    printed = project.pytest("--agentv-evals", "--junitxml=out.xml", code=1)
    assert "2 errors" in printed and "failed" not in printed.splitlines()[-1]
    [suite] = JUnitXml.fromfile("out.xml")
    assert (suite.errors, suite.failures, suite.tests) == (2, 0, 2)


def test_a_shared_error_is_shown_once_per_case(project):
    printed = project.pytest("--agentv-evals", "--agentv-target", "nope", code=1)
    assert "2 errors" in printed and "another exception" not in printed
    assert printed.count("Unknown target 'nope'\n  Targets in") == 2


def test_junit_output_has_the_case_score_and_reason(project):
    project.pytest("--agentv-evals", "--junitxml=out.xml", code=1)
    cases = {case.get("name"): case for case in ElementTree.parse("out.xml").iter("testcase")}
    assert list(cases) == ["good", "bad"]
    assert "missed: does not contain 'a'" in cases["bad"].find("failure").text
    assert cases["good"].find("properties/property").get("value") == "1.000"


def test_a_threshold_is_a_test_and_single_failures_are_expected(project):
    assert "2 passed, 1 xfailed" in project.pytest("--agentv-evals", "--agentv-threshold", "0.5", code=0)
    printed = project.pytest("--agentv-evals", "--agentv-threshold", "0.6", code=1)
    assert "default: mean 0.500 (2 of 2 jobs scored) is below the threshold 0.6" in printed


def test_a_threshold_can_be_decided_by_its_interval(project):
    options = ("--agentv-evals", "--agentv-threshold", "0.5", "--agentv-gate-on", "interval")
    printed = project.pytest(*options, code=1)
    assert "Can't tell: default: mean 0.500 (95 % interval" in printed


def test_thresholds_in_the_file_apply(project):
    data = {"evaluators": CONTAINS, "execution": {"thresholds": {"contains": 0.9}}, "evalcases": CASES}
    project.write("evals/echo.eval.yaml", data)
    printed = project.pytest("--agentv-evals", "-vv", code=1)
    assert "evals/echo.eval.yaml::thresholds FAILED" in printed
    assert "contains: mean 0.500 (2 of 2 jobs scored) is below the threshold 0.9" in printed


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--agentv-threshold", "80", "must be a number from 0 to 1, got '80'; write 0.8 for 80%"),
        ("--agentv-threshold", "nan", "must be a number from 0 to 1, got 'nan'"),
        ("--agentv-trials", "0", "must be a whole number of at least 1, got '0'"),
    ],
)
def test_options_are_validated_like_command_line_options(project, option, value, message):
    assert message in project.pytest("--agentv-evals", option, value, code=4)


@pytest.mark.parametrize(
    ("workers", "expected"), [(("-n", "2"), "1 failed, 1 passed"), (("-n", "0"), "1 failed, 1 passed")]
)
def test_under_xdist_every_case_runs_once_and_is_reported(project, workers, expected):
    assert expected in project.pytest("--agentv-evals", "--agentv-report-to", "out.csv", *workers, code=1)
    _, records = run_records()
    assert set(records) == {"good", "bad"}
    assert records["bad"]["dataset_path"] == "evals/echo.eval.yaml"
    assert Path("out.csv").read_text().count("\n") == 3


def test_a_threshold_under_xdist_needs_the_file_in_one_worker(project):
    options = ("--agentv-evals", "--agentv-threshold", "0.5", "-n", "2", "--dist")
    assert "2 passed, 1 xfailed" in project.pytest(*options, "loadfile", code=0)


def test_a_dataset_that_cannot_run_is_explained(project):
    project.write(
        "evals/echo.eval.yaml", {"evaluators": CONTAINS, "execution": {"target": "nobody"}, "evalcases": CASES}
    )
    printed = project.pytest("--agentv-evals", code=1)
    assert "nobody" in printed and "2 errors" in printed and "Traceback" not in printed


def test_a_broken_dataset_is_a_collection_error(project):
    project.write("evals/echo.eval.yaml", "evalcases: 1")
    assert "'evalcases' must be" in project.pytest("--agentv-evals", code=2)


def test_secrets_stay_out_of_the_run(project, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "very-secret-value")
    project.write("test_x.py", module_source("'evals/echo.eval.yaml'", "assert not os.environ['MY_API_KEY']"))
    project.pytest("test_x.py", "--agentv-report-to", "out.html", code=1)
    run, _ = run_records()
    assert b"very-secret-value" not in b"".join(path.read_bytes() for path in run.iterdir())


def test_the_unused_plugin_imports_little(project):
    project.write(
        "test_plain.py", "import sys\n\ndef test_x():\n    print(*(m for m in sys.modules if m.startswith('agentv')))\n"
    )
    printed = run_pytest([sys.executable, "-m", "pytest"], "test_plain.py", "-s", code=0)
    loaded = {word for word in printed.split() if word.startswith("agentv")}
    assert loaded <= {"agentv", "agentv.pytest_plugin", "agentv.pytest_plugin.plugin"}


def test_an_unknown_report_format_is_rejected_at_startup(project):
    plugin = [] if installed() else ["-p", "agentv.pytest_plugin.plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "--agentv-report-to", "out.pdf"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=200, check=False)
    assert done.returncode == 4
    assert "Cannot write a report to out.pdf" in done.stderr and "Traceback" not in done.stderr


FIXTURES = """
import agentv

@agentv.cases("evals/echo.eval.yaml")
def test_cases(case, agentv_assert_passes):
    agentv_assert_passes(case.input[0].content)

def test_answer(agentv_assert_passes):
    agentv_assert_passes("Paris", [lambda answer: answer == "Paris"], input="Capital?")

def test_run(agentv_evaluate):
    run = agentv_evaluate("evals/echo.eval.yaml", str.upper, [lambda answer: "A" in answer])
    assert run.summary.targets["upper"].mean == 0.5
"""


def test_a_failed_answer_does_not_show_the_source_of_agentv(project):
    test = 'import agentv\n\ndef test_a():\n    agentv.assert_passes("no", [{"type": "equals", "value": "yes"}])\n'
    project.write("tests/test_answer.py", test)
    printed = project.pytest("tests", code=1)
    assert "AssertionError: score 0.000" in printed and "TemporaryDirectory" not in printed


def test_fixtures_check_answers_and_run_datasets(project):
    project.write("tests/test_answers.py", FIXTURES)
    printed = project.pytest("tests", "-vv", "--agentv-report", code=1)
    assert "test_cases[good] PASSED" in printed and "test_answer PASSED" in printed and "test_run PASSED" in printed
    assert "test_cases[bad] FAILED" in printed and "does not contain 'a'" in printed
    assert run_records()[1]["bad"]["candidate_answer"] == "other"
