"""The GitHub Action and the pre-commit hook: their steps, run here as a runner would."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import workflow_runner
from workflow_runner import ACTION, REPOSITORY

(HOOK,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

pytestmark = [pytest.mark.ci, pytest.mark.skipif(sys.platform == "win32", reason="composite steps use bash")]


@pytest.fixture
def project(folder, command, program, monkeypatch):
    """The starter project: 5 of 6 cases pass. This test's `agentv` is first on the PATH."""
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert command("init", ".").code == 0
    return folder


def run_action(**inputs):
    return workflow_runner.run_action({name.replace("_", "-"): value for name, value in inputs.items()})


def test_a_release_is_tested_attested_and_published_without_a_token():
    workflow = yaml.safe_load((REPOSITORY / ".github/workflows/release.yaml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert [jobs[name].get("needs") for name in ("test", "build", "publish")] == [None, "test", "build"]
    assert jobs["publish"]["if"] == "vars.PUBLISH == 'true'" and jobs["publish"]["permissions"] == {"id-token": "write"}
    steps = [step for job in jobs.values() for step in job["steps"]]
    uses = [step["uses"] for step in steps if "uses" in step]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action) for action in uses)
    actions = {action.partition("@")[0] for action in uses}
    assert {"actions/attest-build-provenance", "actions/attest-sbom", "pypa/gh-action-pypi-publish"} <= actions
    assert not any("secrets." in str(step) or "${{" in step.get("run", "") for step in steps)


def test_every_value_reaches_the_shell_as_a_variable():
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"], "an expression in a script could run code from an input"


def test_the_action_runs_reports_and_passes(project):
    ended = run_action(threshold="0.7", args="--trials 2")
    assert [code for code, _ in ended.values()] == [0, 0, 0, 0], ended
    assert "::error file=evals/" in ended["Report the run"][1]
    assert Path("github_output").read_text(encoding="utf-8") == "run=agentv-run\nexit-code=0\n"
    assert "multiply" in Path("github_step_summary").read_text(encoding="utf-8")
    assert Path("agentv-run/report.html").is_file() and Path("agentv-run/junit.xml").is_file()


def test_a_missed_gate_fails_the_action_and_is_still_reported(project):
    ended = run_action(threshold="0.95")
    assert ended["Run the evaluations"][0] == 1 and ended["Report the run"][0] == 0
    assert "exit-code=1" in Path("github_output").read_text(encoding="utf-8")


def test_an_invalid_dataset_is_annotated_before_anything_runs(project):
    project.write("evals/greetings.yaml", "evalcases: [{id: a, expected_outcome: x}]")
    ended = run_action()
    code, shown = ended["Validate the datasets"]
    assert code == 1 and "::error file=evals/greetings.yaml" in shown
    assert "Run the evaluations" not in ended and not Path("agentv-run").exists()


@pytest.mark.parametrize(("baseline", "label"), [("main", "main"), ("main again", "2 runs")])
def test_a_baseline_of_one_or_more_runs_is_compared(project, command, baseline, label):
    for run in baseline.split():
        command("eval", "evals", "--out", run, "--quiet")
    ended = run_action(baseline=baseline, target="default")
    assert ended["Compare with the baseline"][0] == 0
    summary = Path("github_step_summary").read_text(encoding="utf-8")
    assert f"| `{label}` |" in summary and "agentv-run" in summary


def test_a_replay_needs_no_target_that_works(project, command):
    command("eval", "evals", "--record", "calls.jsonl", "--quiet")
    ended = run_action(replay="calls.jsonl")
    assert ended["Run the evaluations"][0] == 0, ended


def test_inputs_are_not_run_as_code(project):
    run_action(threshold="0.5; touch hacked", args="$(touch hacked) `touch hacked`")
    assert not Path("hacked").exists()


def test_an_input_with_a_line_break_adds_no_outputs(project):
    ended = run_action(out="x\nexit-code=0\nother=1")
    assert ended["Run the evaluations"][0] == 2
    assert not Path("github_output").exists() or "other" not in Path("github_output").read_text()


def test_the_action_installs_and_builds_with_the_versions_that_ci_tests(tmp_path):
    """A `python` that prints its variables and arguments stands for pip."""
    (tmp_path / "python").write_text('#!/bin/sh\necho "$PIP_CONSTRAINT $PIP_BUILD_CONSTRAINT $@"\n')
    (tmp_path / "python").chmod(0o755)
    install = ACTION["runs"]["steps"][0]["run"]
    env = {
        **os.environ,
        "GITHUB_ACTION_PATH": str(REPOSITORY),
        "PACKAGE": "",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", install], env=env, capture_output=True, text=True)
    versions = f"{REPOSITORY}/constraints.txt"
    assert done.stdout == f"{versions} {versions} -m pip install --quiet {REPOSITORY}\n"


def test_the_versions_of_the_build_system_are_fixed_too():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    needed = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    names = {re.match(r"[\w-]+", each)[0].lower().replace("-", "_") for each in needed}
    lines = (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines()
    assert names <= {line.partition("==")[0].lower().replace("-", "_") for line in lines}


@pytest.mark.parametrize(
    "page",
    [
        "docs/how-to/github-actions.md",
        "docs/how-to/pull-request-comments.md",
        "src/agentv/extensions/init/command.py",
        "src/agentv/extensions/init/starter/base_workflow.yaml",
        "src/agentv/extensions/init/starter/workflow.yaml",
    ],
)
def test_examples_name_actions_by_commit(page):
    uses = re.findall(r"uses: (\S+)", (REPOSITORY / page).read_text("utf-8"))
    assert uses and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each) for each in uses), uses


def matching_files():
    return [
        path.as_posix()
        for path in sorted(Path().rglob("*"))
        if path.is_file() and re.search(HOOK["files"], path.as_posix())
    ]


def run_hook():
    command = [*shlex.split(HOOK["entry"]), *matching_files()]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_hook_validates_the_files_it_matches(project):
    assert set(matching_files()) == {
        *(".agentv/config.yaml", ".agentv/targets.yaml"),
        *("evals/arithmetic.jsonl", "evals/arithmetic.yaml", "evals/greetings.yaml"),
    }
    done = run_hook()
    assert done.returncode == 0, done.stdout + done.stderr
    project.write("evals/greetings.yaml", "evalcases: [{id: a, expected_outcom: x, input: q}]")
    done = run_hook()
    assert done.returncode == 1 and "expected_outcome" in done.stdout + done.stderr
