"""The list of what a stranger's dataset would use is complete, readable, and leads to a command that works."""

import pytest
from stranger import PYTHON, TARGET, Stranger

from agentv.trust.inventory import Inventory, Use

JUDGE = {"type": "code_judge", "script": [PYTHON, "judge.py"]}


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    made = Stranger(tmp_path)
    monkeypatch.chdir(made.mine)
    for name, value in {"LANG_X": "en", "WEIGHT": "2", "KIND": "code_judge", "LIST": "more", "TOOL": "judge"}.items():
        monkeypatch.setenv(name, value)
    made.write(made.theirs, "en.txt", "Hello")
    return made


def written_tests(stranger, name="t.yaml", **case):
    row = {"id": "a", "criteria": "x", "input": "h", **case}
    stranger.write(stranger.theirs, name, {"tests": [row]})
    return f"../theirs/{name}"


def test_commands_of_a_case_that_needs_a_variable_are_listed(stranger, command):
    path = written_tests(stranger, input_files=["${{ LANG_X }}.txt"], assertions=[JUDGE])
    refused = command("eval", path)
    assert (refused.code, "judge.py  (" in refused.stderr, stranger.has_run) == (2, True, False)
    assert command("eval", path, "--trust", "../theirs").code == 0
    assert stranger.has_run


HIDDEN = {
    "an invalid evaluator": {"assertions": [{**JUDGE, "weight": "${{ WEIGHT }}"}]},
    "an unknown type": {"assertions": [{**JUDGE, "type": "${{ KIND }}"}]},
    "settings of tools": {"workspace": {"template": "${{ LIST }}"}},
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_only_the_value_of_a_variable_reveals_is_refused(stranger, command, name):
    stranger.write(stranger.theirs, "more/.claude/settings.json", {"hooks": {}})
    path = written_tests(stranger, **HIDDEN[name])
    ended = command("eval", path, "--trust", "../theirs")
    hidden = ".claude" if "workspace" in HIDDEN[name] else "judge.py"
    assert (ended.code, stranger.has_run, hidden in ended.stderr) == (2, False, True)
    assert "would use more than it shows without its variables" in ended.stderr


def test_a_variable_in_a_command_is_shown_once_and_needs_no_second_answer(stranger, command):
    for script in ([PYTHON, "${{ TOOL }}.py"], f"{PYTHON} ${{{{ TOOL }}}}.py"):
        path = written_tests(stranger, assertions=[{"type": "code_judge", "script": script}])
        assert "${{ TOOL }}.py" in command("eval", path).stderr
        ended = command("eval", path, "--trust", "../theirs")
        assert (ended.code, stranger.has_run) == (0, True), ended.stderr
        assert command("eval", path).code == 0
        stranger.marker.unlink()


def test_blanks_do_not_push_a_command_out_of_sight(stranger, command):
    ends = {"blanks": f"echo 1{' ' * 300}; touch PWNED", "text": f"echo {'1' * 9000}; touch PWNED"}
    for script in ends.values():
        listed = command("eval", stranger.dataset({"type": "code_judge", "script": script})).stderr
        assert "; touch PWNED  (" in listed


def test_the_hint_for_a_linked_targets_file_works(stranger, command):
    stranger.write(stranger.theirs, "targets.yaml", {"targets": [{**TARGET, "response": "${{ TOOL }}"}]})
    (stranger.mine / ".agentv/targets.yaml").unlink()
    (stranger.mine / ".agentv/targets.yaml").symlink_to(stranger.theirs / "targets.yaml")
    case = {"id": "a", "input": "x", "expected_outcome": "y", "evaluators": [{"type": "contains", "value": "j"}]}
    stranger.write(stranger.mine, "evals.yaml", {"evalcases": [case]})
    assert f"--trust {stranger.theirs}\n" in command("eval", "evals.yaml").stderr
    assert command("eval", "evals.yaml", "--trust", str(stranger.theirs)).code == 0


def test_validate_asks_for_no_trust_in_targets_that_a_run_would_not_use(stranger, command):
    theirs = {"name": "default", "provider": "http", "url": "https://theirs.example/${{ TOOL }}"}
    stranger.write(stranger.theirs, "targets.yaml", {"targets": [theirs]})
    shown = command("validate", stranger.dataset())
    assert ("--trust" in shown.stderr, "theirs.example" in shown.stdout + shown.stderr) == (False, False)
    (stranger.mine / ".agentv/targets.yaml").unlink()
    assert f"--trust {stranger.theirs}" in command("validate", stranger.dataset()).stderr


def test_line_breaks_of_a_command_are_shown(stranger, command):
    listed = command(
        "eval", stranger.dataset({"type": "code_judge", "script": "echo 1 # harmless\ntouch PWNED"})
    ).stderr
    assert "echo 1 # harmless\\ntouch PWNED  (" in listed


def test_a_long_command_is_shown_whole(stranger, command):
    script = f"echo {'1' * 6000}; touch PWNED; echo {'2' * 6000}"
    assert script in command("eval", stranger.dataset({"type": "code_judge", "script": script})).stderr


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_a_strangers_prompt_is_not_executed_by_a_nested_shell(stranger, command, options):
    nested = {"name": "default", "provider": "cli", "command_template": 'sh -c "echo {PROMPT}"'}
    stranger.write(stranger.mine, ".agentv/targets.yaml", {"targets": [nested]})
    path = stranger.dataset(input=f"$(touch {stranger.marker})")
    refused = command("eval", path, *options)
    assert (refused.code, stranger.has_run) == (2, False)
    assert "could run commands" in refused.stderr


def test_a_line_break_in_a_folders_name_adds_no_line_to_the_question():
    uses = Inventory([Use("command", "true", "/tmp/a\nNothing is run/d.yaml")])
    assert [line.count("\n") for line in uses.lines()] == [0]
