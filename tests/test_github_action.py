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

REPOSITORY = Path(__file__).resolve().parent.parent
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
(HOOK,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="composite steps use bash")


@pytest.fixture
def project(folder, command, program, monkeypatch):
    """The starter project: 5 of 6 cases pass. This test's `agentv` is first on the PATH."""
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert command("init", ".").code == 0
    return folder


def environment():
    """Return the variables of a runner."""
    files = {name: os.path.abspath(name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    return {**os.environ, **files, "GITHUB_ACTION_PATH": str(REPOSITORY)}


def run_action(**inputs):
    """Run the steps as GitHub does: after a failure, only those that say `always()`. Return code and output by step."""
    values = {name: spec["default"] for name, spec in ACTION["inputs"].items()}
    values |= {"package": "installed", **{name.replace("_", "-"): value for name, value in inputs.items()}}
    base, ended = environment(), {}
    for step in ACTION["runs"]["steps"]:
        failed = any(code for code, _ in ended.values())
        if (failed and "always()" not in step.get("if", "")) or (
            "baseline" in step.get("if", "") and not values["baseline"]
        ):
            continue
        given = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], text)
            for name, text in step["env"].items()
        }
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(shell, env={**base, **given}, capture_output=True, text=True, check=False)
        ended[step["name"]] = (done.returncode, done.stdout + done.stderr)
    return ended


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


def test_a_baseline_is_compared(project, command):
    command("eval", "evals", "--out", "main", "--quiet")
    ended = run_action(baseline="main", target="default")
    assert ended["Compare with the baseline"][0] == 0
    summary = Path("github_step_summary").read_text(encoding="utf-8")
    assert "main" in summary and "agentv-run" in summary


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
    env = {**environment(), "PACKAGE": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", install], env=env, capture_output=True, text=True)
    versions = f"{REPOSITORY}/constraints.txt"
    assert done.stdout == f"{versions} {versions} -m pip install --quiet {REPOSITORY}\n"


def test_the_versions_of_the_build_system_are_fixed_too():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    needed = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    names = {re.match(r"[\w-]+", each)[0].lower().replace("-", "_") for each in needed}
    lines = (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines()
    assert names <= {line.partition("==")[0].lower().replace("-", "_") for line in lines}


@pytest.mark.parametrize("page", ["docs/how-to/github-actions.md", "src/agentv/starter/workflow.yaml"])
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
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)


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
