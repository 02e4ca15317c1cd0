"""User code that ends its process, leaves children behind or exhausts the system does not take the run with it."""

import os
import pty
import resource
import signal
import sys
from contextlib import suppress

import pytest

from agentv_testing import FaultyServer
from waiting import HANGS, still_running, wait_until, whole_lines

pytestmark = pytest.mark.ci

DIES = "import os, signal\n\ndef answer(prompt):\n    if prompt == 'yes 3':\n        {how}\n    return prompt\n"
DEATHS = {"os._exit": "os._exit(0)", "a segfault": "os.kill(os.getpid(), signal.SIGSEGV)"}
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def dying(project, how):
    project.write("agent.py", DIES.format(how=how))
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1})
    project.dataset(*(f"yes {number}" for number in range(6)))


@pytest.mark.parametrize("how", DEATHS.values(), ids=DEATHS)
def test_a_run_that_user_code_ended_is_explained_at_the_next_start(project, how):
    dying(project, how)
    project.run("d.yaml", "--out", "out")
    assert "finished_at" not in project.manifest()
    _, _, output = project.run("--resume", "--out", "out")
    assert "The last process of this run ended without a summary" in output
    assert "--executor process" in output
    code, _, output = project.run("--resume", "--out", "out", "--executor", "process")
    assert code == 0 and "ended without a summary" in output
    errors = {name: record["error"] for name, record in project.by_id().items() if record["status"] == "error"}
    assert list(errors) == ["c3"] and "died twice" in errors["c3"]["message"]


def test_an_ordinary_resume_does_not_mention_a_crash(project):
    project.dataset(*(["no", "yes"] * 20))
    assert project.eval("--fail-fast", "--workers", "1", "--out", "out").code == 1
    assert "without a summary" not in project.eval("--resume", "--out", "out").stderr


@pytest.mark.parametrize("keyword", ["def", "async def"])
@pytest.mark.parametrize("error", ["GeneratorExit", "KeyboardInterrupt", "SystemExit", "StopIteration"])
def test_an_exception_of_a_function_is_an_error_of_its_job(project, keyword, error):
    project.write(
        "agent.py", f"{keyword} answer(prompt):\n    if prompt == 'no':\n        raise {error}\n    return prompt\n"
    )
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset("yes", "no", "yes")
    assert project.eval("--out", "out").code == 0
    assert [record["status"] for record in project.by_id().values()].count("error") == 1
    assert error in project.by_id()["c1"]["error"]["message"]


@pytest.mark.parametrize("executor", ["local", "process"])
def test_few_descriptors_reduce_the_connections_to_targets_and_judges(project, executor):
    verdict = '{"reasoning": "fine", "hits": [], "misses": [], "score": 1.0}'
    with FaultyServer("yes", latency_s=0.05) as server, FaultyServer(verdict, latency_s=0.05) as judge:
        own = {"provider": "openai", "model": "m", "workers": 100, "max_retries": 0}
        project.targets(
            {"name": "default", **own, "base_url": server.url}, {"name": "judge", **own, "base_url": judge.url}
        )
        project.dataset(*(["q"] * 120), evaluators=[{"type": "llm_judge", "name": "j"}])
        limit = (64, 64)
        code, _, shown = project.run(
            *("d.yaml", "--out", "out", "--executor", executor, "--processes", "2"),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
        )
    assert (code, "Too many open files" in shown) == (0, False)
    assert {record["status"] for record in project.records()} == {"ok"} and len(project.records()) == 120


@pytest.mark.parametrize("hard", [64, 100])
def test_few_descriptors_slow_a_run_down_but_do_not_fail_its_jobs(project, hard):
    command = "cat {PROMPT_FILE}; sleep 0.1"
    project.targets({"name": "default", "provider": "cli", "command_template": command, "workers": 40})
    project.dataset(*(f"yes {number}" for number in range(60)))
    limit = (min(hard, 64), hard)
    code, _, output = project.run(
        "d.yaml", "--out", "out", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    )
    assert code == 0, output
    assert [record["status"] for record in project.records()] == ["ok"] * 60


@linux_only
def test_a_daemon_that_a_command_starts_ends_with_the_run(project):
    daemon = f"setsid sh -c 'echo $$ >> {project.path}/pids; exec {HANGS}' > /dev/null 2>&1 < /dev/null &"
    command = f"{daemon} until [ -s {project.path}/pids ]; do sleep 0.01; done; cat {{PROMPT_FILE}}"
    project.targets({"name": "default", "provider": "cli", "command_template": command})
    project.dataset("yes")
    code, _, output = project.run("d.yaml", "--out", "out")
    assert code == 0, output
    pids = list(map(int, (project.path / "pids").read_text().split()))
    assert len(pids) == 1 and still_running(pids) == []


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="SIGHUP")
def test_a_hangup_ends_the_run_with_a_summary(project):
    project.targets({"name": "default", "provider": "cli", "command_template": HANGS})
    project.dataset("yes")
    process = project.spawn("d.yaml", "--out", "out")
    wait_until((project.path / "out" / "cases.jsonl").exists, process)
    wait_until(lambda: whole_lines(project.path / "out" / "cases.jsonl") == 1, process)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=200)
    assert process.returncode == 130 and (project.path / "out" / "summary.json").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
@pytest.mark.parametrize("options", [("--verbose",), ()], ids=["verbose", "progress"])
def test_a_terminal_that_is_not_read_does_not_block_the_run(project, options):
    project.dataset(*(f"yes {number} {'x' * 300}" for number in range(600)))
    reading, writing = pty.openpty()
    try:
        process = project.spawn("d.yaml", "--out", "out", *options, stderr=writing, stdout=-3)
        summary = project.path / "out" / "summary.json"
        wait_until(summary.exists, process, within_s=200)
        assert whole_lines(project.path / "out" / "results.jsonl") == 600
        process.kill()
        process.wait()
    finally:
        os.close(reading)
        os.close(writing)


FROZEN = """
import asyncio, os
async def answer(prompt):
    number = int(prompt.split()[1])
    while not os.path.exists("frozen"):
        open("started", "w").close()
        await asyncio.sleep(0.01)
    if {prints}:
        os.path.exists("printed") or open("printed", "w").close()
        print("x" * 300_000)
    if number >= 20:
        await asyncio.Event().wait()
    return prompt
"""


def freeze(reading, writing):
    """Let nothing more be written: Ctrl-S on a terminal, or a pipe that is full."""
    if os.isatty(reading):
        os.write(reading, b"\x13")
        return
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 512)
    os.set_blocking(writing, True)


@pytest.mark.every(3)
@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
@pytest.mark.parametrize("prints", [False, True], ids=["results", "prints"])
@pytest.mark.parametrize("open_stream", [pty.openpty, os.pipe], ids=["terminal", "pipe"])
def test_ctrl_c_stops_a_run_whose_terminal_is_frozen(project, open_stream, prints):
    project.write("agent.py", FROZEN.format(prints=prints))
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 30})
    project.dataset(*(f"yes {number}" for number in range(40)))
    reading, writing = open_stream()
    with project.spawn("d.yaml", "--out", "out", "--verbose", stderr=writing, stdout=writing) as process:
        try:
            wait_until((project.path / "started").exists, process)
            freeze(reading, writing)
            (project.path / "frozen").touch()
            results = project.path / "out" / "results.jsonl"
            wait_until((project.path / "printed").exists if prints else lambda: whole_lines(results) == 20, process)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=200) == 130
        finally:
            process.kill()
            os.close(reading)
            os.close(writing)
    assert project.manifest()["exit_code"] == 130
    assert prints or len(project.records()) == 20


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_ends_a_command_whose_summary_is_not_read(project):
    project.dataset("yes", "no")
    reading, writing = os.pipe()
    freeze(reading, writing)
    with project.spawn("d.yaml", "--out", "out", stderr=writing, stdout=writing) as process:
        try:
            wait_until((project.path / "out" / "summary.json").exists, process)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=200) == 130
        finally:
            process.kill()
            os.close(reading)
            os.close(writing)


def test_a_target_that_changes_the_working_directory_moves_no_output(project):
    project.write("agent.py", "import os\ndef answer(request):\n    os.chdir(os.sep)\n    return 'yes'\n")
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset("q")
    code, _, stderr = project.run("d.yaml", "--out", "records.jsonl")
    assert (code, len(project.lines("records.jsonl", "."))) == (0, 1), stderr
