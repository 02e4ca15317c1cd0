"""Run a program in a container of Docker or Podman, with the workspace at the same path and without a network."""

import asyncio
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from agentv.sandbox import PROXY_PORT
from agentv.support.processes.process_limits import MAX_PROCESSES
from agentv.support.processes.process_memory import MARK

REMOVE_S = 20.0
_CLIENT_VARIABLES = (
    *("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
)
_HOST_VARIABLES = ("PATH", "PWD", "OLDPWD", "SHELL", "USER", "LOGNAME", "_", "SHLVL", MARK)
_FOLDER_VARIABLES = ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
"""Variables that the engine needs for itself. In a container they are folders of the program, not secrets."""

_LISTEN = f"""
import os, socket, sys
channel = socket.socket(socket.AF_UNIX)
channel.connect(sys.argv[1])
listening = socket.create_server(("127.0.0.1", {PROXY_PORT}))
socket.send_fds(channel, [b"listener"], [listening.fileno()])
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Listens in the container, and passes the socket to the run. The image needs Python 3.9 for that."""


def container_name() -> str:
    """Return a new name for a container. It has the id of the process that starts it."""
    return f"agentv-{os.getpid()}-{secrets.token_hex(8)}"


def container_command(start: tuple[str, str, str], command: Sequence[str], cwd: str, options: list[str]) -> list[str]:
    """Return the command that runs a program in a container. `start` is the engine, the name and the image."""
    engine, name, image = start
    arguments = [engine, "run", "--rm", "--interactive", "--init", "--name", name]
    arguments += ["--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    arguments += ["--pids-limit", str(MAX_PROCESSES), "--read-only"]
    arguments += ["--user", f"{os.getuid()}:{os.getgid()}"]
    if os.path.basename(engine) == "podman" and os.getuid() != 0:
        arguments += ["--userns", "keep-id"]  # Podman refuses it for root
    return [*arguments, *options, "--workdir", cwd, image, *command]


def container_options(mounts: Sequence[str], env: Mapping[str, str], memory_mb: int) -> list[str]:
    """Return the options for mounts, variables and memory. Files in `/tmp` count as memory.

    The engine passes variables on from its own environment, so that their values are not arguments, which are public.
    """
    options = ["--memory", f"{memory_mb}m", "--tmpfs", f"/tmp:exec,size={memory_mb}m"]  # noqa: S108
    for mount in mounts:
        options += ["--mount", mount]
    for variable, value in sorted(env.items()):
        options += ["--env", f"{variable}={value}" if variable in _FOLDER_VARIABLES else variable]
    return options


def mounts_of(engine: str, readable: Sequence[str], writable: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """Return the mounts of folders at their own paths; hidden files and folders in them are empty.

    Podman copies the contents of a folder to a file system in memory that is mounted over it, unless told not to.
    """
    suffix = ",notmpcopyup" if engine == "podman" else ""
    mounts = [f"type=bind,source={path},target={path},readonly" for path in sorted({*readable} - {*writable})]
    for path in hidden:
        if any(path.startswith(os.path.join(root, "")) for root in readable) and not os.path.islink(path):
            is_folder = os.path.isdir(path)
            mounts.append(
                f"type=tmpfs,target={path}{suffix}" if is_folder else f"type=bind,source=/dev/null,target={path}"
            )
    return [*mounts, *(f"type=bind,source={path},target={path}" for path in sorted({*writable}))]


def listening_command(command: Sequence[str], channel: str) -> list[str]:
    """Return a command that first passes a listening socket to the run through a local socket."""
    return ["python3", "-c", _LISTEN, channel, *command]


def container_variables(env: Mapping[str, str], passed: Iterable[str]) -> dict[str, str]:
    """Return the variables for a container: those set for the program, not those of this machine."""
    own = frozenset(passed)
    return {
        name: value
        for name, value in env.items()
        if name in own or (name not in _HOST_VARIABLES and os.environ.get(name) != value)
    }


def client_environment() -> dict[str, str]:
    """Return the variables that the program `docker` or `podman` itself needs."""
    return {name: value for name, value in os.environ.items() if name in _CLIENT_VARIABLES}


async def remove_container(engine: str, name: str) -> None:
    """End and remove a container whose program was stopped: killing the client does not end it."""
    command = [shutil.which(engine) or engine, "rm", "--force", "--volumes", name]
    call = partial(
        subprocess.run, command, capture_output=True, env=client_environment(), timeout=REMOVE_S, check=False
    )
    with suppress(OSError, subprocess.TimeoutExpired):
        await asyncio.shield(asyncio.to_thread(call))
