"""Runs whose programs are isolated: commands, agents, hooks, tools and evaluators, by option, setting or policy."""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agentv.sandbox import methods
from platforms import only_on_posix

pytestmark = [pytest.mark.ci, only_on_posix("programs are not isolated")]

TRY = """
import json, os, pathlib, sys
home, outside, name = sys.argv[1:4]
done = []
for what, attempt in (
    ("read the key", lambda: open(home + "/.ssh/id").read()),
    ("read .env", lambda: open(os.path.dirname(os.path.abspath(sys.argv[0])) + "/.env").read()),
    ("write outside", lambda: open(outside + "/" + name, "w").write("x")),
):
    try:
        attempt()
        done.append(what)
    except OSError:
        pass
print(json.dumps({"text": f"{name}: {done}", "score": float(not done), "misses": done}))
pathlib.Path("tried-" + name).write_text(str(done)) if os.access(".", os.W_OK) else None
"""


@pytest.fixture
def project(folder, tmp_path_factory, monkeypatch):
    """A project whose target, setup, hook and evaluators try to read a key and to write outside the workspace."""
    methods.best_confinement.cache_clear()
    home, outside = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("outside")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("planted")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    (folder.path / ".env").write_text("MY_API_KEY=planted-1234")
    (folder.path / "try.py").write_text(TRY)

    def attempt(name):
        return f"{sys.executable} {folder.path}/try.py {home} {outside} {name}"

    case = {
        "id": "a", "criteria": "x", "input": "hi",
        "workspace": {"setup": attempt("setup"), "hooks": {"before_each": {"command": attempt("hook")}}},
        "evaluators": [
            {"type": "command", "command": f"{attempt('command')} | grep -q '\\[\\]'", "name": "command"},
            {"type": "code_judge", "script": attempt("judge"), "name": "judge"},
            {"type": "command", "command": "cat tried-setup tried-target", "name": "workspace"},
        ],
    }  # fmt: skip
    folder.write("cases.yaml", {"evalcases": [case]})
    folder.target = {"name": "default", "provider": "cli", "command_template": attempt("target")}
    folder.write("targets.yaml", {"targets": [folder.target]})
    folder.outside, folder.home = outside, home
    return folder


def record_of(run="run"):
    return json.loads(Path(run, "results.jsonl").read_text())


def escaped(folder):
    return sorted(each.name for each in folder.outside.iterdir())


def has_sandbox():
    try:
        return bool(methods.best_confinement())
    except methods.CannotConfine:
        return False


needs_sandbox = pytest.mark.skipif(not has_sandbox(), reason="no sandbox on this system")


def test_without_a_sandbox_every_program_can_read_and_write(project, command):
    assert command("eval", "cases.yaml", "--out", "run").code == 0
    assert escaped(project) == ["command", "hook", "judge", "setup", "target"]
    assert "read the key" in record_of()["candidate_answer"]


@needs_sandbox
@pytest.mark.parametrize("engine", ["auto", "bubblewrap"])
def test_with_a_sandbox_no_program_can_read_or_write_outside(project, command, engine):
    if engine == "bubblewrap" and methods._problem(methods.Confinement(method="bubblewrap")):
        pytest.skip("no bubblewrap on this system")
    done = command("eval", "cases.yaml", "--out", "run", "--sandbox", engine)
    assert (done.code, escaped(project)) == (0, []), done.stderr
    record = record_of()
    assert record["candidate_answer"] == "target: []"
    assert [each["score"] for each in record["evaluator_results"]] == [1, 1, 1]
    assert record["evaluator_results"][1]["details"]["sandbox"]["level"] == "isolated"


@needs_sandbox
@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no shared memory")
@pytest.mark.parametrize("engine", ["landlock", "bubblewrap"])
def test_a_project_in_shared_memory_is_readable(command, monkeypatch, engine):
    if methods._problem(methods.Confinement(method=engine)):
        pytest.skip(f"no {engine} on this system")
    with TemporaryDirectory(dir="/dev/shm") as home:
        monkeypatch.chdir(home)
        Path("data.txt").write_text("hello")
        target = {"name": "default", "provider": "cli", "command_template": "cat data.txt"}
        Path("targets.yaml").write_text(json.dumps({"targets": [target]}))
        Path("cases.yaml").write_text("evalcases: [{id: a, input: hi, criteria: x, evaluators: []}]")
        command("eval", "cases.yaml", "--out", "run", "--sandbox", engine)
        assert record_of()["candidate_answer"] == "hello"
        monkeypatch.chdir("/")


@needs_sandbox
@pytest.mark.parametrize("where", ["config", "target", "policy", "policy against the project"])
def test_the_sandbox_can_be_a_setting(project, command, where):
    options = []
    if where == "config":
        project.write(".agentv/config.yaml", {"execution": {"sandbox": {"engine": "auto"}}})
    elif where == "target":
        project.write("targets.yaml", {"targets": [{**project.target, "sandbox": "auto"}]})
    else:
        (project.home / ".config" / "agentv").mkdir(parents=True)
        (project.home / ".config" / "agentv" / "policy.yaml").write_text("sandbox: required\n")
    if where == "policy against the project":
        project.write(".agentv/config.yaml", {"execution": {"sandbox": "none"}})
        project.write("targets.yaml", {"targets": [{**project.target, "sandbox": "none"}]})
        options = ["--sandbox", "none"]
    done = command("eval", "cases.yaml", "--out", "run", *options)
    assert done.code == 0, done.stderr
    assert record_of()["candidate_answer"] == "target: []"
    assert escaped(project) == (["command", "hook", "judge", "setup"] if where == "target" else [])


@needs_sandbox
def test_a_target_may_write_to_its_workspace_and_to_more_folders(project, command):
    own = {"engine": "auto", "writable": [str(project.outside)], "readable": [str(project.home / ".ssh")]}
    project.write("targets.yaml", {"targets": [{**project.target, "sandbox": own}]})
    assert command("eval", "cases.yaml", "--out", "run").code == 0
    assert record_of()["candidate_answer"] == "target: ['read the key', 'write outside']"


UNAVAILABLE = {
    "podman": "podman is not installed",
    "docker": "docker is not installed",
    "bubblewrap": "bubblewrap is not installed",
}


@pytest.mark.parametrize(("engine", "reason"), UNAVAILABLE.items())
def test_a_missing_engine_is_an_error_before_the_run(project, command, monkeypatch, tmp_path, engine, reason):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    methods._engine_problem.cache_clear()
    methods._only.cache_clear()
    done = command("eval", "cases.yaml", "--out", "run", "--sandbox", engine)
    assert done.code == 2
    assert "The programs of this run cannot be isolated" in done.stderr
    assert reason in done.stderr
    assert ("Install and start" if engine != "bubblewrap" else "Install bubblewrap") in done.stderr
    assert not os.path.exists("run")


@needs_sandbox
def test_a_key_that_is_not_set_is_an_error_before_the_run(project, command):
    own = {"hosts": ["api.example.com"], "keys": {"api.example.com": {"variable": "NOT_SET_KEY"}}}
    project.write("targets.yaml", {"targets": [{**project.target, "sandbox": own}]})
    done = command("eval", "cases.yaml", "--out", "run")
    assert (done.code, os.path.exists("run")) == (2, False)
    assert "Set NOT_SET_KEY in the environment or in .env" in done.stderr


CODE = {
    "target": ({"name": "default", "provider": "python", "function": "code.py:f"}, {}),
    "provider": ({"name": "default", "provider": "code.py:P"}, {}),
    "tool": ({"name": "default", "provider": "openai", "model": "x", "tools": ["code.py:f"]}, {}),
    "transform": ({"name": "default", "provider": "mock", "transform": {"function": "code.py:f"}}, {}),
    "evaluator": ({"name": "default", "provider": "mock"}, {"type": "code.py:E"}),
    "transform of an evaluator": (
        {"name": "default", "provider": "mock"},
        {"type": "contains", "value": "x", "transform": {"function": "code.py:f"}},
    ),
}


@needs_sandbox
@pytest.mark.parametrize(("target", "entry"), CODE.values(), ids=CODE)
def test_code_that_runs_in_agentv_itself_is_refused(folder, command, target, entry):
    (folder.path / "code.py").write_text("open('ran', 'w')\ndef f(text): return text\n")
    entries = [entry] if entry else []
    folder.write("cases.yaml", {"evalcases": [{"id": "a", "criteria": "x", "input": "hi", "evaluators": entries}]})
    folder.write("targets.yaml", {"targets": [target]})
    done = command("eval", "cases.yaml", "--sandbox", "auto", "--out", "run")
    assert done.code == 2
    assert "cannot be isolated" in done.stderr
    assert "code.py" in done.stderr or "its function" in done.stderr
    assert not os.path.exists("ran")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of another user")
def test_a_folder_of_another_user_that_bubblewrap_cannot_search_is_explained(folder, command):
    if methods._problem(methods.Confinement(method="bubblewrap")):
        pytest.skip("no bubblewrap on this system")
    folder.write("cases.yaml", {"evalcases": [{"id": "a", "criteria": "x", "input": "hi", "evaluators": []}]})
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "cli", "command_template": "echo x"}]})
    folder.write("theirs/.env", "KEY=x")
    os.chown("theirs", 61002, 61002)
    os.chmod("theirs", 0o700)
    command("eval", "cases.yaml", "--out", "run", "--sandbox", "bubblewrap")
    message = json.loads(Path("run/results.jsonl").read_text())["error"]["message"]
    assert message.startswith("The command was not started: its sandbox could not be set up (bwrap: ")
    assert message.endswith("move it, or use `engine: landlock`")
