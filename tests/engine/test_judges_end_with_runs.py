"""Processes of judges end with their run, however it ends, and are shared by many judgements."""

import signal
from pathlib import Path

import pytest

from waiting import HANGS, still_running, wait_until, words_in

SLOW = f"""
import os, subprocess
def judge(context):
    child = subprocess.Popen({HANGS.split()})
    with open("pids", "a") as file:
        file.write(f"{{os.getpid()}} {{os.getppid()}} {{child.pid}}\\n")
    child.wait()
"""
ENTRIES = {
    "a function": {"type": "python", "function": "judge.py:judge"},
    "a program": {"type": "code_judge", "script": f"{HANGS} & echo $$ $! $! >> pids; wait"},
}


@pytest.mark.every(3)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_no_process_of_a_judge_outlives_its_run(project, entry, number):
    project.write("judge.py", SLOW)
    project.dataset("yes", "yes", evaluators=[entry])
    with project.spawn("d.yaml", "--out", "out") as process:
        pids = project.path / "pids"
        wait_until(lambda: len(words_in(pids)) >= 6, process)
        process.send_signal(number)
        process.communicate(timeout=200)
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    assert still_running(pids.read_text().split()) == []


def test_a_run_judges_many_cases_in_a_few_processes(project):
    code = "import os\nfrom agentv import Score\ndef judge(context): return Score(1, details={'pid': os.getpid()})\n"
    project.write("judge.py", code)
    project.dataset(*["yes"] * 200, evaluators=[{"type": "python", "function": "judge.py:judge"}])
    assert project.eval("--out", "out").code == 0
    processes = {record["evaluator_results"][0]["details"]["pid"] for record in project.records()}
    assert len(project.records()) == 200
    assert len(processes) <= 16
