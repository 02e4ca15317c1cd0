"""Functions in processes that stay open."""

import sys

import pytest

from agentv.support.processes.function_process import CallFailure, function_process

RUNNER = """
import json, os, sys
file, mark = sys.argv[1:]
for line in sys.stdin:
    request = json.loads(line)
    if request == "end":
        os._exit(1)
    while request == "wait":
        pass
    print("noise", mark, json.dumps([open(file).read(), os.getpid(), request]), sep="", flush=True)
"""


@pytest.fixture
def call(tmp_path):
    (tmp_path / "runner.py").write_text(RUNNER, "utf-8")
    (tmp_path / "file").write_text("a", "utf-8")

    def called(request, timeout_s=30.0):
        process = function_process([sys.executable, str(tmp_path / "runner.py")], str(tmp_path / "file"), {})
        return process.call(request, timeout_s)

    yield called
    with pytest.raises(CallFailure):
        called("end")


def test_a_process_stays_open_until_its_file_changes(call, tmp_path):
    first, second = call("x"), call("y")
    assert first == ["a", second[1], "x"]
    (tmp_path / "file").write_text("changed", "utf-8")
    third = call("x")
    assert third[0] == "changed" and third[1] != first[1]


@pytest.mark.parametrize(
    ("word", "message"),
    [("end", "Its process ended without a result"), ("wait", "It did not return within 0.2 s")],
)
def test_a_call_without_a_result_fails_and_the_next_one_gets_another_process(call, word, message):
    first = call("x")
    with pytest.raises(CallFailure, match=message):
        call(word, 0.2 if word == "wait" else 30.0)
    assert call("x")[1] != first[1]
