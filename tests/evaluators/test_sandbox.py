"""Isolation of judges: what each level blocks, and refusal if the required level is unavailable."""

import json
import os
import shutil
import socket
import sys
import threading

import pytest

from agentv.evaluators.code.code_judge import CodeJudge
from agentv.model.response import answer
from agentv.support import sandbox
from agentv.support.sandbox import CannotIsolate


def lacks_bubblewrap():
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    return sandbox._tried([*sandbox.bubblewrap_command([], "/"), "true"])


WAYS = {
    "landlock": pytest.mark.skipif(bool(sandbox.landlock_problem()), reason=sandbox.landlock_problem() or "-"),
    "bubblewrap": pytest.mark.skipif(bool(lacks_bubblewrap()), reason=lacks_bubblewrap() or "-"),
}


@pytest.fixture(params=[pytest.param(name, marks=mark) for name, mark in WAYS.items()])
def way(request, monkeypatch):
    """Each isolation method of this machine, one at a time."""
    monkeypatch.setattr(sandbox, "isolation_method", lambda with_port=False: request.param)
    return request.param


# Python code that a judge tries; `True` if it should succeed.
TRIES = {
    "to read a file": ("open(path).read() == 'secret'", True),
    "to write a file": ("open(path, 'w').write('x')", False),
    "to make a file": ("open(path + '-new', 'w')", False),
    "to remove a file": ("os.remove(path)", False),
    "to rename a file": ("os.rename(path, path + '-new')", False),
    "to cut a file off": ("os.truncate(path, 0)", False),
    "to make a folder": ("os.mkdir(path + '-new')", False),
    "to make a link": ("os.symlink('/', path + '-new')", False),
    "to write a temporary file": ("tempfile.NamedTemporaryFile().write(b'x')", True),
    "to use a temporary folder": ("tempfile.TemporaryDirectory().__enter__()", True),
    "to print to nothing": ("open(os.devnull, 'w').write('x')", True),
    "to start a program": ("subprocess.run(['true']).returncode == 0", True),
    "to have a program write": ("subprocess.run(['sh', '-c', 'echo x > ' + path], stderr=-3).returncode == 0", False),
    "to call a server": ("socket.create_connection(server, 2)", False),
    "to be a server": ("socket.create_server(('127.0.0.1', 0)).getsockname()", False),
    "to send by UDP": ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', server)", False),
    "to look a name up": ("socket.getaddrinfo('localhost.example', 80)", False),
    "to use a pair of sockets": ("socket.socketpair()", True),
    "to signal the run": ("os.kill(parent, 0)", False),
}  # fmt: skip

TRY = """
import json, os, socket, subprocess, sys, tempfile
def attempt(given):
    path, server, parent = given["path"], tuple(given["server"]), given["parent"]
    try:
        return bool({code})
    except OSError:
        return False
"""
WARM = TRY + "def agentv_judge(payload): return {{'score': attempt(payload['config']) * 1}}\n"
COLD = TRY + "print(json.dumps({{'score': attempt(json.load(sys.stdin)['config']) * 1}}))\n"


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()


@pytest.mark.parametrize("text", [COLD, WARM], ids=["started", "warm"])
@pytest.mark.parametrize(("code", "allowed"), TRIES.values(), ids=TRIES)
def test_what_an_isolated_judge_can_do(scoring, tmp_path, server, way, text, code, allowed):
    if way == "bubblewrap" and code.startswith(("os.kill", "socket.create_server", "socket.socket(")):
        pytest.skip("bubblewrap shares the process ids, and gives a network of its own, in which servers are harmless")
    (tmp_path / "file").write_text("secret")
    (tmp_path / "judge.py").write_text(text.format(code=code))
    config = {"path": str(tmp_path / "file"), "server": server, "parent": os.getpid()}
    entry = {"script": [sys.executable, "judge.py"], "config": config, "sandbox": "required"}
    score = scoring.score("code_judge", entry, workdir=str(tmp_path))
    assert score.score == allowed
    assert score.details == {"sandbox": {"level": "isolated", "by": way, "network": "none"}}
    assert (tmp_path / "file").read_text() == "secret"
    assert sorted(each.name for each in tmp_path.iterdir() if each.name != "__pycache__") == ["file", "judge.py"]


def test_without_isolation_a_judge_may_write_and_connect(scoring, tmp_path, server):
    """The default level does not break existing judges."""
    (tmp_path / "file").write_text("secret")
    code = "open(path, 'w').write('x') and socket.create_connection(server, 2) and tempfile.mkdtemp()"
    (tmp_path / "judge.py").write_text(COLD.format(code=code))
    config = {"path": str(tmp_path / "file"), "server": server, "parent": os.getpid()}
    score = scoring.score(
        "code_judge", {"script": [sys.executable, "judge.py"], "config": config}, workdir=str(tmp_path)
    )
    assert (score.score, score.details) == (1, None)


def test_functions_are_isolated_too(scoring, tmp_path, way):
    code = "from agentv import Score\ndef judge(context):\n    open('left', 'w')\n    return Score(1)\n"
    (tmp_path / "judge.py").write_text(code)
    entry = {"function": "judge.py:judge", "sandbox": "required"}
    assert "judge.py:judge failed: " in scoring.failure("python", entry, workdir=str(tmp_path))
    (tmp_path / "judge.py").write_text(code.replace("    open('left', 'w')\n", ""))
    score = scoring.score("python", entry, workdir=str(tmp_path))
    assert score.details == {"sandbox": {"level": "isolated", "by": way, "network": "none"}}


def test_the_temporary_folder_is_removed_with_the_judge(scoring, tmp_path, way):
    code = "import json, os, tempfile\nopen(tempfile.mkdtemp() + '/x', 'w')\n"
    code += "print(json.dumps({'score': 1, 'details': {'folder': os.environ['TMPDIR']}}))"
    entry = {"script": [sys.executable, "-c", code], "sandbox": "required"}
    folder = scoring.score("code_judge", entry).details["folder"]
    assert "agentv-judge-" in folder
    assert not os.path.exists(folder)


def test_fresh_judgements_do_not_share_temporary_files(scoring, tmp_path, way):
    code = "import os, tempfile\ndef judge(context):\n    found = os.listdir(os.environ['TMPDIR'])\n"
    code += "    open(os.path.join(os.environ['TMPDIR'], 'left'), 'w')\n    return 0.9 if found else 0.1\n"
    (tmp_path / "judge.py").write_text(code)
    evaluator = scoring.evaluator("python", function="judge.py:judge", sandbox="required", fresh=True)

    async def several(host):
        judgement = scoring.judgement(workdir=str(tmp_path), host=host)
        return [(await evaluator.evaluate(judgement)).score for _ in range(4)]

    assert scoring.hosted(several) == [0.1] * 4


ASK = """
import json, os, socket, sys, urllib.request
other = json.load(sys.stdin)["config"]["server"]
request = urllib.request.Request(
    os.environ["AGENTV_TARGET_PROXY_URL"] + "/invoke", json.dumps({"question": "hi"}).encode(),
    {"Authorization": "Bearer " + os.environ["AGENTV_TARGET_PROXY_TOKEN"]})
text = json.load(urllib.request.urlopen(request, timeout=20))["rawText"]
try:
    socket.create_connection(tuple(other), 2)
    text += " and more"
except OSError:
    pass
print(json.dumps({"score": 1, "reasoning": text}))
"""


@WAYS["landlock"]
def test_an_isolated_judge_reaches_the_proxy_and_nothing_else(scoring, server):
    async def ask(target, messages, wanted=None):
        return answer("hello")

    entry = {"script": [sys.executable, "-c", ASK], "target_proxy": True, "sandbox": "required"}
    evaluator = scoring.evaluator("code_judge", **entry, config={"server": server})
    score = scoring.run(evaluator, scoring.judgement(ask=ask))
    assert score.reasoning == "hello"
    assert score.details["sandbox"] == {"level": "isolated", "by": "landlock", "network": "proxy"}


@pytest.fixture
def nothing_there(monkeypatch):
    """A machine without any isolation method."""

    def isolation_method(with_port=False):
        raise CannotIsolate("the kernel has no Landlock; bubblewrap is not installed")

    monkeypatch.setattr(sandbox, "isolation_method", isolation_method)


def test_unavailable_required_isolation_is_refused_before_the_run(folder, command, nothing_there):
    (folder.path / "judge.py").write_text("open('ran', 'w')\ndef judge(context): return 1\n")
    for entry in (
        {"type": "python", "function": "judge.py:judge", "sandbox": "required"},
        {"type": "code_judge", "script": "touch ran", "sandbox": "required"},
    ):
        folder.write("cases.yaml", {"evalcases": [{"id": "a", "criteria": "x", "input": "hi", "evaluators": [entry]}]})
        folder.write(
            "targets.yaml", {"targets": [{"name": "default", "provider": "cli", "command_template": "touch ran"}]}
        )
        done = command("eval", "cases.yaml")
        assert done.code == 2
        assert (
            "'sandbox: required' is not possible on this machine: the kernel has no Landlock; bubblewrap" in done.stderr
        )
        assert not (folder.path / "ran").exists()


def test_unavailable_preferred_isolation_is_noted_in_the_details(scoring, nothing_there):
    entry = {"script": ["/bin/echo", json.dumps({"score": 1})], "sandbox": "preferred"}
    assert scoring.score("code_judge", entry).details == {"sandbox": {"level": "limits"}}


def test_unavailable_required_isolation_is_refused_outside_a_run(scoring, nothing_there):
    entry = {"script": ["/bin/echo", json.dumps({"score": 1})], "sandbox": "required"}
    assert "is not possible on this machine" in scoring.failure("code_judge", entry)


def test_details_that_are_not_an_object_stay_unchanged(scoring, way):
    entry = {"script": ["/bin/echo", json.dumps({"score": 1, "details": [1]})], "sandbox": "required"}
    assert scoring.score("code_judge", entry).details == [1]


def test_the_default_requires_nothing():
    assert CodeJudge(script="x").refusal == CodeJudge(script="x", sandbox="preferred").refusal == ""


def test_memory_is_limited_at_every_level(scoring):
    eats = "x = [b'x' * 2**20 for _ in range(400)]; import signal; signal.pause()"
    entry = {"script": [sys.executable, "-c", eats], "memory_mb": 200}
    assert "used more than 200 MiB of memory (the limit, 'memory_mb')" in scoring.failure("code_judge", entry)


def test_memory_of_a_programs_child_is_limited_too(scoring):
    eats = "x = [b'x' * 2**20 for _ in range(400)]; import signal; signal.pause()"
    entry = {"script": f'{sys.executable} -c "{eats}"; echo never', "memory_mb": 200}
    assert "used more than 200 MiB of memory" in scoring.failure("code_judge", entry)


RESERVES = """
import json, mmap, resource
NO_RESERVE = 0x4000
reserved = mmap.mmap(-1, 2**36, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)]
print(json.dumps({"score": 1, "details": limits}))
"""


def test_reserved_memory_is_not_limited_and_other_limits_hold_from_the_start(scoring, tmp_path):
    """Bun reserves 70 GB at its start and uses 40 MB of it."""
    (tmp_path / "judge.py").write_text(RESERVES)
    entry = {"script": [sys.executable, "-S", "judge.py"], "memory_mb": 100}
    assert scoring.score("code_judge", entry, workdir=str(tmp_path)).details == [0, 2**30]


def test_a_file_that_is_too_large_is_named_as_the_reason(scoring):
    message = scoring.failure("code_judge", {"script": "kill -XFSZ $$"})
    assert "was terminated by SIGXFSZ because it wrote a file of more than 1024 MiB" in message


def test_a_missing_program_is_an_error_at_every_level(scoring, way):
    assert "no-such-program" in scoring.failure("code_judge", {"script": ["no-such-program"], "sandbox": "required"})


def test_detecting_isolation_does_not_affect_this_process(tmp_path):
    """Detection runs in a separate process."""
    try:
        sandbox.isolation_method.__wrapped__()
    except CannotIsolate as error:
        assert str(error)
    (tmp_path / "x").write_text("x")
    assert threading.active_count() >= 1
