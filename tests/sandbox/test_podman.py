"""Programs in containers of Podman, for real: a run, the proxy, the limits, and what is left afterwards."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentv.model.environment import Environment
from agentv.model.sandbox_settings import HostKey, RunSandbox, SandboxSettings
from agentv.sandbox import methods
from agentv.sandbox.sandbox import open_sandbox
from agentv.sandbox.subprocesses import ProcessFailure, ProcessSpec, run_process
from platforms import only_on_posix
from podman_image import IMAGE, READABLE, podman_problem, use_runc

pytestmark = [pytest.mark.ci, only_on_posix("programs are not isolated, and their memory and processes not limited")]

KEY = "sk-planted-4711-0815"


@pytest.fixture(autouse=True)
def podman(tmp_path_factory, monkeypatch):
    base = tmp_path_factory.getbasetemp()
    monkeypatch.setenv("CONTAINERS_CONF", use_runc(base))
    methods._engine_problem.cache_clear()
    if problem := podman_problem(base):
        pytest.skip(problem)


def sandbox_with(root, **settings):
    chosen = SandboxSettings(engine="podman", image=IMAGE, readable=READABLE, **settings)
    return open_sandbox(Environment(sandbox=RunSandbox(default=chosen, root=str(root)), path=str(root / ".env")))


def ran(sandbox, command, work, timeout_s=200, **env):
    spec = ProcessSpec(command=command, cwd=str(work), env={**os.environ, **env}, timeout_s=timeout_s, grace_s=0)
    return asyncio.run(run_process(sandbox.confine(spec, (str(work),)))).stdout


def containers():
    """The containers of this process; other tests have theirs at the same time."""
    listed = subprocess.run(["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True)
    return [name for name in listed.stdout.split() if name.startswith(f"agentv-{os.getpid()}-")]


def test_a_run_in_containers(folder, command):
    entry = {"type": "command", "command": "grep made file"}
    case = {
        "id": "a", "criteria": "x", "input": "hi", "workspace": {"setup": "echo made > file"}, "evaluators": [entry],
    }  # fmt: skip
    folder.write("cases.yaml", {"evalcases": [case]})
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "cli", "command_template": "cat file"}]})
    folder.write(".agentv/config.yaml", {"execution": {"sandbox": {"engine": "podman", "image": IMAGE}}})
    done = command("eval", "cases.yaml", "--out", "run")
    assert done.code == 0, done.stderr
    record = json.loads(Path("run/results.jsonl").read_text())
    assert (record["candidate_answer"], record["score"]) == ("made", 1)
    assert record["evaluator_results"][0]["details"]["sandbox"]["by"] == "podman"


def test_a_container_has_its_workspace_and_none_of_the_users_secrets(tmp_path):
    project, work = tmp_path / "project", tmp_path / "work"
    project.mkdir(), work.mkdir()
    (project / ".env").write_text("MY_API_KEY=planted")
    (project / "file").write_text("text")
    command = f"cat {project}/file {project}/.env; echo $MY_OWN; echo x > made; echo x > {project}/made || echo refused"
    assert ran(sandbox_with(project), command, work, MY_OWN="1") == "text1\nrefused\n"
    assert (work / "made").stat().st_uid == os.getuid()
    assert sorted(os.listdir(project)) == [".env", "file"]


def test_a_container_whose_program_is_stopped_is_removed(tmp_path):
    before = containers()
    with pytest.raises(ProcessFailure, match="within 3 s"):
        ran(sandbox_with(tmp_path), "sleep 60", tmp_path, timeout_s=3)
    assert containers() == before


class Echo(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(self.headers["Authorization"]).encode())

    def log_message(self, *_):
        pass


GET = """
import os, socket, urllib.error, urllib.request
for path in ("/{host}/x", "/other.example/x"):
    try:
        print(urllib.request.urlopen(os.environ["AGENTV_EGRESS_URL"] + path).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code)
host, port = "{host}".split(":")
print(socket.socket().connect_ex((host, int(port))) != 0)
"""


def test_a_container_reaches_its_hosts_through_the_proxy_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", KEY)
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server, ExitStack() as stack:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)  # a thread that serves a closed socket never rests
        api = f"http://127.0.0.1:{server.server_port}"
        sandbox = sandbox_with(tmp_path, hosts=(api,), keys={api: HostKey(variable="MY_API_KEY")})
        command = [sys.executable, "-c", GET.format(host=api.removeprefix("http://"))]
        assert ran(sandbox, command, tmp_path).split("\n")[:3] == [f"Bearer {KEY}", "403", "True"]


EXCESSIVE = {
    "memory": ("x = b'x' * (300 * MB)", 200, "exit code 137"),
    "files": (
        "for i in range(1000):\n    open(f'{sys.argv[1]}/{i}', 'wb').write(b'x' * MB); time.sleep(0.01)", 200,
        "wrote more than 50 MiB",
    ),
    "processes": ("for _ in range(1100):\n    os.fork() or time.sleep(60) or os._exit(0)", 8192, "BlockingIOError"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "memory_mb", "message"), EXCESSIVE.values(), ids=EXCESSIVE)
def test_a_container_that_exceeds_a_limit_is_stopped(tmp_path, code, memory_mb, message):
    before, sandbox = containers(), sandbox_with(tmp_path, memory_mb=memory_mb, disk_mb=50)
    code = "import os, sys, time\nMB = 1024 * 1024\n" + code
    with pytest.raises(ProcessFailure, match=message):
        ran(sandbox, [sys.executable, "-c", code, str(tmp_path)], tmp_path)
    assert containers() == before


def test_an_image_that_does_not_exist_is_an_error_of_the_call(folder, command):
    folder.write("cases.yaml", {"evalcases": [{"id": "a", "criteria": "x", "input": "hi", "evaluators": []}]})
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "cli", "command_template": "echo hi"}]})
    sandbox = {"engine": "podman", "image": "localhost/agentv-missing:1"}
    folder.write(".agentv/config.yaml", {"execution": {"sandbox": sandbox}})
    command("eval", "cases.yaml", "--out", "run")
    record = json.loads(Path("run/results.jsonl").read_text())
    assert "agentv-missing" in record["error"]["message"]
    assert record.get("score") is None
