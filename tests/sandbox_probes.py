"""Attempts to leave a sandbox, and a program that tries all of them with one engine.

    python sandbox_probes.py '{"engine": "bubblewrap", "image": null, "readable": []}' FOLDER

prints which attempts succeed, as JSON. FOLDER is empty; a project, a home and sockets to attack are created in it.
"""

import asyncio
import ctypes
import json
import os
import socket
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

# Python code that a program tries; `True` if it should succeed.
TRIES = {
    "read a file": ("open(path).read() == 'secret'", True),
    "write a temporary file": ("tempfile.NamedTemporaryFile().write(b'x')", True),
    "use a temporary folder": ("tempfile.TemporaryDirectory().__enter__()", True),
    "set the mode of its own file": ("os.fchmod(tempfile.mkstemp()[0], 0o700) is None", True),
    "print to nothing": ("open(os.devnull, 'w').write('x')", True),
    "start a program": ("subprocess.run(['true']).returncode == 0", True),
    "use a pair of sockets": ("socket.socketpair()", True),
    "write a file": ("open(path, 'w').write('x')", False),
    "make a file": ("open(path + '-new', 'w')", False),
    "remove a file": ("os.remove(path) is None", False),
    "rename a file": ("os.rename(path, path + '-new') is None", False),
    "cut a file off": ("os.truncate(path, 0) is None", False),
    "make a folder": ("os.mkdir(path + '-folder') is None", False),
    "make a link": ("os.symlink('/', path + '-link') is None", False),
    "have a program write": ("subprocess.run(['sh', '-c', 'echo x > ' + path], stderr=-3).returncode == 0", False),
    "change the mode of a file": ("os.chmod(path, 0o777) or os.stat(path).st_mode & 0o777 == 0o777", False),
    "change the mode of an open file":
        ("os.fchmod(os.open(path, os.O_RDONLY), 0o777) or os.stat(path).st_mode & 0o777 == 0o777", False),
    "change the time of a file": ("os.utime(path, (1, 1)) or os.stat(path).st_mtime == 1", False),
    "make a file in the root folder": ("open('/agentv-probe', 'w')", False),
    "make a file in /dev": ("open('/dev/agentv-probe', 'w')", False),
    "read a key of the user": ("open(key).read()", False),
    "list the keys of the user": ("os.listdir(os.path.dirname(key))", False),
    "read the variables of the project": ("open(os.path.join(os.path.dirname(path), '.env')).read()", False),
    "read secrets in folders of the project": ("any(map(can_read, secrets))", False),
    "read secrets through links": ("any(map(can_read, links))", False),
    "read the passwords of the system": ("open('/etc/shadow').read()", False),
    "read a device": ("open('/dev/kmsg', 'rb').read(1)", False),
    "make a device": ("os.mknod(tempfile.mktemp(), 0o20666, os.makedev(1, 5)) is None", False),
    "change a setting of the kernel": ("os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)", False),
    "change a setting of the network": ("os.open('/proc/sys/net/ipv4/ip_forward', os.O_WRONLY)", False),
    "restart the machine": ("os.open('/proc/sysrq-trigger', os.O_WRONLY)", False),
    "call a server": ("socket.create_connection(server, 2)", False),
    "send a datagram": ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 53)) is None", False),
    "look a name up": ("socket.getaddrinfo('localhost.example', 80)", False),
    "connect to a local socket": ("socket.socket(socket.AF_UNIX).connect(local) is None", False),
    "connect to an abstract socket": ("socket.socket(socket.AF_UNIX).connect(abstract) is None", False),
    "send to a local socket": ("socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b'x', datagrams)", False),
    "find shared memory of the machine": ("libc.shmget(shared, 0, 0) >= 0", False),
    "find a message queue of the machine": ("libc.mq_open(queue.encode(), 0) >= 0", False),
    "signal the run": ("os.kill(parent, 0) is None", False),
    "read the environment of the run": ("open(f'/proc/{parent}/environ', 'rb').read()", False),
    "read the memory of the run": ("open(f'/proc/{parent}/mem', 'rb')", False),
    "trace the run": ("libc.ptrace(0x4206, parent, 0, 0) == 0", False),
    "trace itself": ("libc.ptrace(0, 0, 0, 0) == 0", False),
    "read a keyring": ("libc.syscall(250 if os.uname().machine == 'x86_64' else 219, 0, -3, 0) >= 0", False),
    "have privileges": ("[s for s in open('/proc/self/status') if s[:3] == 'Cap' and int(s[8:], 16)]", False),
    "enter another namespace": ("libc.unshare(0x10000000) == 0", False),
    "mount": ("libc.mount(b'none', tempfile.gettempdir().encode(), b'tmpfs', 0, None) == 0", False),
}  # fmt: skip

TRY = """
import ctypes, json, os, socket, subprocess, sys, tempfile
libc = ctypes.CDLL(None)
def can_read(path):
    try:
        return "secret" in open(path).read()
    except OSError:
        return False
def attempt(code, given):
    try:
        return bool(eval(code, globals(), {**given, "server": tuple(given["server"])}))
    except OSError:
        return False
def attempts(config):
    return {"score": 1, "details": {name: attempt(code, config) for name, code in config.pop("tries").items()}}
"""

SECRETS = (
    "a/b/.env", "a/.env.local", "a/.netrc", "a/.npmrc", "a/.pypirc", "a/.git-credentials", "a/node_modules/b/.env",
    "a/.aws/credentials", "a/.ssh/id", "a/.kube/config", "a/.gnupg/key", "a/.azure/tokens", "a/.docker/config.json",
    "a/.config/gh/hosts.yml", "a/.config/gcloud/key.json", "a/.cargo/credentials.toml", ".venv/lib/.env",
    "a/.ENV", "a/.Netrc", "a/.AWS/credentials", "a/production.env", ".git/config", ".git/modules/sub/config",
)  # fmt: skip
LINKS = {"notes": ".env", "a/notes": "b/.env", "a/keys": ".ssh"}

_SHARED_KEY, _CREATE, _REMOVE = 0x41475631, 0o1000, 0


@contextmanager
def attacked(project: Path, home: Path):
    """A project, a home and servers that a program tries to get at; yields their addresses."""
    (project / "file").write_text("secret")
    (project / ".env").write_text("MY_API_KEY=secret")
    for name in SECRETS:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("secret\n\textraheader = AUTHORIZATION: basic x")
    for name, place in LINKS.items():
        (project / name).symlink_to(place)
    (project / "plain").write_text("secret")
    (project / "a/c").mkdir()
    (project / "a/c/.env").symlink_to("../../plain")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("secret")
    local, abstract, queue = str(home / "socket"), f"\0{home}", f"/agentv-{os.getpid()}"
    with ExitStack() as stack:
        for kind, address in (
            (socket.SOCK_STREAM, local), (socket.SOCK_STREAM, abstract), (socket.SOCK_DGRAM, f"{local}-datagrams")
        ):  # fmt: skip
            listening = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            listening.bind(address)
            if kind == socket.SOCK_STREAM:
                listening.listen()
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        libc, key = ctypes.CDLL(None), _SHARED_KEY + os.getpid()
        segment = libc.shmget(key, 4096, _CREATE | 0o600)
        stack.callback(libc.shmctl, segment, _REMOVE, None)
        one_byte = (ctypes.c_long * 8)(0, 1, 1)  # the queues of a user may have 800 kB together, open ones included
        descriptor = libc.mq_open(queue.encode(), os.O_RDWR | os.O_CREAT, 0o600, one_byte)
        assert descriptor >= 0
        stack.callback(libc.mq_close, descriptor)
        stack.callback(libc.mq_unlink, queue.encode())
        yield {
            "path": str(project / "file"), "key": str(home / ".ssh" / "id"), "server": server.getsockname(),
            "local": local, "datagrams": f"{local}-datagrams", "abstract": abstract, "parent": os.getpid(),
            "shared": key, "queue": queue, "secrets": [str(project / name) for name in SECRETS],
            "links": [str(project / name) for name in ("notes", "a/notes", "a/keys/id", "plain", "a/c/.env")],
        }  # fmt: skip


def outcomes(settings: dict, folder: Path) -> dict[str, bool]:
    """Return which attempts succeed in a sandbox with these settings. `namespaces: false` turns namespaces off."""
    import msgspec

    from agentv.model.environment import Environment
    from agentv.model.sandbox_settings import RunSandbox, SandboxSettings
    from agentv.sandbox.sandbox import opened
    from agentv.sandbox.subprocesses import ProcessSpec, run_process

    has_namespaces = settings.pop("namespaces", True)
    project, home = folder / "project", folder / "home"
    project.mkdir(), home.mkdir()
    os.environ |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    chosen = msgspec.convert(settings, SandboxSettings)
    sandbox = opened(chosen, Environment(sandbox=RunSandbox(default=chosen, root=str(project))))
    confinement = msgspec.structs.replace(sandbox.confinement, has_namespaces=has_namespaces)
    sandbox = msgspec.structs.replace(sandbox, confinement=confinement)
    code = TRY + "print(json.dumps(attempts(json.load(sys.stdin))['details']))"
    with attacked(project, home) as config:
        tries = {name: code for name, (code, _) in TRIES.items()}
        spec = ProcessSpec(
            command=[sys.executable, "-c", code], cwd=str(project), env={"PATH": os.defpath}, timeout_s=200,
            stdin=json.dumps({**config, "tries": tries}).encode(),
        )  # fmt: skip
        return json.loads(asyncio.run(run_process(sandbox.confine(spec, ()))).stdout)


if __name__ == "__main__":
    print(json.dumps(outcomes(json.loads(sys.argv[1]), Path(sys.argv[2]))))
