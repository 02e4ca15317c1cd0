"""Judges' processes end with their run, however it ends; many judgements of a run share a few of them."""

import signal
import time
from pathlib import Path

import pytest

SLOW = """
import os, subprocess, time
def judge(context):
    child = subprocess.Popen(["sleep", "60"])
    with open("pids", "a") as file:
        file.write(f"{os.getpid()} {os.getppid()} {child.pid}\\n")
    time.sleep(60)
"""
ENTRIES = {
    "a function": {"type": "python", "function": "judge.py:judge"},
    "a program": {"type": "code_judge", "script": "sleep 60 & echo $$ $! $! >> pids; wait"},
}


def running(pids):
    deadline = time.monotonic() + 10
    while (left := [pid for pid in pids if runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_nothing_of_a_judge_outlives_its_run(project, entry, number):
    project.write("judge.py", SLOW)
    project.dataset("yes", "yes", evaluators=[entry])
    with project.spawn("d.yaml", "--out", "out") as process:
        pids = project.path / "pids"
        deadline = time.monotonic() + 60
        while not pids.exists() or len(pids.read_text().split()) < 6:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    assert running(pids.read_text().split()) == []


def test_a_run_judges_many_cases_in_a_few_processes(project):
    code = "import os\nfrom agentv import Score\ndef judge(context): return Score(1, details={'pid': os.getpid()})\n"
    project.write("judge.py", code)
    project.dataset(*["yes"] * 200, evaluators=[{"type": "python", "function": "judge.py:judge"}])
    assert project.eval("--out", "out").code == 0
    processes = {record["evaluator_results"][0]["details"]["pid"] for record in project.records()}
    assert len(project.records()) == 200
    assert len(processes) <= 16
