"""A run that is killed or interrupted can be resumed: every job runs once, nothing is paid twice."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest
from run_project import jobs_of

from agentv.runs import folder_lock
from agentv.runs.folder import RunFolder
from agentv.runs.folder_lock import FolderLock
from agentv_testing import FaultyServer, RawReply
from platforms import only_on_posix
from waiting import HANGS, wait_until, whole_lines

JOBS = 360
WORKERS = 4
AGENT = """
import asyncio, os, random
from contextlib import suppress

LOG = os.open("calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
calls = 0

async def answer(prompt):
    global calls
    calls += 1
    while calls > 40 and os.path.exists("hold"):  # no process finishes the run
        await asyncio.sleep(0.01)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), random.uniform(0.004, 0.016))
    os.write(LOG, (prompt + "\\n").encode())
    return prompt
"""


@pytest.fixture
def slow(project):
    """A project whose jobs take a few milliseconds each and leave a trace of every answer."""
    project.write("agent.py", AGENT)
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": WORKERS})
    project.dataset(*(f"yes {number}" for number in range(JOBS // 3)), execution={"trials": 3})
    return project


def killed_at_some_moment(project, chance, *arguments):
    """Start or resume the run, and kill it: during startup, or after a few more records."""
    results = project.path / "out" / "results.jsonl"
    process = project.spawn(*arguments, "--resume", "--out", "out", "--quiet")
    if chance.random() < 0.2:
        deadline, wanted = time.monotonic() + chance.random() * 0.5, 10**9
    else:
        deadline, wanted = time.monotonic() + 30, whole_lines(results) + chance.randrange(1, 20)
    wait_until(lambda: process.poll() is not None or time.monotonic() >= deadline or whole_lines(results) >= wanted)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def check_complete(project, jobs):
    """Check that every job and every case is recorded exactly once, and that the run is complete."""
    records = project.records()
    found = jobs_of(records)
    assert len(found) == len(set(found)) == jobs
    written = [case["id"] for case in project.lines("cases.jsonl")]
    assert len(written) == len(set(written)) == len({record["eval_id"] for record in records})
    manifest = project.manifest()
    assert manifest["finished_at"] and manifest["counts"]["jobs"] == manifest["counts"]["ok"] == jobs
    assert not (project.path / "out" / ".lock").exists()


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", range(2))
def test_a_run_killed_at_random_runs_every_job_exactly_once(slow, seed):
    chance, hold = random.Random(seed), slow.path / "hold"
    hold.touch()
    kills = sum(killed_at_some_moment(slow, chance, "d.yaml") for _ in range(8))
    assert kills == 8
    hold.unlink()
    assert slow.run("--resume", "--out", "out", "--quiet") == (0, "", "")
    check_complete(slow, JOBS)
    assert slow.summary()["mean"] == 1.0 and slow.summary()["scored"] == JOBS
    calls = whole_lines(slow.path / "calls.log")
    assert JOBS <= calls <= JOBS + kills * WORKERS


def test_after_a_kill_only_calls_in_flight_are_repeated(project):
    chance = random.Random(5)
    with FaultyServer("yes", latency_s=0.02, keep=0) as server:
        target = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "workers": WORKERS}
        project.targets(target)
        project.dataset(*("q" for _ in range(120)))
        kills = sum(killed_at_some_moment(project, chance, "d.yaml") for _ in range(5))
        assert project.run("--resume", "--out", "out", "--quiet") == (0, "", "")
        answered = server.counts.by_status[200]
    check_complete(project, 120)
    assert 120 <= answered <= 120 + kills * WORKERS


@pytest.mark.parametrize("cut", [1, 7, 150])
def test_an_incomplete_last_record_is_removed_and_its_job_runs_again(project, cut):
    project.dataset(*(["yes"] * 10))
    assert project.eval("--out", "out", "--quiet").code == 0
    results = project.path / "out" / "results.jsonl"
    os.truncate(results, results.stat().st_size - cut)
    ended = project.eval("--resume", "--out", "out")
    assert ended.code == 0
    assert "The last record is incomplete; its job runs again." in ended.stderr
    check_complete(project, 10)


def test_an_incomplete_line_of_cases_is_removed(project):
    project.dataset(*(["yes"] * 5))
    assert project.eval("--out", "out", "--quiet").code == 0
    for name in ("cases.jsonl", "results.jsonl"):
        path = project.path / "out" / name
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3])[:-4])
    assert project.eval("--resume", "--out", "out", "--quiet").code == 0
    check_complete(project, 5)


def test_no_case_is_written_twice_after_a_kill_before_the_first_record(project):
    project.dataset(*(["yes"] * 5))
    assert project.eval("--out", "out", "--quiet").code == 0
    (project.path / "out" / "results.jsonl").write_bytes(b"")
    assert project.eval("--resume", "--out", "out", "--quiet").code == 0
    check_complete(project, 5)


def test_the_last_unfinished_run_is_resumed_by_default(project):
    project.write(".git/HEAD", "")
    project.dataset(*(["no", "yes"] * 20))
    assert project.eval("--fail-fast", "--workers", "1").code == 1
    (run,) = project.runs
    assert project.eval("--resume", "--quiet").code == 1
    assert project.runs == [run]
    assert len(project.records(f".agentv/results/{run}")) >= 2


def test_an_unfinished_run_in_another_folder_is_resumed_by_default(project):
    project.dataset(*(["no", "yes"] * 20))
    assert project.eval("--fail-fast", "--workers", "1", "--out", "out", "--quiet").code == 1
    before = len(project.records())
    assert project.eval("--resume", "--quiet").code == 1
    assert len(project.records()) > before and project.runs == []


@pytest.mark.parametrize("datasets", [(), ("d.yaml",)])
def test_a_run_named_after_resume_is_resumed_with_or_without_its_datasets(project, command, datasets):
    project.dataset(*(["yes"] * 5))
    assert project.eval("--out", "out", "--quiet").code == 0
    path = project.path / "out" / "results.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    assert command("eval", *datasets, "--resume", "out", "--quiet").code == 0
    check_complete(project, 5)


def test_no_run_to_resume_is_an_error(project):
    project.dataset("yes")
    ended = project.eval("--resume")
    assert ended.code == 2 and "No unfinished run to resume" in ended.stderr


@pytest.mark.parametrize("has_unfinished", [False, True])
def test_a_run_that_does_not_exist_is_named(project, has_unfinished):
    project.dataset(*(["no", "yes"] * 20))
    if has_unfinished:
        project.eval("--fail-fast", "--workers", "1")
    ended = project.command("eval", "--resume", "no-such-run")
    assert ended.code == 2 and "there is no run 'no-such-run'" in ended.stderr


def test_resuming_in_a_new_folder_starts_a_run(project):
    project.dataset("yes")
    assert project.eval("d.yaml", "--resume", "--out", "out", "--quiet").code == 0
    check_complete(project, 1)


@pytest.fixture
def begun(project):
    """A run of which one record is missing."""
    project.write("prompt.md", "say {{ word }}")
    project.targets({"name": "default", "provider": "mock"}, {"name": "other", "provider": "mock"})
    project.dataset({"input": {"word": "yes"}}, {"input": {"word": "yes"}}, prompt="prompt.md")
    assert project.eval("--out", "out", "--quiet", "--trials", "2").code == 0
    results = project.path / "out" / "results.jsonl"
    results.write_bytes(b"".join(results.read_bytes().splitlines(keepends=True)[:-1]))
    return project


CHANGES = {
    "the dataset": (lambda project: project.dataset("yes", "no", "new"), "the dataset d.yaml changed"),
    "a file that it names": (
        lambda project: project.write("prompt.md", "now {{ word }}"),
        "the dataset d.yaml changed",
    ),
    "the target": (
        lambda project: project.targets({"name": "default", "provider": "mock", "response": "no"}),
        "the target default changed",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changes_since_the_run_started_are_refused_and_explained(begun, what):
    change, explained = CHANGES[what]
    change(begun)
    ended = begun.eval("--resume", "--out", "out")
    assert ended.code == 2
    assert explained in ended.stderr and "--changed-since" in ended.stderr
    assert len(begun.records()) == 3


def test_changed_code_of_a_target_is_refused_and_named(project):
    project.write("agent.py", "def answer(prompt):\n    return 'no'\n")
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset("yes", "yes")
    assert project.eval("--out", "out", "--quiet", "--fail-fast", "--workers", "1").code == 1
    project.write("agent.py", "def answer(prompt):\n    return prompt\n")
    ended = project.eval("--resume", "--out", "out")
    assert ended.code == 2 and "the target default changed (agent.py) since the run started" in ended.stderr
    assert len(project.records()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--trials", "3"),
        ("--target", "other"),
        ("--limit", "1"),
        ("--threshold", "0.5"),
        ("d.yaml", "--seed", "4"),
    ],
)
def test_different_options_are_refused(begun, arguments):
    ended = begun.eval(*arguments, "--resume", "--out", "out")
    assert ended.code == 2 and "was started with different values for" in ended.stderr
    assert len(begun.records()) == 3


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [("--workers", "workers", 3), ("--timeout", "timeout_s", 60.0), ("--max-retries", "max_retries", 0)],
)
def test_a_run_may_be_resumed_with_other_limits(begun, option, name, value):
    assert begun.eval(option, f"{value:g}", "--resume", "--out", "out", "--quiet").code == 0
    assert begun.manifest()["options"][name] == value


@pytest.mark.parametrize("arguments", [(), ("d.yaml",), ("d.yaml", "--trials", "2"), ("--trials", "2")])
def test_the_same_options_may_be_repeated(begun, arguments):
    assert begun.eval(*arguments, "--resume", "--out", "out", "--quiet").code == 0
    check_complete(begun, 4)


def test_a_new_key_or_number_of_workers_does_not_change_a_target(begun):
    begun.targets({"name": "default", "provider": "mock", "workers": 7, "max_retries": 9})
    assert begun.eval("--resume", "--out", "out", "--quiet").code == 0


def test_a_complete_run_is_left_unchanged(project):
    project.dataset("yes", "no")
    assert project.eval("--out", "out", "--quiet").code == 0
    before = (project.path / "out" / "results.jsonl").read_bytes()
    assert project.eval("--resume", "--out", "out", "--quiet").code == 0
    assert (project.path / "out" / "results.jsonl").read_bytes() == before
    assert project.summary()["scored"] == 2


def test_the_export_is_complete_after_resuming(project):
    project.write(".git/HEAD", "")
    project.dataset(*(["yes"] * 6))
    assert project.eval("--out", "all.jsonl", "--quiet").code == 0
    (run,) = project.runs
    folder = project.path / ".agentv" / "results" / run
    lines = (folder / "results.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "results.jsonl").write_bytes(b"".join(lines[:2]))
    manifest = (folder / "run.json").read_text()
    (folder / "run.json").write_text(manifest.replace('"finished_at"', '"metadata"'))
    assert project.eval("--resume", "--out", "all.jsonl", "--quiet").code == 0
    assert (project.path / "all.jsonl").read_bytes() == (folder / "results.jsonl").read_bytes()
    assert whole_lines(project.path / "all.jsonl") == 6


def test_two_processes_do_not_write_to_one_folder(project):
    project.dataset("yes", "yes")
    assert project.eval("--out", "out", "--quiet").code == 0
    with RunFolder(project.path / "out").lock():
        code, _, output = project.run("--resume", "--out", "out")
    assert code == 2 and "in use" in output and f"Process {os.getpid()} is writing to it" in output


def limited_to(size):
    resource = pytest.importorskip("resource")
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [300, 3_000, 45_000])
def test_a_file_that_may_not_grow_ends_the_run_with_an_error_and_it_resumes_later(slow, size):
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # compiled modules would be cut off too
    code, _, output = slow.run("d.yaml", "--resume", "--out", "out", preexec_fn=limited_to(size), env=env)
    assert code == 2, output
    assert "Cannot write" in output and "File too large" in output and "Traceback" not in output
    if size > 3_000:
        assert "--resume" in output
        assert 0 < len(slow.records()) < JOBS
    assert slow.run("d.yaml", "--resume", "--out", "out", "--quiet") == (0, "", "")
    check_complete(slow, JOBS)
    assert whole_lines(slow.path / "calls.log") <= JOBS + WORKERS


@contextmanager
def small_disk(folder, size):
    """A file system of a few kilobytes, where we may mount one."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("No file system can be mounted here")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="tmpfs")
def test_a_full_disk_ends_the_run_with_an_error_and_it_resumes_when_there_is_room(slow):
    with small_disk(slow.path / "disk", "64k") as resize:
        code, _, output = slow.run("d.yaml", "--out", "disk/out")
        assert code == 2, output
        assert "No space left on device" in output and "Traceback" not in output
        done = len(slow.records("disk/out"))
        assert 0 < done < JOBS
        resize("8m")
        assert slow.run("--resume", "--out", "disk/out", "--quiet") == (0, "", "")
        assert len(set(jobs_of(slow.records("disk/out")))) == len(slow.records("disk/out")) == JOBS


def processes_with(text):
    """Processes whose command line has a text in it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if text.encode() in file.read():
                    found.append(int(pid))
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_child_processes_and_keeps_completed_jobs(project, number):
    marker = f"MARK={os.getpid()}.{int(number)}{random.randrange(10**6)} {HANGS}"
    quick = "case {EVAL_ID} in c0|c1) echo yes;; *) touch started; " + f"({marker} & {marker}); {marker};; esac"
    project.targets({"name": "default", "provider": "cli", "command_template": quick, "workers": 3})
    project.dataset(*(["q"] * 6))
    process = project.spawn("d.yaml", "--out", "out")
    results = project.path / "out" / "results.jsonl"
    wait_until(lambda: (project.path / "started").exists() and whole_lines(results) >= 2, process)
    assert processes_with(marker)
    process.send_signal(number)
    out, output = process.communicate(timeout=200)
    assert process.returncode == 130, output
    assert "agentv eval --resume --out out" in out
    assert "Interrupted" in output and "Traceback" not in output
    assert processes_with(marker) == []
    assert sorted(project.by_id()) == ["c0", "c1"]
    manifest = project.manifest()
    assert manifest["exit_code"] == 130 and "finished_at" not in manifest
    assert manifest["counts"]["skipped"] == 4


HOLDER = """
import os, sys
from pathlib import Path
from agentv.runs.folder_lock import FolderLock
lock = FolderLock(Path("."))
if os.fork():
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_lock_that_a_child_of_a_killed_run_still_has_is_waited_for(tmp_path, monkeypatch):
    """A child has the locks of its parent from its start until it executes its program."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDER], cwd=tmp_path, **pipes) as run:
        assert run.stdout.readline() == b"held\n" and run.wait(200) == 0
        monkeypatch.setattr(folder_lock, "sleep", lambda _: run.stdin.close())
        with FolderLock(tmp_path) as lock:
            assert lock.was_abandoned and (tmp_path / ".lock").read_text() == str(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_second_interrupt_quits_immediately(project):
    project.write("agent.py", "import asyncio\nasync def answer(prompt):\n" + STUBBORN)
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset("q")
    process = project.spawn("d.yaml", "--out", "out")
    wait_until((project.path / "started").exists, process)
    process.send_signal(signal.SIGINT)
    wait_until((project.path / "asked").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=200) == 130
    process.communicate()


def test_an_evaluator_whose_file_changed_is_refused(project):
    project.write("checks.py", "def good(context):\n    return 1.0\n")
    project.write("other/checks.py", "def good(context):\n    return 1.0\n")
    checks = [{"type": "python", "function": "checks.py:good"}]
    project.targets({"name": "default", "provider": "mock"})
    project.dataset("q", "r", evaluators=checks)
    project.dataset("q", name="other/d.yaml", evaluators=checks)
    assert project.command("eval", "d.yaml", "other/d.yaml", "--out", "out", "--quiet").code == 0
    results = project.path / "out" / "results.jsonl"
    results.write_bytes(results.read_bytes().splitlines(keepends=True)[0])
    for place in ("checks.py", "other/checks.py"):
        project.write(place, "def good(context):\n    return 0.0\n")
        ended = project.command("eval", "--resume", "--out", "out")
        assert ended.code == 2 and "Cannot resume: the evaluator python changed since the run started" in ended.stderr
        project.write(place, "def good(context):\n    return 1.0\n")
    assert project.command("eval", "--resume", "--out", "out", "--quiet").code == 0
    assert project.summary()["mean"] == 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="signals")
def test_a_second_interrupt_quits_even_if_a_function_blocks_the_loop(project):
    blocking = "async def answer(prompt):\n    open('started', 'w').close()\n    while True: pass\n"
    project.write("agent.py", blocking)
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset("q")
    with project.spawn("d.yaml", "--out", "out") as process:
        wait_until((project.path / "started").exists, process)
        process.send_signal(signal.SIGINT)
        while (ended := ended_within(process, 0.2)) is None:
            process.send_signal(signal.SIGINT)
    assert ended == 130


def ended_within(process, seconds):
    """The exit code of a process; None when it still runs by then."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


STUBBORN = """
    open("started", "w").close()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        open("asked", "w").close()
        await asyncio.Event().wait()
"""


def test_an_interrupted_resumed_run_can_be_resumed_again(slow):
    results, hold = slow.path / "out" / "results.jsonl", slow.path / "hold"
    hold.touch()
    for _ in range(3):
        before = whole_lines(results)
        process = slow.spawn("d.yaml", "--resume", "--out", "out", "--quiet")
        wait_until(lambda wanted=before + 10: whole_lines(results) >= wanted, process)
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=200)
        assert process.returncode == 130 and "agentv eval --resume --out out" in output
    hold.unlink()
    assert slow.run("--resume", "--out", "out", "--quiet") == (0, "", "")
    check_complete(slow, JOBS)
    assert whole_lines(slow.path / "calls.log") <= JOBS + 3 * WORKERS


def test_resuming_a_missing_folder_without_datasets_is_an_error(project):
    ended = project.command("eval", "--resume", "--out", "nowhere")
    assert ended.code == 2 and "No run to resume: nowhere does not exist" in ended.stderr
    assert "Name datasets to start a run there" in ended.stderr


@pytest.mark.parametrize("arguments", [("rescore", "nowhere"), ("judge", "label", "nowhere")])
def test_the_error_of_a_missing_run_has_the_name_as_typed(project, arguments):
    assert "No such run: nowhere\n" in project.command(*arguments).stderr


def test_resuming_a_complete_run_says_it_is_complete(project):
    project.dataset("yes", "no")
    assert "already complete" not in project.eval("--out", "out").stderr
    assert "All jobs in this run are already complete" in project.eval("--resume", "--out", "out").stderr


def test_a_run_that_cannot_be_resumed_is_skipped(project):
    project.write("agent.py", "def answer(prompt):\n    return prompt\n")
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset("yes", "no")
    ended = project.eval("--budget-usd", "1")
    assert ended.code == 2 and "does not report the cost of its answers" in ended.stderr
    [run] = project.runs
    assert "No unfinished run to resume" in project.eval("--resume").stderr
    ended = project.eval("--resume", "--out", f".agentv/results/{run}")
    assert ended.code == 2 and f"Cannot resume the run in .agentv/results/{run}" in ended.stderr


PROGRAM = """
import agentv

def slow(prompt):
    open("started", "w").close()
    __import__("threading").Event().wait()

agentv.evaluate({dataset}, slow, [{{"type": "is_json"}}])
"""


@only_on_posix("signals")
@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        ("[{'id': 'a', 'expected_outcome': 'x', 'input': 'y'}]", "Its cases were passed from Python"),
        ("'d.yaml'", "Its target 'slow' was passed from Python"),
    ],
)
def test_a_run_started_by_a_program_is_skipped(project, dataset, why):
    project.dataset("yes")
    project.write("program.py", PROGRAM.format(dataset=dataset))
    with subprocess.Popen([sys.executable, "program.py"], cwd=project.path, stderr=subprocess.PIPE) as process:
        wait_until((project.path / "started").exists, process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=200)
    [run] = project.runs
    assert "No unfinished run to resume" in project.eval("--resume").stderr
    assert why in project.eval("--resume", "--out", f".agentv/results/{run}").stderr


def test_a_deadline_stops_a_run_that_can_be_resumed(project):
    is_open = [True, False]
    wait = RawReply(b"{}", 429, headers={"Retry-After": "80000"})
    with FaultyServer(lambda _: "yes" if is_open.pop(0) else wait) as server:
        project.targets({"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "workers": 1})
        project.dataset("a", "b")
        ended = project.eval("--out", "out", "--deadline", "1")
        assert ended.code == 130 and "the deadline has passed" in ended.stderr
        assert "agentv eval --resume --out out" in ended.stdout
        assert len(project.records()) == 1
        is_open.append(True)
        resumed = project.eval("--resume", "--out", "out", "--deadline", "200")
    assert resumed.code == 0 and len(project.records()) == 2
