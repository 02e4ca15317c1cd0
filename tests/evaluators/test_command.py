"""The `command` evaluator, with real programs: the exit code is the score, the output is the reason."""

import sys

import pytest

from platforms import only_on_posix
from waiting import HANGS

PYTHON = [sys.executable, "-Sc"]

# (command, settings, score, reason)
ENDED = {
    "exit code 0": ("echo all good", {}, 1, "all good"),
    "exit code 1": ("echo 2 failed; echo hint >&2; exit 1", {}, 0, "2 failed\nhint"),
    "no output": (["/bin/false"], {}, 0, None),
    "an own code that passes": ("exit 5", {"pass_codes": [0, 5]}, 1, None),
    "an own code that fails": ("exit 2", {"fail_codes": [1, 2]}, 0, None),
    "the answer on stdin": ("grep -o kind", {}, 1, "kind"),
    "stdin that is not read": ("exit 0", {}, 1, None),
}


@pytest.mark.parametrize(("command", "more", "score", "reason"), ENDED.values(), ids=ENDED)
def test_the_exit_code_is_the_score_and_the_output_is_the_reason(scoring, command, more, score, reason):
    found = scoring.score("command", {"command": command, **more}, "a kind answer")
    assert (found.score, found.reasoning) == (score, reason)
    [sentence] = found.hits or found.misses
    assert "ended with exit code" in sentence


# (command, settings, error message)
FAILED = {
    "another exit code": ("echo usage >&2; exit 2", {}, "The command ended with exit code 2: usage"),
    "0 if it does not pass": ("exit 0", {"pass_codes": [3]}, "The command ended with exit code 0"),
    "a signal": ("kill -9 $$", {}, "The command was terminated by SIGKILL"),
    "a timeout": (HANGS, {"timeout_seconds": 0.2}, "The command did not finish within 0.2 s"),
    "no such program": (["no-such-program"], {}, "The command 'no-such-program' was not found"),
    "no such folder": ("exit 0", {"cwd": "nowhere"}, "the folder does not exist"),
    "too much memory": pytest.param(
        [*PYTHON, "x = b'x' * 2**28; import signal; signal.pause()"],
        {"memory_mb": 100},
        "The command used more than 100 MiB of memory",
        marks=only_on_posix("memory is not limited"),
    ),
}


@pytest.mark.parametrize(("command", "more", "message"), FAILED.values(), ids=FAILED)
def test_everything_else_is_an_error_and_not_a_score(scoring, command, more, message):
    assert message in scoring.failure("command", {"command": command, **more})


def test_an_isolated_command_may_write_to_the_workspace_only(scoring, tmp_path):
    entry = {"command": "touch here && ! echo > ../outside", "sandbox": "preferred"}
    found = scoring.score("command", entry, workdir=str(tmp_path))
    assert found.details["sandbox"]["level"] in ("limits", "isolated")
