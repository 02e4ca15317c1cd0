"""Batching targets: which cases go into one call, and what happens to them."""

import os
import random
import shlex
import signal
import sys

import pytest
from run_project import jobs_of
from test_resume import processes_with

from virtual_time import skipped_ahead
from waiting import HANGS, wait_until

BATCH = """
import json, sys
cases = [json.loads(line) for line in open(sys.argv[1])]
with open("calls", "a") as log:
    print(*[case["id"] for case in cases], file=log)
for case in cases:
    if case["prompt"] == "left out":
        continue
    for _ in range(2 if case["prompt"] == "twice" else 1):
        print(json.dumps({"id": case["id"], "text": "yes, " + case["prompt"]}))
    if case["prompt"] == "broken":
        sys.exit("broken")
"""


@pytest.fixture
def batching(project):
    """The project with a batching target that logs the ids in each of its calls."""

    def targets(**settings):
        project.write("batch.py", BATCH)
        command = f"{shlex.quote(sys.executable)} batch.py {{PROMPT_FILE}}"
        entry = {"name": "default", "provider": "cli", "command_template": command, "provider_batching": True}
        project.targets({**entry, **settings})

    def calls(name="calls"):
        return [line.split() for line in (project.path / name).read_text().splitlines()]

    targets()
    project.batch_targets, project.calls = targets, calls
    return project


def test_all_cases_of_a_dataset_are_one_call(batching):
    batching.dataset(*(["q"] * 60))
    assert batching.eval("--out", "out", "--quiet").code == 0
    [call] = batching.calls()
    assert call == [f"c{number}" for number in range(60)]
    assert {record["candidate_answer"] for record in batching.records()} == {"yes, q"}
    assert len(jobs_of(batching.records())) == 60


def test_more_than_500_cases_are_several_calls(batching):
    batching.dataset(*(["q"] * 501))
    assert batching.eval("--out", "out", "--quiet", "--workers", "1").code == 0
    assert [len(call) for call in batching.calls()] == [500, 1]
    assert batching.summary()["scored"] == 501


def test_a_run_that_stops_makes_no_further_call(batching):
    batching.dataset(*(["q"] * 300), *(["left out"] * 300), *(["q"] * 600))
    assert batching.eval("--out", "out", "--quiet", "--workers", "1", "--max-errors", "5").code == 3
    assert [len(call) for call in batching.calls()] == [500]
    assert len(batching.records()) == 500


def test_a_case_without_exactly_one_line_is_an_error(batching):
    batching.dataset("q", "left out", "twice", "q")
    assert batching.eval("--out", "out", "--quiet").code == 0
    found = batching.by_id()
    assert [found[id]["status"] for id in ("c0", "c1", "c2", "c3")] == ["ok", "error", "error", "ok"]
    assert found["c1"]["error"]["class"] == "invalid_response"
    assert len(batching.calls()) == 1


def test_a_failed_command_is_an_error_of_all_its_cases(batching):
    batching.dataset("q", "broken")
    assert batching.eval("--out", "out", "--quiet").code == 3
    assert {record["error"]["class"] for record in batching.records()} == {"process"}
    assert len(batching.calls()) == 1


def test_a_batch_has_each_case_once_and_one_dataset(batching):
    prompts = [{"id": "a", "prompt": "{{ x }}"}, {"id": "b", "prompt": "{{ x }}!"}]
    batching.dataset({"input": {"x": "q"}}, {"input": {"x": "r"}}, prompts=prompts)
    batching.dataset("s", name="other.yaml")
    assert batching.command("eval", "d.yaml", "other.yaml", "--trials", "2", "--out", "out", "--quiet").code == 0
    assert sorted(batching.calls()) == [["c0"]] * 2 + [["c0", "c1"]] * 4
    found = {(r["dataset"], r["eval_id"], r.get("prompt")): r["candidate_answer"] for r in batching.records()}
    assert found["d", "c0", "b"] == "yes, q!" and found["d", "c1", "a"] == "yes, r" and found["other", "c0", None]
    assert len(batching.records()) == 10


def test_a_batch_that_times_out_is_retried_with_all_its_cases(batching):
    slow = f"echo run >> runs; test -e second || {{ touch second; exec {HANGS}; }};"
    answer = "sed s/prompt/text/ {PROMPT_FILE}"
    batching.batch_targets(command_template=slow + answer, timeout_seconds=60, retry_initial_delay_ms=300)
    batching.dataset("yes", "yes", "yes")
    with skipped_ahead((batching.path / "second").exists):
        assert batching.eval("--out", "out", "--quiet").code == 0
    assert batching.calls("runs") == [["run"], ["run"]]
    assert [record["attempts"] for record in batching.records()] == [2, 2, 2]
    assert batching.summary()["mean"] == 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_batch_command_ends_with_the_run(batching, number):
    marker = f"MARK={os.getpid()}.{int(number)}{random.randrange(10**6)} {HANGS}"
    batching.batch_targets(command_template=f"touch started; {marker} & {marker}")
    batching.dataset("q", "q")
    with batching.spawn("d.yaml", "--out", "out") as process:
        wait_until((batching.path / "started").exists, process)
        process.send_signal(number)
        process.communicate(timeout=200)
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    wait_until(lambda: processes_with(marker) == [])
    assert batching.records() == []


STREAMING = """
import json, os, sys, time
cases = [json.loads(line) for line in open(sys.argv[1])]
with open("calls", "a") as log:
    print(*[case["id"] for case in cases], file=log)
output = sys.stdout if len(sys.argv) == 2 else open(sys.argv[2], "w")
for number, case in enumerate(cases):
    while number >= 2 and os.path.exists("hold"):
        time.sleep(0.01)
    print(json.dumps({"id": case["id"], "text": "yes, " + case["prompt"], "cost_usd": 0.01}), file=output, flush=True)
sys.exit(1 if os.path.exists("fail") else 0)
"""


def stored_lines(project):
    return sum(path.read_bytes().count(b"\n") for path in (project.path / "out" / "answers").glob("*.lines"))


@pytest.mark.parametrize("place", ["{PROMPT_FILE}", "{PROMPT_FILE} {OUTPUT_FILE}"], ids=["stdout", "file"])
def test_lines_are_stored_as_they_arrive(batching, place):
    batching.write("batch.py", STREAMING)
    batching.batch_targets(command_template=f"{shlex.quote(sys.executable)} stream.py {place}")
    batching.write("stream.py", STREAMING)
    batching.write("hold", "")
    batching.dataset(*["a", "b", "c", "d"])
    with batching.spawn("d.yaml", "--out", "out") as process:
        wait_until(lambda: stored_lines(batching) == 2, process)
        process.kill()
        process.communicate()
    (batching.path / "hold").unlink()
    assert batching.records() == []
    assert batching.eval("--resume", "--out", "out", "--quiet").code == 0
    assert batching.calls() == [["c0", "c1", "c2", "c3"], ["c2", "c3"]]
    assert {record["candidate_answer"] for record in batching.records()} == {"yes, a", "yes, b", "yes, c", "yes, d"}
    assert not (batching.path / "out" / "answers").exists()


def test_lines_of_a_failed_command_do_not_count_after_a_resume(batching):
    batching.write("stream.py", STREAMING)
    batching.batch_targets(command_template=f"{shlex.quote(sys.executable)} stream.py {{PROMPT_FILE}}")
    batching.write("fail", "")
    batching.dataset("a", "b")
    batching.eval("--out", "out", "--quiet", "--fail-fast")
    (batching.path / "out" / "results.jsonl").write_bytes(b"")  # as if it had been killed before the records
    (batching.path / "fail").unlink()
    batching.eval("--resume", "--out", "out", "--quiet")
    assert batching.calls() == [["c0", "c1"], ["c0", "c1"]]
