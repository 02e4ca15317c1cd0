"""Isolation of judges: what each method blocks, and refusal if the required isolation is unavailable."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from agentv.evaluators.code.code_judge import CodeJudge
from agentv.model.environment import Environment
from agentv.model.response import answer
from agentv.sandbox import methods
from agentv.sandbox.confinement import Confinement
from agentv.sandbox.kernel import landlock_problem
from agentv.sandbox.methods import CannotConfine
from agentv.sandbox.visibility import hidden_paths
from platforms import only_on_posix
from sandbox_probes import TRIES, TRY, attacked

pytestmark = [pytest.mark.ci, only_on_posix("programs are not isolated, and their memory and processes not limited")]

CONFINEMENTS = {
    "landlock": Confinement(method="landlock"),
    "landlock-alone": Confinement(method="landlock", has_namespaces=False),
    "bubblewrap": Confinement(method="bubblewrap"),
}


def works(*command):
    return shutil.which(command[0]) is not None and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


HAS_LANDLOCK = not landlock_problem()
HAS_NAMESPACES = works("unshare", "--user", "--net", "--mount", "true")
# Whether the system supports a method. Not by trying our own launcher, whose mistakes would only skip the tests.
SUPPORTED = {
    "landlock": HAS_LANDLOCK and HAS_NAMESPACES,
    "landlock-alone": HAS_LANDLOCK,
    "bubblewrap": works("bwrap", "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "true"),
}
WAYS = {name: pytest.mark.skipif(not has, reason=f"no {name} on this system") for name, has in SUPPORTED.items()}


@pytest.fixture(params=[pytest.param(name, marks=mark) for name, mark in WAYS.items()])
def way(request, monkeypatch):
    """Each isolation method of this machine, one at a time."""
    monkeypatch.setattr(methods, "best_confinement", lambda: CONFINEMENTS[request.param])
    return CONFINEMENTS[request.param].method


WARM = TRY + "def agentv_judge(payload): return attempts(payload['config'])\n"
COLD = TRY + "print(json.dumps(attempts(json.load(sys.stdin)['config'])))\n"


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()


@pytest.fixture
def config(tmp_path, tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    with attacked(tmp_path, home) as addresses:
        yield addresses


@pytest.mark.parametrize("text", [COLD, WARM], ids=["started", "warm"])
def test_what_an_isolated_judge_can_do(scoring, tmp_path, config, way, text):
    (tmp_path / "judge.py").write_text(text)
    before = os.listdir(tmp_path)
    entry = {
        "script": [sys.executable, "judge.py"],
        "config": {**config, "tries": {name: code for name, (code, _) in TRIES.items()}},
        "sandbox": "required",
    }
    score = scoring.score("code_judge", entry, workdir=str(tmp_path))
    assert score.details.pop("sandbox") == {"level": "isolated", "by": way, "network": "none"}
    assert score.details == {name: allowed for name, (_, allowed) in TRIES.items()}
    assert (tmp_path / "file").read_text() == "secret"
    assert {each.name for each in tmp_path.iterdir()} <= {*before, "__pycache__"}


def test_the_same_attempts_succeed_without_isolation(scoring, tmp_path, config):
    """Otherwise they would prove nothing. Some need the rights of root, or depend on the kernel."""
    (tmp_path / "judge.py").write_text(COLD)
    others = {"remove a file", "rename a file", "read the passwords of the system", "read a device", "make a device",
              "send a datagram", "look a name up", "read the memory of the run", "trace the run", "read a keyring",
              "enter another namespace", "mount", "have privileges", "make a file in the root folder",
              "make a file in /dev", "change a setting of the kernel", "change a setting of the network",
              "restart the machine"}  # fmt: skip
    tried = [name for name in TRIES if name not in others]
    entry = {
        "script": [sys.executable, "judge.py"],
        "config": {**config, "tries": {name: TRIES[name][0] for name in tried}},
    }
    score = scoring.score("code_judge", entry, workdir=str(tmp_path))
    assert score.details == dict.fromkeys(tried, True)


@pytest.mark.parametrize("name", [pytest.param(name, marks=WAYS[name]) for name in ("landlock", "bubblewrap")])
def test_an_isolated_program_has_shared_memory_of_its_own(scoring, tmp_path, monkeypatch, name):
    monkeypatch.setattr(methods, "best_confinement", lambda: CONFINEMENTS[name])
    before = sorted(os.listdir("/dev/shm"))
    code = "import multiprocessing, os; multiprocessing.Lock(); open('/dev/shm/x', 'w'); print(os.listdir('/dev/shm'))"
    (tmp_path / "check.py").write_text(code)
    entry = {"command": [sys.executable, "check.py"], "sandbox": "required"}
    score = scoring.score("command", entry, workdir=str(tmp_path))
    assert (score.score, score.reasoning) == (1, "['x']")
    assert "x" not in os.listdir("/dev/shm") or "x" in before


def test_files_of_the_home_are_hidden_if_the_project_contains_it(scoring, tmp_path, monkeypatch, way):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "me" / ".ssh").mkdir(parents=True)
    (tmp_path / "me" / ".ssh" / "id").write_text("secret")
    (tmp_path / "me" / "data").write_text("data")
    code = "cat me/data && ! cat me/.ssh/id 2> /dev/null && echo done"
    score = scoring.score("command", {"command": code, "sandbox": "required"}, workdir=str(tmp_path))
    assert score.score == 1, score.reasoning


def test_secrets_next_to_installed_programs_are_hidden(scoring, tmp_path, tmp_path_factory, monkeypatch, way):
    home = tmp_path_factory.mktemp("home")
    (home / ".cargo" / "bin").mkdir(parents=True)
    (home / ".cargo" / "bin" / "tool").write_text("#!/bin/sh\ncat $(dirname $0)/../$1\n")
    (home / ".cargo" / "bin" / "tool").chmod(0o755)
    (home / ".cargo" / "data").write_text("data")
    (home / ".cargo" / "credentials.toml").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.cargo/bin:{os.environ['PATH']}")
    code = 'test "$(tool data)" = data && ! tool credentials.toml | grep secret'
    score = scoring.score("command", {"command": code, "sandbox": "required"}, workdir=str(tmp_path))
    assert score.score == 1, score.reasoning


@pytest.mark.parametrize("name", [pytest.param(name, marks=WAYS[name]) for name in ("landlock", "bubblewrap")])
def test_folders_with_secrets_stay_importable(scoring, tmp_path, monkeypatch, name):
    monkeypatch.setattr(methods, "best_confinement", lambda: CONFINEMENTS[name])
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / ".env").write_text("secret")
    (tmp_path / ".env").write_text("secret")
    (tmp_path / "package" / "helper.py").write_text("")
    entry = {"command": [sys.executable, "-c", "import package.helper"], "sandbox": "required"}
    score = scoring.score("command", entry, workdir=str(tmp_path))
    assert score.score == 1, score.reasoning


@pytest.mark.parametrize("text", ["", "def agentv_judge(payload): return 1"], ids=["started", "warm"])
def test_more_folders_than_can_be_searched_are_refused(scoring, tmp_path, monkeypatch, way, text):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr("agentv.sandbox.visibility.MOST_FOLDERS", 2)
    (tmp_path / "judge.py").write_text(text)
    entry = {"script": [sys.executable, "judge.py"], "sandbox": "required"}
    message = scoring.failure("code_judge", entry, workdir=str(tmp_path))
    assert "its readable folders contain more than 2 folders, which cannot all be hidden" in message


def test_a_secret_that_is_created_during_a_run_is_hidden(tmp_path):
    (tmp_path / "a").mkdir()
    os.utime(tmp_path / "a", (1, 1))
    assert hidden_paths((str(tmp_path),))[-1] != str(tmp_path / "a" / ".env")
    (tmp_path / "a" / ".env").write_text("secret")
    assert str(tmp_path / "a" / ".env") in hidden_paths((str(tmp_path),))


def test_a_workspace_a_named_folder_and_a_virtual_environment_are_not_hidden(tmp_path):
    work, settings = tmp_path / "work", tmp_path / ".aws"
    for name in ("work/.env", ".aws/config", ".env/pyvenv.cfg", ".env/lib/.env", ".env.local"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    paths = hidden_paths((str(tmp_path), str(settings)), writable=(str(work),))
    assert {path for path in paths if path.startswith(str(tmp_path))} == {
        str(tmp_path / ".env.local"), str(tmp_path / ".env" / "lib" / ".env"),
    }  # fmt: skip


BOMB = "import os, time\nfor _ in range(8): os.fork()\ntime.sleep(60)\n"


@pytest.mark.parametrize("warm", [False, True], ids=["started", "warm"])
def test_a_program_that_starts_endless_processes_is_stopped(scoring, tmp_path, monkeypatch, warm):
    monkeypatch.setattr("agentv.support.processes.process_limits.MAX_PROCESSES", 100)
    code = BOMB if not warm else "def agentv_judge(payload):\n    " + BOMB.replace("\n", "\n    ")
    (tmp_path / "judge.py").write_text(code)
    message = scoring.failure("code_judge", {"script": [sys.executable, "judge.py"]}, workdir=str(tmp_path))
    assert "started more than 100 processes and was stopped" in message


HOSTILE_VARIABLES = {
    "LD_PRELOAD": "/nonexistent.so", "PYTHONPATH": "{folder}", "PYTHONHOME": "/nonexistent",
    "BASH_ENV": "{folder}/x.sh", "LD_LIBRARY_PATH": "{folder}", "NODE_OPTIONS": "--require {folder}/x.js",
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files in memory")
@pytest.mark.parametrize("confinement", CONFINEMENTS.values(), ids=CONFINEMENTS)
def test_the_launcher_starts_with_an_empty_environment(confinement, tmp_path):
    launch = confinement.launch(["true"], str(tmp_path), {**HOSTILE_VARIABLES, "AGENTV_PROCESS": "1"})
    launch.close()
    assert set(launch.env) == {"PATH", "AGENTV_PROCESS"}
    assert "-I" in launch.arguments


@pytest.mark.parametrize("text", [COLD, WARM], ids=["started", "warm"])
def test_variables_of_a_project_do_not_reach_the_launcher(scoring, tmp_path, way, text):
    """A module `marshal` or `os` in the project would run before the isolation, with the user's rights."""
    for name in ("os", "marshal", "ctypes", "sitecustomize", "agentv"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    variables = {name: value.format(folder=tmp_path) for name, value in HOSTILE_VARIABLES.items()}
    if text == COLD:
        variables = {name: value for name, value in variables.items() if not name.startswith("PYTHON")}
    (tmp_path / "judge.py").write_text("def agentv_judge(payload): return 1" if text == WARM else "print(1)")
    script = [sys.executable, "judge.py"] if text == WARM else ["/bin/echo", '{"score": 1}']
    judgement = scoring.judgement(workdir=str(tmp_path), environment=Environment(variables))
    score = scoring.run(scoring.evaluator("code_judge", script=script, sandbox="required"), judgement)
    assert (score.score, (tmp_path / "ran").exists()) == (1, False)


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
    assert "agentv-scratch-" in folder
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
text = json.load(urllib.request.urlopen(request, timeout=200))["rawText"]
try:
    socket.create_connection(tuple(other), 2)
    text += " and more"
except OSError:
    pass
print(json.dumps({"score": 1, "reasoning": text}))
"""
WARM_ASK = ASK.replace("\n", "\n    ").replace("    import", "import", 1)
WARM_ASK = WARM_ASK.replace("    other = json.load(sys.stdin)", "def agentv_judge(payload):\n    other = payload")
WARM_ASK = WARM_ASK.replace("print(json.dumps(", "return ").replace("text}))", "text}")


@pytest.mark.parametrize("warm", [False, True], ids=["started", "warm"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=WAYS[name]) for name in ("landlock", "bubblewrap")])
def test_an_isolated_judge_reaches_the_proxy_and_nothing_else(scoring, server, monkeypatch, tmp_path, name, warm):
    monkeypatch.setattr(methods, "best_confinement", lambda: CONFINEMENTS[name])

    async def ask(target, messages, wanted=None):
        return answer("hello")

    (tmp_path / "judge.py").write_text(WARM_ASK if warm else ASK)
    entry = {"script": [sys.executable, "judge.py"], "target_proxy": True, "sandbox": "required"}
    evaluator = scoring.evaluator("code_judge", **entry, config={"server": server})
    score = scoring.run(evaluator, scoring.judgement(ask=ask, workdir=str(tmp_path)))
    assert score.reasoning == "hello"
    assert score.details["sandbox"] == {"level": "isolated", "by": name, "network": "proxy"}


@WAYS["landlock-alone"]
def test_without_its_own_network_an_isolated_judge_cannot_have_a_proxy(scoring, monkeypatch):
    monkeypatch.setattr(methods, "best_confinement", lambda: CONFINEMENTS["landlock-alone"])
    message = scoring.failure("code_judge", {"script": "true", "target_proxy": True, "sandbox": "required"})
    assert "it cannot have a network of its own for the model proxy" in message


@pytest.fixture
def nothing_there(monkeypatch):
    """A machine without any isolation method."""

    def best_confinement():
        raise CannotConfine("the kernel has no Landlock; bubblewrap is not installed")

    monkeypatch.setattr(methods, "best_confinement", best_confinement)


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


def test_unavailable_preferred_isolation_is_announced_once(folder, command, nothing_there):
    entries = [{"type": "command", "command": "true", "sandbox": "preferred", "name": name} for name in "ab"]
    cases = [{"id": id, "criteria": "x", "input": "hi", "evaluators": entries} for id in "ab"]
    folder.write("cases.yaml", {"evalcases": cases})
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "x"}]})
    done = command("eval", "cases.yaml")
    assert done.code == 0
    assert done.stderr.count("run without isolation on this machine: the kernel has no Landlock") == 1


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
        methods.best_confinement.__wrapped__()
    except CannotConfine as error:
        assert str(error)
    (tmp_path / "x").write_text("x")
    assert threading.active_count() >= 1
