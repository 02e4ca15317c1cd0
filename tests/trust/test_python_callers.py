"""Programs that call agentv: paths are judged like those of a command, and Python objects are trusted."""

import subprocess
import warnings

import pytest
from stranger import PYTHON, Stranger

import agentv
from agentv.errors import DatasetWarning
from agentv.trust.consent import UntrustedError

JUDGE = {"type": "code_judge", "script": [PYTHON, "judge.py"]}


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    made = Stranger(tmp_path)
    monkeypatch.chdir(made.mine)
    monkeypatch.setenv("CANARY", "planted-in-my-environment")
    return made


def test_a_dataset_outside_the_project_needs_the_option_trust(stranger):
    path = stranger.dataset(JUDGE)
    with pytest.raises(UntrustedError, match="pass trust="):
        agentv.evaluate(path, out="refused")
    assert not stranger.has_run
    run = agentv.evaluate(path, out="run", trust=stranger.theirs)
    assert (run.results[0].score, stranger.has_run) == (1.0, True)


def test_trust_ends_with_the_call(stranger):
    agentv.evaluate(stranger.dataset(JUDGE), out="run", trust=[str(stranger.theirs)])
    stranger.write(stranger.theirs, "judge.py", "print('{\"score\": 0}')")
    with pytest.raises(UntrustedError, match="has changed since"):
        agentv.evaluate(stranger.dataset(JUDGE), out="again")


def test_functions_of_the_program_score_a_dataset_from_outside(stranger):
    run = agentv.evaluate(stranger.dataset(JUDGE), lambda prompt: prompt, [lambda answer: answer == "Hi"], out="run")
    assert (run.results[0].score, stranger.has_run) == (1.0, False)


def test_loaded_cases_have_no_variables_before_trust(stranger):
    stranger.write(stranger.theirs, "evals.yaml", {"tests": [{"id": "a", "criteria": "x", "input": "${{ CANARY }}"}]})
    with pytest.warns(DatasetWarning, match="not trusted"):
        (case,) = agentv.load_cases("../theirs/evals.yaml")
    assert case.input[0].content == "${{ CANARY }}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (case,) = agentv.load_cases("../theirs/evals.yaml", trust="../theirs")
    assert case.input[0].content == "planted-in-my-environment"


def test_cases_loaded_from_outside_do_not_run_their_programs(stranger):
    (case,) = agentv.load_cases(stranger.dataset(JUDGE))
    with pytest.raises(UntrustedError):
        agentv.assert_passes("hello", case=case)
    (case,) = agentv.load_cases(stranger.dataset(JUDGE), trust="../theirs")
    assert not stranger.has_run
    agentv.assert_passes("hello", case=case)
    assert stranger.has_run


def test_pytest_trusts_its_own_root_and_folders_that_are_named(stranger, warm_pytest, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading all installed plugins takes most of the time
    plugins = ("-p", "no:cacheprovider", "-p", "agentv.pytest_plugin.plugin")

    def pytest_code(*arguments):
        command = [warm_pytest, "-q", *plugins, "--agentv-evals", "--rootdir=.", *arguments]
        return subprocess.run(command, cwd=stranger.mine, capture_output=True, check=False).returncode

    case = {"id": "a", "input": "x", "expected_outcome": "y", "evaluators": [JUDGE]}
    stranger.write(stranger.mine, "own.eval.yaml", {"evalcases": [case]})
    stranger.write(stranger.mine, "judge.py", "print('{\"score\": 1}')")
    outside = stranger.dataset(JUDGE, name="their.eval.yaml")
    assert pytest_code("own.eval.yaml") == 0
    assert (pytest_code(outside), stranger.has_run) == (1, False)
    assert (pytest_code(outside, f"--agentv-trust={stranger.theirs}"), stranger.has_run) == (0, True)
