"""Functions in processes that stay open."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentv.support.processes.function_process import CallFailure, function_process

RUNNER = """
import json, os, sys
file, mark = sys.argv[1:]
held = []
for line in sys.stdin:
    request = json.loads(line)
    word, call = request["word"], request["call"]
    if word == "end":
        os._exit(1)
    while word == "wait":
        pass
    held.append({"call": call, "value": [open(file).read(), os.getpid(), word]})
    for reply in [] if word == "hold" else reversed(held):
        print("noise", mark, json.dumps(reply), sep="", flush=True)
    held = held if word == "hold" else []
"""


@pytest.fixture
def call(tmp_path):
    (tmp_path / "runner.py").write_text(RUNNER, "utf-8")
    (tmp_path / "file").write_text("a", "utf-8")

    def called(word, timeout_s=200.0):
        process = function_process([sys.executable, str(tmp_path / "runner.py")], str(tmp_path / "file"), {})
        return process.call({"word": word}, timeout_s)["value"]

    yield called
    with pytest.raises(CallFailure):
        called("end")


def test_a_process_stays_open_until_its_file_changes(call, tmp_path):
    first, second = call("x"), call("y")
    assert first == ["a", second[1], "x"]
    (tmp_path / "file").write_text("changed", "utf-8")
    third = call("x")
    assert third[0] == "changed" and third[1] != first[1]


def test_a_reply_reaches_its_call_when_replies_have_another_order(call):
    with ThreadPoolExecutor() as threads:
        first = threads.submit(call, "hold")
        while not first.done():
            assert call("x")[2] == "x"
    assert first.result()[2] == "hold"


@pytest.mark.parametrize(
    ("word", "message"),
    [("end", "Its process ended without a result"), ("wait", "It did not return within 0.2 s")],
)
def test_a_call_without_a_result_fails_and_the_next_one_gets_another_process(call, word, message):
    first = call("x")
    with pytest.raises(CallFailure, match=message):
        call(word, 0.2 if word == "wait" else 30.0)
    assert call("x")[1] != first[1]
