"""Worker processes: they use all cores, may die at any time, and never outlive their run."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from observable_work import ObservableWork, ids, jobs

import agentv
from agentv.errors import AgentvError, UsageError
from agentv.executors.executor import ExecutorOptions
from agentv.executors.process import ProcessExecutor
from waiting import wait_until, whole_lines, words_in

PROCESS = ("--executor", "process", "--processes", "2")
needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes with pidfds")


@pytest.fixture
def work(tmp_path):
    return ObservableWork(log=str(tmp_path / "log"), capacity=2)


def run(work, ids, emit=None, processes=2):
    results = []
    executor = ProcessExecutor(ExecutorOptions(processes=processes))
    asyncio.run(executor.run(work, jobs(ids), emit or results.append))
    return results


def wait_for_end(pid, seconds=30):
    """Wait until a process has ended that may not be a child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with open(descriptor) as ended:
        return bool(select.select([ended], [], [], seconds)[0])


@needs_pidfd
def test_jobs_run_in_several_processes_that_end_with_the_run(work):
    run(msgspec.structs.replace(work, processes=2), range(100))
    pids = work.pids()
    assert len(pids) == 2 and os.getpid() not in pids
    assert all(map(wait_for_end, pids))


def test_no_more_processes_start_than_there_are_jobs_for(work):
    run(msgspec.structs.replace(work, capacity=1), range(5), processes=4)
    assert len(work.pids()) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_killed_worker_costs_only_its_jobs_in_flight(work, number):
    work, results = msgspec.structs.replace(work, seconds=0.005), []

    def emit(result):
        results.append(result)
        if len(results) == 50:
            os.kill(max(work.pids()), number)

    run(work, range(200), emit)
    assert ids(results) == dict.fromkeys(map(str, range(200)), 1)
    assert all(result.status == "ok" for result in results)
    begun = Counter(work.steps("begin"))
    assert len(begun) == 200 and max(begun.values()) <= 2 and begun.total() <= 203


def test_only_a_job_that_kills_its_worker_twice_is_an_error(work):
    results = run(work, [*range(40), "deadly", *range(40, 80)])
    assert ids(results) == dict.fromkeys([*map(str, range(80)), "deadly"], 1)
    (failed,) = (result for result in results if result.error is not None)
    assert failed.eval_id == "deadly"
    assert failed.error.error_class == "process"
    assert failed.error.message == "The worker process died twice while running this job: exit code 3"


def test_workers_that_die_as_they_start_end_the_run(work):
    with pytest.raises(AgentvError, match="die before they can run a job") as raised:
        run(msgspec.structs.replace(work, problem="dies"), range(5))
    assert raised.value.detail == "exit code 5"


def test_output_of_user_code_does_not_disturb_the_run(project):
    code = "import os\ndef answer(prompt):\n    print('x' * 100_000)\n    os.write(2, b'noise')\n    return 'yes'\n"
    project.write("agent.py", code)
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset(*["q"] * 20)
    assert project.eval(*PROCESS, "--out", "out").code == 0
    assert Counter(record["verdict"] for record in project.records()) == {"pass": 20}


def test_command_line_and_environment_of_workers_have_no_secrets(project):
    project.write(".env", "MY_API_KEY=sk-0123456789abcdef\n")
    code = "def answer(prompt):\n    own = [open(f'/proc/self/{name}').read() for name in ('cmdline', 'environ')]\n"
    project.write("agent.py", code + "    return 'no' if any('sk-0123456789' in each for each in own) else 'yes'\n")
    key = "${{ MY_API_KEY }}"
    project.targets(
        {"name": "default", "provider": "python", "function": "agent.py:answer"},
        {"name": "api", "provider": "openai", "model": "m", "api_key": key},
    )
    project.dataset(*["q"] * 5)
    assert project.eval(*PROCESS, "--target", "default", "--out", "out").code == 0
    assert {record["verdict"] for record in project.records()} == {"pass"}


STARTS_A_CHILD = """
import os, subprocess, time
def answer(prompt):
    child = subprocess.Popen(["sleep", "1000"])
    with open("pids", "a") as file:
        file.write(f"{os.getpid()} {child.pid}\\n")
    time.sleep(1000)
"""


@needs_pidfd
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_no_process_started_by_a_worker_outlives_the_run(project, number):
    project.write("agent.py", STARTS_A_CHILD)
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset(*["q"] * 4)
    with project.spawn("d.yaml", *PROCESS, "--out", "out") as driver:
        pids = project.path / "pids"
        wait_until(lambda: len(words_in(pids)) >= 4, driver)
        driver.send_signal(number)
        driver.communicate(timeout=200)
    assert driver.returncode == (130 if number == signal.SIGINT else -9)
    assert all(wait_for_end(int(pid)) for pid in pids.read_text().split())


def test_a_killed_run_is_resumed_by_another_executor(project):
    project.write("agent.py", "import time\ndef answer(prompt):\n    time.sleep(0.01)\n    return 'yes'\n")
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset(*["q"] * 100)
    results = project.path / "out" / "results.jsonl"
    with project.spawn("d.yaml", *PROCESS, "--out", "out") as driver:
        wait_until(lambda: whole_lines(results) >= 10, driver)
        driver.kill()
    assert project.eval("--resume", "--executor", "local", "--out", "out").code == 0
    assert Counter(record["eval_id"] for record in project.records()) == {f"c{number}": 1 for number in range(100)}


def test_a_run_has_the_same_records_and_files_as_a_local_one(project):
    project.dataset("yes", "no", "yes")
    assert [project.eval(*options).code for options in (("--out", "here"), (*PROCESS, "--out", "there"))] == [0, 0]

    def content(out):
        own = ("timestamp", "run_id", "execution_metrics")
        records = sorted(project.records(out), key=lambda record: record["eval_id"])
        return [{key: value for key, value in record.items() if key not in own} for record in records]

    assert content("here") == content("there")
    assert sorted(os.listdir("here")) == sorted(os.listdir("there"))
    assert project.command("compare", "here", "there").code == 0


def test_a_function_of_a_module_can_be_evaluated_in_processes(folder, monkeypatch):
    folder.write("my_agent.py", "import os\ndef answer(prompt):\n    return f'yes {os.getpid()}'\n")
    monkeypatch.syspath_prepend(str(folder.path))
    import my_agent

    cases = [{"id": str(number), "input": "q", "expected_outcome": "x"} for number in range(10)]
    checks = [{"type": "contains", "value": "yes"}]
    ended = agentv.evaluate(cases, my_agent.answer, checks, executor="process", processes=2, out="out")
    assert ended.summary.targets["answer"].mean == 1.0
    assert f"yes {os.getpid()}" not in {result.candidate_answer for result in ended.results}


def test_a_lambda_cannot_be_evaluated_in_processes(folder):
    cases = [{"id": "a", "input": "q", "expected_outcome": "x", "expected_output": "yes"}]
    with pytest.raises(UsageError, match="cannot be sent to another process") as raised:
        agentv.evaluate(cases, lambda prompt: "yes", [{"type": "equals"}], executor="process", out="out")
    assert "executor 'local'" in raised.value.hint
    assert not Path("out").exists()


def test_a_function_of_the_main_program_is_refused(folder):
    folder.write(
        "program.py",
        "import agentv\ndef answer(prompt):\n    return 'yes'\n"
        "cases = [{'id': 'a', 'input': 'q', 'expected_outcome': 'x', 'expected_output': 'yes'}]\n"
        "agentv.evaluate(cases, answer, [{'type': 'equals'}], executor='process')\n",
    )
    ended = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, check=False)
    assert "'answer' is defined in __main__" in ended.stderr
