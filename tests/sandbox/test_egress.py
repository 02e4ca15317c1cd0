"""Isolated programs reach the listed hosts only, through a proxy that adds keys which the programs never have."""

import asyncio
import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agentv.extensions.agents.agent import ModelHost
from agentv.extensions.agents.vendor_agents import ClaudeCode
from agentv.model.environment import Environment
from agentv.model.sandbox_settings import HostKey, RunSandbox, SandboxSettings
from agentv.sandbox import methods
from agentv.sandbox.hosts import AllowedHost
from agentv.sandbox.methods import CannotConfine
from agentv.sandbox.sandbox import open_sandbox
from agentv.sandbox.subprocesses import ProcessSpec, run_process
from platforms import only_on_posix

pytestmark = [pytest.mark.ci, only_on_posix("programs are not isolated")]

KEY = "sk-planted-4711-0815"


@pytest.fixture(scope="module")
def own_network():
    try:
        has_network = methods.best_confinement().has_namespaces
    except CannotConfine:
        has_network = False
    if not has_network:
        pytest.skip("no sandbox with its own network on this system")


needs_network = pytest.mark.usefixtures("own_network")


class Echo(BaseHTTPRequestHandler):
    """Returns what it received; a body is sent back in two pieces."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        seen = {"path": self.path, "headers": dict(self.headers), "body": body.decode()}
        data = json.dumps(seen).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data[:10])
        self.wfile.flush()
        self.wfile.write(data[10:])

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(params=["landlock", "bubblewrap"])
def sandbox(request, api, monkeypatch):
    try:
        if not methods.confinement_by(request.param).has_namespaces:
            pytest.skip("no network namespaces on this system")
    except CannotConfine as error:
        pytest.skip(str(error))
    monkeypatch.setenv("MY_API_KEY", KEY)
    keys = {api: HostKey(variable="MY_API_KEY", header="x-api-key")}
    settings = SandboxSettings(engine=request.param, hosts=(api,), keys=keys)
    return open_sandbox(Environment(sandbox=RunSandbox(default=settings)))


def ran(sandbox, code, *arguments):
    spec = ProcessSpec(
        command=[sys.executable, "-c", code, *arguments], cwd="/usr", env={"PATH": "/bin"}, timeout_s=200
    )
    return asyncio.run(run_process(sandbox.confine(spec, ()))).stdout


POST = """
import os, sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1].format(**os.environ), b"x" * 100_000, {"x-api-key": "mine", "X-Own": "1"})
try:
    print(urllib.request.urlopen(request, timeout=200).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def test_requests_to_the_address_of_the_proxy_get_the_key(sandbox, api):
    seen = json.loads(ran(sandbox, POST, "{AGENTV_EGRESS_URL}/" + api.removeprefix("http://") + "/v1/messages?beta=1"))
    assert (seen["path"], seen["body"]) == ("/v1/messages?beta=1", "x" * 100_000)
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert (headers["x-api-key"], headers["x-own"], headers["host"]) == (KEY, "1", api.removeprefix("http://"))


def test_requests_through_the_proxy_get_the_key_unless_they_are_encrypted(sandbox, api):
    code = "import os; del os.environ['NO_PROXY'], os.environ['no_proxy']\n" + POST
    seen = json.loads(ran(sandbox, code, f"{api}/path"))
    assert (seen["path"], seen["headers"].get("x-api-key")) == ("/path", KEY)


def test_the_program_never_has_the_key(sandbox):
    assert KEY not in ran(sandbox, "import os; print(os.environ, open('/proc/self/environ').read())")


TUNNEL = """
import os, socket, sys
host, port = os.environ["HTTPS_PROXY"].rsplit("/", 1)[1].split(":")
connection = socket.create_connection((host, int(port)))
connection.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
head = connection.recv(1000).decode()
print(head.split("\\r\\n")[0], head.partition("\\r\\n\\r\\n")[2])
if " 200 " in head:
    connection.sendall(b"POST /tunnel HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    print(connection.makefile().read())
"""


def test_tunnels_are_opened_to_listed_hosts_and_pass_unchanged(sandbox, api):
    printed = ran(sandbox, TUNNEL, api.removeprefix("http://"))
    assert printed.startswith("HTTP/1.1 200 Connection established")
    assert '"path": "/tunnel"' in printed
    assert KEY not in printed


@pytest.fixture
def other():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_other_hosts_and_other_ports_are_refused(sandbox, other):
    refused = f"connections to {other} are not allowed; add it to `hosts` of the sandbox"
    assert refused in ran(sandbox, TUNNEL, other)
    assert ran(sandbox, POST, "{AGENTV_EGRESS_URL}/" + other + "/x").startswith("403 ")
    code = (
        "import socket, sys; name, port = sys.argv[1].split(':'); print(socket.socket().connect_ex((name, int(port))))"
    )
    assert ran(sandbox, code, other).strip() != "0"


BROKEN = {
    "nonsense": (b"hello\r\n\r\n", b"400"),
    "a long head": (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
    "https in the clear": (b"GET https://127.0.0.1/ HTTP/1.1\r\n\r\n", b"400"),
    "a bad port": (b"CONNECT 127.0.0.1:x HTTP/1.1\r\n\r\n", b"400"),
}


@pytest.mark.parametrize(("request_bytes", "status"), BROKEN.values(), ids=BROKEN)
def test_broken_requests_are_answered_with_an_error(sandbox, request_bytes, status):
    code = "import socket, sys; s = socket.create_connection(('127.0.0.1', 8765)); "
    code += "s.sendall(bytes.fromhex(sys.stdin.read())); print(s.recv(100))"
    spec = ProcessSpec(
        command=[sys.executable, "-c", code], cwd="/usr", env={"PATH": "/bin"}, timeout_s=200,
        stdin=request_bytes.hex().encode(),
    )  # fmt: skip
    assert f"HTTP/1.1 {status.decode()}" in asyncio.run(run_process(sandbox.confine(spec, ()))).stdout


HOSTS = {
    "api.example.com": AllowedHost("api.example.com", 443, True),
    "API.example.com:8443": AllowedHost("api.example.com", 8443, True),
    "http://localhost:11434": AllowedHost("localhost", 11434, False),
}


@pytest.mark.parametrize(("text", "host"), HOSTS.items())
def test_hosts_are_names_with_an_optional_port(text, host):
    assert AllowedHost.read(text) == host


@pytest.mark.parametrize("text", ["https://a/path", "ftp://a", "https://"])
def test_invalid_hosts_are_errors(text):
    with pytest.raises(ValueError, match="is not a host"):
        AllowedHost.read(text)


AGENT = """#!{python}
import json, os, sys, urllib.request
sys.stdin.read()
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", b"hi")
seen = urllib.request.urlopen(request, timeout=200).read().decode()
key = json.loads(seen)["headers"].get("x-api-key")
tried = []
for path in ({key_file!r}, "/proc/%d/environ" % os.getppid()):
    try:
        tried.append(path) if "planted" in open(path).read() else None
    except OSError:
        pass
open("made", "w").write("x")
text = json.dumps([key, os.environ["ANTHROPIC_API_KEY"], "planted" in str(os.environ), tried])
print(json.dumps(dict(type="result", subtype="success", result=text, usage=dict(), session_id="s")))
print(json.dumps(dict(type="assistant", message=dict(id="m", content=[dict(type="text", text=text)]))))
"""


@needs_network
def test_an_isolated_agent_reaches_its_vendor_without_a_key(folder, command, api, monkeypatch, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "key").write_text("planted")
    host = ClaudeCode.model_host
    monkeypatch.setattr(ClaudeCode, "model_host", ModelHost(api, host.variable, host.headers))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    (folder.path / "claude").write_text(AGENT.format(python=sys.executable, key_file=str(outside / "key")))
    (folder.path / "claude").chmod(0o755)
    evaluators = [{"type": "command", "command": "test -f made"}]
    folder.write("cases.yaml", {"evalcases": [{"id": "a", "criteria": "x", "input": "hi", "evaluators": evaluators}]})
    target = {"name": "default", "provider": "claude-code", "executable": "./claude", "sandbox": "auto"}
    folder.write("targets.yaml", {"targets": [target]})
    done = command("eval", "cases.yaml", "--out", "run")
    record = json.loads((folder.path / "run" / "results.jsonl").read_text())
    assert (done.code, record["score"]) == (0, 1), record["error"]
    assert json.loads(record["candidate_answer"]) == ["[redacted]", "added-by-agentv", False, []]


@needs_network
def test_an_isolated_agent_cannot_use_your_own_login(folder, command):
    folder.write("cases.yaml", {"evalcases": [{"id": "a", "criteria": "x", "input": "hi", "evaluators": []}]})
    target = {"name": "default", "provider": "claude-code", "executable": sys.executable, "user_settings": True}
    folder.write("targets.yaml", {"targets": [{**target, "sandbox": "auto"}]})
    done = command("eval", "cases.yaml")
    assert done.code == 2
    assert "With `user_settings` the agent uses your own login" in done.stderr
