"""Programs in containers: the command line for Docker and Podman, with an engine that records it and runs the rest."""

import asyncio
import json
import os
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from agentv.model.environment import Environment
from agentv.model.sandbox_settings import HostKey, RunSandbox, SandboxSettings
from agentv.sandbox import PROXY_PORT, methods
from agentv.sandbox.sandbox import open_sandbox
from agentv.sandbox.subprocesses import ProcessFailure, ProcessSpec, run_process
from platforms import only_on_posix
from virtual_time import skipped_ahead
from waiting import HANGS, whole_lines

pytestmark = only_on_posix("programs are not isolated")

KEY = "sk-planted-4711-0815"

# Records its arguments, and executes the command in the container with the variables that a container would have.
# The proxy listens on a free port: only in a real container is its own certainly free.
ENGINE = """#!{python}
import json, os, socket, sys
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
if sys.argv[1] == "run":
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    arguments, place = [argument.replace("{port}", port) for argument in sys.argv[2:]], 0
    env = {{"PATH": os.environ["PATH"]}}
    while arguments[place].startswith("-"):
        name = arguments[place]
        place += 1 if name in ("--rm", "--interactive", "--init", "--read-only") else 2
        value = arguments[place - 1]
        if name == "--env":
            env |= dict([value.split("=", 1)]) if "=" in value else {{value: os.environ[value].replace("{port}", port)}}
        if name == "--workdir":
            os.chdir(value)
    os.execvpe(arguments[place + 1], arguments[place + 1:], env)
"""


@pytest.fixture(params=["docker", "podman"])
def engine(request, tmp_path, monkeypatch):
    """An engine on the PATH, and the commands that it received."""
    folder, log = tmp_path / "bin", tmp_path / "log"
    folder.mkdir()
    (folder / request.param).write_text(ENGINE.format(python=sys.executable, log=str(log), port=PROXY_PORT))
    (folder / request.param).chmod(0o755)
    (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    methods._engine_problem.cache_clear()
    yield request.param, lambda: [json.loads(line) for line in log.read_text().splitlines()]
    methods._engine_problem.cache_clear()


def sandbox_by(engine, root, **settings):
    chosen = SandboxSettings(engine=engine, image="agent:1", **settings)
    return open_sandbox(Environment(sandbox=RunSandbox(default=chosen, root=str(root)), path=str(root / ".env")))


def options_in(arguments):
    """The options of `run` with a value, each as a list of values."""
    found = {}
    for name, value in pairwise(arguments):
        if name.startswith("--"):
            found.setdefault(name, []).append(value)
    return found


def test_the_container_has_no_network_no_privileges_and_only_the_workspace(engine, tmp_path):
    name, commands = engine
    project, work = tmp_path / "project", tmp_path / "work"
    project.mkdir(), work.mkdir()
    (project / ".env").write_text("MY_API_KEY=planted")
    env = {**os.environ, "MY_OWN": "1", "MY_TOKEN": "planted-token"}
    spec = ProcessSpec(command="pwd; echo $MY_OWN; touch made", cwd=str(work), env=env, timeout_s=200)
    confined = sandbox_by(name, project).confine(spec, (str(work),), (), ("MY_TOKEN",))
    assert asyncio.run(run_process(confined)).stdout.split() == [str(work), "1"]
    assert (work / "made").exists()
    version, run = commands()
    assert (version, run[0]) == (["version"], "run")
    given = options_in(run)
    assert given["--network"] == ["none"]
    assert given["--cap-drop"] == ["ALL"]
    assert given["--security-opt"] == ["no-new-privileges"]
    assert given["--user"] == [f"{os.getuid()}:{os.getgid()}"]
    assert ("--userns" in given) == (name == "podman" and os.getuid() != 0)
    assert given["--memory"] == ["8192m"]
    assert {"--rm", "--init", "--read-only", "--pids-limit"} <= set(run)
    mounts = given["--mount"]
    assert f"type=bind,source={work},target={work}" in mounts
    assert f"type=bind,source={project},target={project},readonly" in mounts
    assert f"type=bind,source=/dev/null,target={project}/.env" in mounts
    assert not [mount for mount in mounts if os.environ["HOME"] == mount.partition("target=")[2].partition(",")[0]]
    assert {"MY_OWN", "MY_TOKEN"} <= set(given["--env"])
    assert not [each for each in given["--env"] if each.startswith(("PATH", "LANG"))]
    assert "planted" not in str(run)
    assert run[run.index("agent:1") + 1 :] == ["/bin/sh", "-c", spec.command]


def test_a_container_whose_program_is_stopped_is_removed(engine, tmp_path):
    name, commands = engine
    spec = ProcessSpec(command=HANGS, cwd=str(tmp_path), env=dict(os.environ), timeout_s=200, grace_s=0)
    # The engine logs `version`, then `run`.
    with skipped_ahead(lambda: whole_lines(tmp_path / "log") == 2), pytest.raises(ProcessFailure, match="within 200 s"):
        asyncio.run(run_process(sandbox_by(name, tmp_path).confine(spec, ())))
    run, removal = commands()[-2:]
    assert removal == ["rm", "--force", "--volumes", options_in(run)["--name"][0]]


class Echo(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(self.headers["Authorization"]).encode())

    def log_message(self, *_):
        pass


GET = "import os, urllib.request; print(urllib.request.urlopen(os.environ['AGENTV_EGRESS_URL'] + '/{}/x').read())"


def test_a_container_reaches_its_hosts_through_the_proxy(engine, tmp_path, monkeypatch):
    name, commands = engine
    monkeypatch.setenv("MY_API_KEY", KEY)
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server, ExitStack() as stack:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)  # a thread that serves a closed socket never rests
        api = f"http://127.0.0.1:{server.server_port}"
        sandbox = sandbox_by(name, tmp_path, hosts=(api,), keys={api: HostKey(variable="MY_API_KEY")})
        code = GET.format(api.removeprefix("http://"))
        spec = ProcessSpec(command=[sys.executable, "-c", code], cwd=str(tmp_path), env=dict(os.environ), timeout_s=200)
        assert asyncio.run(run_process(sandbox.confine(spec, ()))).stdout.strip() == f"b'Bearer {KEY}'"
    run = commands()[-1]
    assert options_in(run)["--network"] == ["none"]
    assert "MY_API_KEY" not in options_in(run)["--env"]


def test_a_container_without_an_image_is_an_error_before_the_run(engine, folder, command):
    folder.write("cases.yaml", {"evalcases": [{"id": "a", "criteria": "x", "input": "hi", "evaluators": []}]})
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "cli", "command_template": "touch ran"}]})
    done = command("eval", "cases.yaml", "--sandbox", engine[0], "--out", "run")
    assert done.code == 2
    assert f"{engine[0]} needs an image: set `image` of the sandbox" in done.stderr
    assert not Path("run").exists()


def test_a_run_in_containers(engine, folder, command):
    work = {"setup": "echo made > file"}
    entry = {"type": "command", "command": "grep made file"}
    case = {"id": "a", "criteria": "x", "input": "hi", "workspace": work, "evaluators": [entry]}
    folder.write("cases.yaml", {"evalcases": [case]})
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "cli", "command_template": "cat file"}]})
    folder.write(".agentv/config.yaml", {"execution": {"sandbox": {"engine": engine[0], "image": "agent:1"}}})
    done = command("eval", "cases.yaml", "--out", "run")
    assert done.code == 0, done.stderr
    record = json.loads(Path("run/results.jsonl").read_text())
    assert (record["candidate_answer"], record["score"]) == ("made", 1)
    assert [each[-1] for each in engine[1]() if each[0] == "run"] == ["echo made > file", "cat file", "grep made file"]
    assert options_in(engine[1]()[-1])["--memory"] == ["4096m"]
    assert record["evaluator_results"][0]["details"]["sandbox"] == {
        "level": "isolated", "by": engine[0], "network": "none",
    }  # fmt: skip
