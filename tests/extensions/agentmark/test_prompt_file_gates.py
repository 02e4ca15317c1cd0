"""Gates that prompt files of AgentMark set: thresholds of evals, and drops against a baseline."""

import json
import subprocess

import pytest

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
    assert command("eval", "reply.prompt.mdx", "--baseline", "base", "--out", "again").code == 0
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "never"}]})
    ended = command("eval", "reply.prompt.mdx", "--baseline", "base", "--baseline", "again")
    assert ended.code == 1 and "fell from 1.000 to 0.000, more than regression_tolerance 0.1" in ended.stderr
    assert command("eval", "reply.prompt.mdx", "--baseline", "base", "--no-gate").code == 0


def test_an_unknown_baseline_is_reported_before_the_first_call(prompt_file, folder, command):
    prompt_file("regression_tolerance: 0.1", "yes")
    ended = command("eval", "reply.prompt.mdx", "--baseline", "nope", "--out", "run")
    assert ended.code == 2 and "No such run or experiment: nope" in ended.stderr
    assert not (folder.path / "run").exists()


def test_the_baseline_is_the_run_of_a_commit(prompt_file, folder, command):
    prompt_file("regression_tolerance: 0.1", "yes", "no")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]
    for arguments in (["init", "-q"], ["add", "reply.prompt.mdx"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], check=True, cwd=folder.path)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, cwd=folder.path, capture_output=True, text=True)
    sha = commit.stdout.strip()
    assert command("eval", "reply.prompt.mdx").code == 0
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "never"}]})
    subprocess.run([*git, "commit", "-qm", "two", "--allow-empty"], check=True, cwd=folder.path)
    ended = command("eval", "reply.prompt.mdx", "--baseline-commit", sha)
    assert ended.code == 1 and "fell from 1.000 to 0.000, more than regression_tolerance 0.1" in ended.stderr
    assert f"Read as: agentv eval --baseline @{sha}" in ended.stderr
    assert command("eval", "reply.prompt.mdx", "--baseline", f"@{sha[:8]}").code == 1
    ended = command("eval", "reply.prompt.mdx", "--baseline-commit", "0" * 40)
    assert ended.code == 2 and "No run has the tag, experiment, branch or commit" in ended.stderr
