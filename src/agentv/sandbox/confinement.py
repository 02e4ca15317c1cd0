"""The isolation of a program as data, and the command that starts the program with it.

Judging processes import this module, so its imports must stay small.
"""

import marshal
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from agentv.sandbox import SHARED_MEMORY
from agentv.sandbox.visibility import AGENTV, hidden_paths, readable_paths
from agentv.support.processes.process_memory import MARK

Method = Literal["landlock", "bubblewrap", "docker", "podman"]

DEFAULT_MEMORY_MB = 8192
_SHARED_PART = 4

_LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from agentv.sandbox.launcher import main"
_LAUNCH += "; main(sys.argv[2:])"
_STARTUP = {"PATH": os.defpath}
_AS_NOBODY = ("--uid", "65534", "--gid", "65534")
_BUBBLEWRAP = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts"),
    *("--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"),
)


class Launch(msgspec.Struct, frozen=True):
    """A command with its environment and the open files to pass to it. `file` has the options of an isolated one."""

    arguments: list[str]
    env: dict[str, str]
    descriptors: tuple[int, ...] = ()
    file: int | None = None

    def close(self) -> None:
        """Close the file of options in this process."""
        if self.file is not None:
            os.close(self.file)


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """The isolation of a program: it may write to some folders, and read only what it needs.

    `secret_files` are files that it may not read although they are in a readable folder. A container has an `image` and
    a `name`, and gets the variables in `passed` in addition to those that were set for the program. `channel` is a
    local socket through which a container passes a listening socket; other programs use an inherited one. `memory_mb`
    limits the memory of a container and of temporary file systems; that of other programs is measured.
    """

    method: Method
    has_namespaces: bool = True
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    secret_files: tuple[str, ...] = ()
    image: str = ""
    name: str = ""
    passed: tuple[str, ...] = ()
    channel: str = ""
    memory_mb: int = DEFAULT_MEMORY_MB

    @property
    def shared_memory_bytes(self) -> int:
        """The size of `/dev/shm`, which the program has for itself."""
        return self.memory_mb * 1024 * 1024 // _SHARED_PART

    @property
    def is_container(self) -> bool:
        """Whether the program runs in a container."""
        return bool(self.image)

    def start_problem(self, printed: bytes) -> str:
        """Return why the sandbox could not be set up, from what a failed program printed; empty if it was."""
        if self.method != "bubblewrap" or not printed.startswith(b"bwrap: "):
            return ""
        reason = printed.decode(errors="replace").partition("\n")[0]
        problem = f"its sandbox could not be set up ({reason})"
        if "Permission denied" not in reason:
            return problem
        return f"{problem}. Bubblewrap cannot hide files in another user's folder: move it, or use `engine: landlock`"

    def launch(self, command: Sequence[str], cwd: str, env: Mapping[str, str], listener: int | None = None) -> Launch:
        """Return the isolated command. It passes a socket that listens in its network to `listener`."""
        if self.is_container:
            return self._in_container(command, cwd, env)
        program = os.path.dirname(command[0]) if os.path.isabs(command[0]) else ""
        readable = readable_paths(env.get("PATH", os.defpath), (cwd, program, *self.readable))
        hidden = hidden_paths(readable, self.secret_files, self.writable)
        options = {
            "command": list(command),
            "env": dict(env),
            "method": self.method,
            "namespaces": self.has_namespaces,
            "readable": readable,
            "writable": self.writable,
            "hidden": hidden,
            "listener": listener,
            "shared_memory_bytes": self.shared_memory_bytes,
        }
        file = _options_file(options)
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCH, AGENTV, str(file)]
        if self.method == "bubblewrap":
            launcher = [*self._bubblewrap(readable, hidden, cwd), *launcher]
        descriptors = (file,) if listener is None else (file, listener)
        return Launch(launcher, {**_STARTUP, **_mark_in(env)}, descriptors, file)

    def _bubblewrap(self, readable: Sequence[str], hidden: Sequence[str], cwd: str) -> list[str]:
        """Return the command with all mounts. Its file systems in memory are read-only, except shared memory."""
        from shutil import which  # late: most runs start no program

        program = which("bwrap") or "bwrap"
        command = [program, *_BUBBLEWRAP, *(_AS_NOBODY if os.geteuid() == 0 else ())]
        command += _bound(path for path in readable if path not in ("/proc", "/sys"))
        command += ["--dev", "/dev", "--proc", "/proc", "--ro-bind-try", "/sys", "/sys"]
        if _has_size(program):
            command += ["--size", str(self.shared_memory_bytes)]
        command += ["--tmpfs", SHARED_MEMORY]
        command += _bound(path for path in readable if path.startswith(f"{SHARED_MEMORY}/"))
        masked = [path for path in sorted(hidden) if any(path.startswith(os.path.join(root, "")) for root in readable)]
        folders = [path for path in masked if os.path.isdir(path)]
        for path in masked:
            if path in folders:
                command += ["--tmpfs", path]
            elif not os.path.islink(path):
                command += ["--ro-bind", "/dev/null", path]
        # A readable folder in a hidden one is bound again, because the hidden one covers it now.
        command += _bound(path for path in readable if any(path.startswith(os.path.join(root, "")) for root in hidden))
        for path in sorted(self.writable):
            command += ["--bind", path, path]
        for path in (*folders, "/dev", "/proc", "/"):
            command += ["--remount-ro", path]
        return [*command, "--chdir", cwd, "--"]

    def _in_container(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> Launch:
        from agentv.sandbox import container  # late: judging processes never start one

        readable = tuple(dict.fromkeys((cwd, *self.readable)))
        hidden = hidden_paths(readable, self.secret_files, self.writable)
        mounts = container.mounts_of(self.method, readable, self.writable, hidden)
        variables = container.container_variables(env, self.passed)
        if self.channel:
            command = container.listening_command(command, self.channel)
        from shutil import which  # late: most runs start no program

        start = (which(self.method) or self.method, self.name, self.image)
        options = container.container_options(mounts, variables, self.memory_mb)
        arguments = container.container_command(start, command, cwd, options)
        return Launch(arguments, {**variables, **container.client_environment(), **_mark_in(env)})


def _bound(paths: Iterable[str]) -> list[str]:
    """Return the options that make paths readable, outer folders first."""
    return [part for path in sorted({*paths}) for part in ("--ro-bind-try", path, path)]


def private_environment(env: Mapping[str, str], scratch: str, writable: Sequence[str]) -> dict[str, str]:
    """Return the variables of an isolated program: folders that it cannot use are replaced by a temporary one."""

    def is_usable(path: str) -> bool:
        return any(path == root or path.startswith(os.path.join(root, "")) for root in writable)

    variables = {name: value for name, value in env.items() if not _is_folder_variable(name) or is_usable(value)}
    return {"HOME": scratch, **variables, "TMPDIR": scratch}


def _is_folder_variable(name: str) -> bool:
    return name in ("HOME", "TMP", "TEMP", "XDG_RUNTIME_DIR") or (name.startswith("XDG_") and name.endswith("_HOME"))


def _mark_in(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name == MARK}


def _options_file(options: dict[str, Any]) -> int:
    """Return an open file in memory with the options; arguments would be visible to all processes."""
    if sys.platform != "linux":
        raise OSError("only Linux has files in memory")
    file = os.memfd_create("agentv")
    os.write(file, marshal.dumps(options))
    os.lseek(file, 0, os.SEEK_SET)
    return file


@lru_cache(maxsize=1)
def _has_size(program: str) -> bool:
    """Whether bubblewrap can limit a file system in memory. Versions before 0.7 cannot."""
    import subprocess  # late: judging processes never start one

    try:
        return b"--size" in subprocess.run([program, "--help"], capture_output=True, check=False, timeout=10).stdout  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
