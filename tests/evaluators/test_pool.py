"""Warm processes for Python judges: they are reused, and a broken judgement does not affect others."""

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from agentv.evaluators.code import worker_pool as pool_module
from agentv.evaluators.code.fork_server import Channel
from agentv.evaluators.code.judge_host import JudgeHost
from agentv.evaluators.code.judge_io import frame, framed
from agentv.model.environment import Environment
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.response import answer
from platforms import only_on_posix
from virtual_time import skipped_ahead
from waiting import let_others_run, still_running, wait_until_async, words_in

pytestmark = only_on_posix("judging processes are not forked")

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")

# Each returns a different score if it finds state from an earlier call.
LEAVING = {
    "a global": """
        count = 0
        def judge(context):
            global count
            count += 1
            return count / 10
        """,
    "a cache": """
        import functools
        @functools.cache
        def cached(n): return []
        def judge(context):
            cached(0).append(1)
            return len(cached(0)) / 10
        """,
    "another module's global": """
        import neighbour
        def judge(context):
            neighbour.COUNT += 1
            return neighbour.COUNT / 10
        """,
    "a function of a library": """
        import json
        real = json.dumps
        def judge(context):
            found = json.dumps is not real
            json.dumps = lambda *a: "patched"
            return 0.9 if found else 0.1
        """,
    "the environment": """
        import os
        def judge(context):
            found = "LEFT_BEHIND" in os.environ
            os.environ["LEFT_BEHIND"] = "1"
            return 0.9 if found else 0.1
        """,
    "the folder": """
        import os
        start = os.getcwd()
        def judge(context):
            found = os.getcwd() != start
            os.chdir("/")
            return 0.9 if found else 0.1
        """,
    "the search path": """
        import sys
        def judge(context):
            found = "left-behind" in sys.path
            sys.path.append("left-behind")
            return 0.9 if found else 0.1
        """,
    "a thread": """
        import threading
        def judge(context):
            found = threading.active_count()
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            return found / 10
        """,
    "a warning filter": """
        import warnings
        def judge(context):
            found = warnings.filters[0][0] == "error"
            warnings.simplefilter("error")
            return 0.9 if found else 0.1
        """,
    "a context variable": """
        import contextvars
        variable = contextvars.ContextVar("variable", default=0)
        def judge(context):
            variable.set(variable.get() + 1)
            return variable.get() / 10
        """,
    "a task": """
        import asyncio
        async def judge(context):
            found = len(asyncio.all_tasks())
            asyncio.get_running_loop().create_task(asyncio.Event().wait())
            return found / 10
        """,
    "a process": """
        import os
        def judge(context):
            if os.fork() == 0:
                os.execvp("tail", ["tail", "-f", "/dev/null"])
            try:
                return 0.1 if len(children()) == 1 else 0.9
            except OSError:
                return 0.1
        def children():
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                return file.read().split()
        """,
}  # fmt: skip


def write(folder, name, text):
    (folder / name).write_text(textwrap.dedent(text))


def judged(scoring, folder, times=5, concurrent=False, **settings):
    """Return the scores of one function, called sequentially or concurrently; failures as messages."""
    evaluator = scoring.evaluator("python", function="judge.py:judge", **settings)

    async def one(host, number):
        try:
            judgement = scoring.judgement(str(number), workdir=str(folder), host=host)
            return (await evaluator.evaluate(judgement)).score
        except EvaluatorFailure as failure:
            return str(failure)

    async def all_of_them(host):
        if concurrent:
            return await asyncio.gather(*(one(host, number) for number in range(times)))
        return [await one(host, number) for number in range(times)]

    return scoring.hosted(all_of_them)


@pytest.mark.parametrize("code", LEAVING.values(), ids=LEAVING)
def test_fresh_judgements_do_not_share_state(scoring, tmp_path, code):
    write(tmp_path, "judge.py", code)
    write(tmp_path, "neighbour.py", "COUNT = 0")
    assert judged(scoring, tmp_path, 4, fresh=True) == [0.1] * 4


def test_globals_persist_while_a_process_is_reused(scoring, tmp_path, monkeypatch):
    monkeypatch.setattr(pool_module, "usable_cores", lambda: 1)
    write(tmp_path, "judge.py", LEAVING["a global"])
    assert judged(scoring, tmp_path, 4) == [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("name", ["a context variable", "a task"])
def test_context_variables_and_tasks_end_with_their_judgement(scoring, tmp_path, name):
    write(tmp_path, "judge.py", LEAVING[name])
    assert judged(scoring, tmp_path, 4) == [0.1] * 4


PIDS = "import os\ndef judge(context):\n    open('pids', 'a').write(f'{os.getpid()}\\n')\n    return 1\n"


@pytest.fixture
def pids(tmp_path, monkeypatch):
    """Return the process id of each judgement, in order."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "judge.py", PIDS)
    return lambda: Path("pids").read_text().split()


def test_a_process_is_reused(scoring, tmp_path, pids):
    assert judged(scoring, tmp_path, 5) == [1.0] * 5
    assert len(set(pids())) == 1


def test_a_fresh_judgement_gets_a_new_process(scoring, tmp_path, pids):
    assert judged(scoring, tmp_path, 5, fresh=True) == [1.0] * 5
    assert len(set(pids())) == 5


def test_a_process_is_replaced_after_the_maximum_judgements(scoring, tmp_path, pids, monkeypatch):
    monkeypatch.setattr(pool_module, "MAX_JUDGEMENTS", 2)
    assert judged(scoring, tmp_path, 5) == [1.0] * 5
    assert [pids().count(pid) for pid in dict.fromkeys(pids())] == [2, 2, 1]


# Ways a judge can break its process, with the error message. Only answer 3 is affected.
HARMFUL = {
    "it exits hard": ("os._exit(7)", "its process ended with exit code 7 before it gave a score"),
    "it is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "was terminated by SIGKILL before it gave a score"),
    "it crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", "was terminated by SIGSEGV before it gave a score"),
    "it prints and exits": ("print('no licence'); os._exit(1)", "exit code 1 before it gave a score: no licence"),
    "it exhausts memory": ("x = [b'x' * 2**20 for _ in range(500)]", "judge.py:judge failed: MemoryError"),
    "it recurses": ("f = lambda: f(); f()", "judge.py:judge failed: RecursionError"),
    "it raises": ("1 / 0", "judge.py:judge failed: ZeroDivisionError: division by zero (judge.py, line 5)"),
    "it exits": ("sys.exit(4)", "judge.py:judge failed: SystemExit: 4"),
    "it is interrupted": ("raise KeyboardInterrupt", "judge.py:judge failed: KeyboardInterrupt"),
    "it returns nothing": ("return None", "must return a Score, a dict, a number or a bool, got NoneType"),
    "it returns too much": ("return Score(1, reasoning='x' * 5_000_000)", "returned more than 4 MiB"),
    "it returns what is not JSON": ("return Score(1, details=object())", "returned a value that cannot be encoded as"),
    "it returns NaN": ("return Score(1, details=float('nan')) if 0 else float('nan')", "gave nan as its score"),
    "it closes everything": ("os.closerange(3, 100)", "before it gave a score"),
    "it writes to the socket": ("[os.write(fd, b'garbage!') for fd in channels()]", "its process"),
    "it sends another's score": ("[os.write(fd, b'\\0\\0\\0\\2[]') for fd in channels()]", "sent an invalid message"),
}  # fmt: skip

HARM = """
import os, signal, stat, sys, threading; from agentv import Score
def judge(context):
    if context.candidate_answer == "3" and not open(__file__ + ".reached", "w").close():
        {code}
    return 0.5
def channels():
    return [fd for fd in range(3, 30) if is_socket(fd)]
def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False
"""


@pytest.mark.every(3)
@pytest.mark.parametrize("concurrent", [False, True], ids=["sequential", "concurrent"])
@pytest.mark.parametrize(("code", "message"), HARMFUL.values(), ids=HARMFUL)
def test_a_broken_judge_fails_only_one_case(scoring, tmp_path, code, message, concurrent):
    (tmp_path / "judge.py").write_text(HARM.format(code=code))
    scores = judged(scoring, tmp_path, 8, concurrent=concurrent, memory_mb=200)
    failure = scores.pop(3)
    assert scores == [0.5] * 7
    assert message in failure
    assert failure.startswith("judge.py:judge")


ENDLESS = {
    "it loops": "while True: pass",
    "it waits": "threading.Event().wait()",
    "it waits through signals": "signal.pthread_sigmask(0, [15]); threading.Event().wait()",
}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_judge_fails_only_one_case(scoring, tmp_path, code):
    (tmp_path / "judge.py").write_text(HARM.format(code=code))
    with skipped_ahead((tmp_path / "judge.py.reached").exists):
        scores = judged(scoring, tmp_path, 8, timeout_seconds=60)
    assert scores == [0.5] * 3 + ["judge.py:judge took longer than 60 s"] + [0.5] * 4


def test_an_endless_judge_does_not_affect_those_that_wait_for_its_process(scoring, tmp_path):
    (tmp_path / "judge.py").write_text(HARM.format(code=ENDLESS["it loops"]))
    scores = judged(scoring, tmp_path, 8, concurrent=True, timeout_seconds=3)
    assert scores == [0.5] * 3 + ["judge.py:judge took longer than 3 s"] + [0.5] * 4


def test_output_of_a_judge_is_discarded(scoring, tmp_path, capfd):
    write(
        tmp_path,
        "judge.py",
        """
        import os, subprocess, sys
        print("at import")
        def judge(context):
            print("on stdout"); print("on stderr", file=sys.stderr)
            os.write(1, b"straight"); subprocess.run(["echo", "from a child"])
            return 0.5
        """,
    )
    assert judged(scoring, tmp_path, 3) == [0.5] * 3
    assert capfd.readouterr() == ("", "")


def test_endless_output_is_an_error(scoring, tmp_path, monkeypatch):
    write(tmp_path, "judge.py", "def judge(context):\n    while True: print('x' * 1_000_000)\n")
    monkeypatch.setattr(pool_module, "MAX_PRINTED_BYTES", 2_000_000)
    [failure] = judged(scoring, tmp_path, 1)
    assert "File too large" in failure


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os._exit(3)", "judge.py:judge: the process it is imported in ended with exit code 3"),
        ("print('told'); import os; os._exit(3)", "ended with exit code 3: told"),
        ("while True: pass", "judge.py:judge took longer than 1 s to import"),
    ],
)
def test_a_file_that_exits_or_hangs_on_import_is_an_error(scoring, tmp_path, monkeypatch, code, message):
    monkeypatch.setattr(pool_module, "IMPORT_S", 1.0 if "while" in code else 60.0)
    write(tmp_path, "judge.py", code)
    failures = judged(scoring, tmp_path, 2, timeout_seconds=0.5 if "while" in code else 60)
    assert all(message in failure for failure in failures)


def test_a_large_answer_is_transferred_completely(scoring, tmp_path):
    write(tmp_path, "judge.py", "def judge(context): return len(context.candidate_answer) == 20_000_000\n")
    judgement = scoring.judgement("é" * 20_000_000, workdir=str(tmp_path))
    assert scoring.run(scoring.evaluator("python", function="judge.py:judge"), judgement).score == 1


def test_judgements_run_concurrently(scoring, tmp_path):
    """Each waits for the other, so sequential calls would never end."""
    write(
        tmp_path,
        "judge.py",
        """
        import os, pathlib, time
        here = pathlib.Path(__file__).parent
        def judge(context):
            (here / f"there-{context.candidate_answer}").touch()
            while len(list(here.glob("there-*"))) < 2: os.sched_yield()
            return 1
        """,
    )
    evaluator = scoring.evaluator("python", function="judge.py:judge", timeout_seconds=60)

    async def both(host):
        host.pool._size = 2
        judgements = [scoring.judgement(name, workdir=str(tmp_path), host=host) for name in "ab"]
        return await asyncio.gather(*map(evaluator.evaluate, judgements))

    assert [score.score for score in scoring.hosted(both)] == [1, 1]


def test_a_judge_can_read_the_case_and_call_a_model(scoring, tmp_path):
    write(
        tmp_path,
        "judge.py",
        """
        from agentv import Score
        async def judge(context):
            first = await context.ask("helper", [{"role": "user", "content": context.case.id}])
            again = await context.ask("helper", "once more")
            return Score(float(first.text), reasoning=again.text)
        """,
    )
    calls = []

    async def ask(target, messages):
        calls.append((target, messages[0].role, messages[0].content))
        return answer("0.25")

    judgement = scoring.judgement(workdir=str(tmp_path), ask=ask)
    score = scoring.run(scoring.evaluator("python", function="judge.py:judge"), judgement)
    assert calls == [("helper", "user", "one"), ("helper", "user", "once more")]
    assert (score.score, score.reasoning) == (0.25, "0.25")


def test_a_failed_model_call_fails_the_judge(scoring, tmp_path):
    write(tmp_path, "judge.py", "async def judge(context):\n    return await context.ask('helper', 'hi')\n")

    async def ask(target, messages):
        raise EvaluatorFailure("The judge helper failed (auth): no")

    judgement = scoring.judgement(workdir=str(tmp_path), ask=ask)
    with pytest.raises(EvaluatorFailure, match=r"The judge helper failed \(auth\): no"):
        scoring.run(scoring.evaluator("python", function="judge.py:judge"), judgement)


def descendants(pid):
    """Return the child processes of a process, from /proc."""
    found, waiting = [], [str(pid)]
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            parents.setdefault(fields[1], []).append(stat.parent.name)
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def gone(pids):
    return still_running(pids)


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


SLOW = """
import os, subprocess, time
def judge(context):
    child = subprocess.Popen(["tail", "-f", "/dev/null"])
    open("pids", "a").write(f"{os.getpid()} {os.getppid()} {child.pid}\\n")
    child.wait()
"""


async def written(count):
    await wait_until_async(lambda: len(words_in(Path("pids"))) >= count)
    return words_in(Path("pids"))


@needs_proc
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_cancelling_leaves_no_process(scoring, tmp_path, monkeypatch, times):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "judge.py", SLOW)
    evaluator = scoring.evaluator("python", function="judge.py:judge")

    async def cancelled():
        task = asyncio.create_task(evaluator.evaluate(scoring.judgement(workdir=str(tmp_path))))
        pids = await written(3)
        for _ in range(times):
            task.cancel()
            await let_others_run()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pids

    assert gone(asyncio.run(cancelled())) == []


@needs_proc
def test_a_timeout_ends_child_processes(scoring, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "judge.py", SLOW)
    with skipped_ahead(lambda: len(words_in(Path("pids"))) == 3):
        assert judged(scoring, tmp_path, 1, timeout_seconds=60) == ["judge.py:judge took longer than 60 s"]
    assert gone(Path("pids").read_text().split()) == []


@needs_proc
def test_no_process_is_left_when_the_run_is_killed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "judge.py", SLOW)
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from conftest import Scoring
scoring = Scoring()
evaluator = scoring.evaluator("python", function="judge.py:judge")
asyncio.run(evaluator.evaluate(scoring.judgement(workdir=".")))
"""
    run = subprocess.Popen([sys.executable, "-c", code])
    try:
        pids = asyncio.run(asyncio.wait_for(written(3), 60))
        below = descendants(run.pid)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert set(pids) <= set(below)
    assert gone(below) == []


def test_an_unused_host_closes_cleanly():
    assert asyncio.run(JudgeHost(Environment()).aclose()) is None


def test_the_number_of_fork_servers_is_limited(scoring, tmp_path, monkeypatch):
    monkeypatch.setattr(pool_module, "MAX_SERVERS", 2)
    names = [f"judge_{number}.py" for number in range(4)]
    for name in names:
        write(tmp_path, name, "def judge(context): return 0.5")

    async def all_of_them(host):
        judgement = scoring.judgement(workdir=str(tmp_path), host=host)
        for name in names:
            evaluator = scoring.evaluator("python", function=f"{name}:judge")
            assert (await evaluator.evaluate(judgement)).score == 0.5
        return len(host.pool._servers)

    assert scoring.hosted(all_of_them) == 2


def test_child_programs_inherit_the_original_environment(scoring, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    write(
        tmp_path,
        "judge.py",
        "import os, sys\ndef judge(context): return 'PYTHONPATH' not in os.environ and len(sys.argv) == 1\n",
    )
    assert judged(scoring, tmp_path, 1) == [1.0]


def test_secrets_are_not_inherited(scoring, tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", "planted-secret")
    write(tmp_path, "judge.py", "import os\ndef judge(context): return 'planted-secret' in str(os.environ)\n")
    assert judged(scoring, tmp_path, 1) == [0.0]
    assert os.environ["PLANTED_API_KEY"] == "planted-secret"


def test_a_request_finds_its_response_after_queued_judgements():
    run, worker = socket.socketpair()
    channel = Channel(worker.detach())
    run.sendall(frame([{"answer": 2}, {}]) + framed(pickle.dumps("the case")))
    assert channel.request(["case"]) == "the case"
    assert msgspec.json.decode(channel.receive()) == [{"answer": 2}, {}]
    for each in (run, channel._reader, channel._socket):
        each.close()
