"""The question on a real terminal: asked once, remembered, and asked again when a script changes."""

import os
import subprocess

import pytest
from stranger import PYTHON, Stranger


@pytest.fixture
def stranger(tmp_path, program):
    stranger = Stranger(tmp_path)
    stranger.program = program
    return stranger


def on_terminal(stranger, path, answer):
    """Run `agentv eval` on a terminal, type an answer, and return the exit code and all that was shown."""
    ours, theirs = os.openpty()
    command = [stranger.program, "eval", path, "--quiet"]
    with subprocess.Popen(command, cwd=stranger.mine, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, answer)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # Linux reports the end of a terminal as an error
                break
            if not piece:
                break
            shown += piece
    os.close(ours)
    return process.returncode, shown.decode()


def test_the_question_is_asked_once_and_again_after_a_change(stranger):
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.py"]})
    code, shown = on_terminal(stranger, path, b"n\n")
    assert (code, stranger.has_run) == (2, False)
    assert "Trust it [y/N]" in shown
    assert f"Trust in {stranger.theirs} is remembered" in shown
    assert "judge.py" in shown
    code, shown = on_terminal(stranger, path, b"y\n")
    assert (code, stranger.has_run) == (0, True), shown
    code, shown = on_terminal(stranger, path, b"")
    assert (code, "Trust it" in shown) == (0, False)
    stranger.write(stranger.theirs, "judge.py", "print('{\"score\": 0}')")
    code, shown = on_terminal(stranger, path, b"n\n")
    assert (code, "It has changed since you trusted it." in shown) == (2, True)


def test_what_the_values_of_variables_reveal_is_asked_about_once(stranger, monkeypatch):
    monkeypatch.setenv("WEIGHT", "2")
    judge = {"type": "code_judge", "script": [PYTHON, "judge.py"], "weight": "${{ WEIGHT }}"}
    case = {"id": "a", "criteria": "x", "input": "h", "assertions": [judge]}
    stranger.write(stranger.theirs, "t.yaml", {"tests": [case]})
    code, shown = on_terminal(stranger, "../theirs/t.yaml", b"y\nn\n")
    assert (code, stranger.has_run, shown.count("Trust it")) == (2, False, 2), shown
    code, shown = on_terminal(stranger, "../theirs/t.yaml", b"y\n")
    assert (code, stranger.has_run, "judge.py" in shown) == (0, True, True), shown
    code, shown = on_terminal(stranger, "../theirs/t.yaml", b"")
    assert (code, "Trust it" in shown) == (0, False)
