"""Isolate a judge's process: writes go to chosen folders only, TCP to one port only. Linux, without privileges.

There are two methods: Landlock and a system call filter, which a process applies to itself (`restrict`), and
bubblewrap, which starts the process. As a script, this file restricts itself and executes a given program; it imports
only the standard library, so that it can run in isolated mode.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache

PROBE_S = 10.0

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH, _RULE_NET_PORT = 1, 2
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_WRITING = _WRITE_FILE | sum(1 << bit for bit in range(4, 15))
"""Landlock's rights to write, remove, create, rename and truncate files (ABI version 3)."""

_BIND_TCP, _CONNECT_TCP = 1, 1 << 1
_SCOPES = 0b11
"""Abstract sockets of, and signals to, processes outside the sandbox (ABI version 6)."""

_OLDEST_ABI, _SCOPES_ABI = 4, 6
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000

# The number of the architecture, and of the calls socket, sendto, sendmsg, sendmmsg.
_SYSTEM_CALLS = {"x86_64": (0xC000003E, 41, 44, 46, 307), "aarch64": (0xC00000B7, 198, 206, 211, 269)}
_IO_URING_SETUP = 425
_FAST_OPEN = 0x20000000


class CannotIsolate(Exception):
    """This system cannot isolate a process."""


def restrict(writable: Sequence[str], port: int | None = None) -> None:
    """Restrict this process and its children irrevocably: writes to these folders, TCP to one loopback port.

    Raises CannotIsolate; the process is then practically unrestricted.
    """
    lacking = landlock_problem()
    if lacking:
        raise CannotIsolate(lacking)
    if port is None:
        _leave_the_network()
    _check(_libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    ruleset = _ruleset()
    try:
        for folder in writable:
            _allow(ruleset, folder, _WRITING | _READ_FILE | _READ_DIR | _EXECUTE)
        for device in ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty"):
            if os.path.exists(device):
                _allow(ruleset, device, _WRITE_FILE)
        if port is not None:
            rule = ctypes.create_string_buffer(struct.pack("=QQ", _CONNECT_TCP, port))
            _check(_libc().syscall(_ADD_RULE, ruleset, _RULE_NET_PORT, rule, 0), "landlock_add_rule")
        _check(_libc().syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    _filter_system_calls()


def landlock_problem() -> str:
    """Return why Landlock cannot be used on this system; an empty string if it can."""
    if sys.platform != "linux" or platform.machine() not in _SYSTEM_CALLS:
        return f"Landlock is not supported on {sys.platform} {platform.machine()}"
    version = _libc().syscall(_CREATE_RULESET, None, 0, 1)
    if version < 0:
        return "the kernel does not support Landlock, or it is disabled"
    return "" if version >= _OLDEST_ABI else f"the kernel has Landlock version {version}, but {_OLDEST_ABI} is needed"


@lru_cache(maxsize=2)
def isolation_method(with_port: bool = False) -> str:
    """Return `landlock` or `bubblewrap`, after trying it once. Raises CannotIsolate with the reasons against both."""
    lacking = landlock_problem()
    if not lacking:
        lacking = _tried([*landlock_command([], 1 if with_port else None), "true"])
    if not lacking:
        return "landlock"
    if with_port:
        raise CannotIsolate(f"{lacking}; bubblewrap cannot limit a judge's network access to the proxy")
    if shutil.which("bwrap") is None:
        raise CannotIsolate(f"{lacking}; bubblewrap is not installed")
    refused = _tried([*bubblewrap_command([], "/"), "true"])
    if refused:
        raise CannotIsolate(f"{lacking}; bubblewrap does not work here: {refused}")
    return "bubblewrap"


def landlock_command(writable: Sequence[str], port: int | None) -> list[str]:
    """Return the prefix of a command to restrict it with Landlock."""
    options = json.dumps({"writable": list(writable), "port": port})
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), options]


def bubblewrap_command(writable: Sequence[str], cwd: str) -> list[str]:
    """Return the prefix of a command to start it with bubblewrap, with a read-only view of the file system."""
    command = ["bwrap", "--die-with-parent", "--unshare-net", "--unshare-ipc", "--ro-bind", "/", "/"]
    command += ["--dev-bind", "/dev", "/dev"]
    for folder in writable:
        command += ["--bind", folder, folder]
    return [*command, "--chdir", cwd, "--"]


def _tried(command: list[str]) -> str:
    """Run a command; return its error, or an empty string if it succeeds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _ruleset() -> int:
    version = _libc().syscall(_CREATE_RULESET, None, 0, 1)
    scopes = _SCOPES if version >= _SCOPES_ABI else 0
    handled = struct.pack("=QQQ", _WRITING, _BIND_TCP | _CONNECT_TCP, scopes)
    size = len(handled) if scopes else 16
    return _check(_libc().syscall(_CREATE_RULESET, handled, size, 0), "landlock_create_ruleset")


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not os.path.isdir(path):
        rights &= _WRITE_FILE | 1 << 14
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights & _WRITING, place))
        _check(_libc().syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), "landlock_add_rule")
    finally:
        os.close(place)


def _leave_the_network() -> None:
    """Move this process to an empty network namespace. If that is not allowed, the other rules still apply."""
    libc = _libc()
    if libc.unshare(_NEW_NETWORK) == 0:
        return
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_USER | _NEW_NETWORK) == 0:
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(line)


def _filter_system_calls() -> None:
    """Allow only TCP and local sockets, and deny system calls that bypass Landlock's rules for TCP."""
    architecture, socket, sendto, sendmsg, sendmmsg = _SYSTEM_CALLS[platform.machine()]
    program = _assembled(
        [
            ("load", 4), ("unless", architecture, "deny"),
            ("load", 0), ("from", 0x40000000, "deny"),
            ("if", _IO_URING_SETUP, "deny"),
            ("if", socket, "socket"), ("if", sendto, "fourth"), ("if", sendmmsg, "fourth"), ("if", sendmsg, "third"),
            ("goto", "allow"),
            ("label", "socket"), ("load", 16), ("if", 1, "allow"), ("if", 2, "type"), ("unless", 10, "deny"),
            ("label", "type"), ("load", 24), ("and", 0xF), ("unless", 1, "deny"),
            ("load", 32), ("if", 0, "allow"), ("if", 6, "allow"), ("goto", "deny"),
            ("label", "third"), ("load", 32), ("goto", "flags"),
            ("label", "fourth"), ("load", 40),
            ("label", "flags"), ("with", _FAST_OPEN, "deny"),
            ("label", "allow"), ("return", 0x7FFF0000),
            ("label", "deny"), ("return", 0x00050000 | errno.EACCES),
        ]
    )  # fmt: skip
    code = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _check(_libc().prctl(_SET_SECCOMP, _FILTER_MODE, filter_, 0, 0), "seccomp")


def _assembled(lines: list[tuple[object, ...]]) -> bytes:
    """Assemble the filter to BPF code. Jumps are relative and go forward only."""
    places: dict[object, int] = {}
    steps: list[tuple[object, ...]] = []
    for line in lines:
        if line[0] == "label":
            places[line[1]] = len(steps)
        else:
            steps.append(line)
    codes = {"load": 0x20, "and": 0x54, "return": 0x06, "goto": 0x05, "from": 0x35, "with": 0x45}
    program = b""
    for index, (name, value, *target) in enumerate(steps):
        away = places[target[0]] - index - 1 if target else 0
        if name == "goto":
            program += struct.pack("HBBI", 0x05, 0, 0, places[value] - index - 1)
        elif name == "unless":
            program += struct.pack("HBBI", 0x15, 0, away, value)
        else:
            program += struct.pack("HBBI", codes.get(str(name), 0x15), away, 0, value)
    return program


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        raise CannotIsolate(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def main(arguments: list[str]) -> None:
    """Restrict this process, then execute a program. Arguments: options as JSON, then the program and its arguments."""
    options = json.loads(arguments[0])
    command = arguments[1:]
    try:
        restrict(options["writable"], options["port"])
        os.execvp(command[0], command)  # noqa: S606 - the user's own program
    except CannotIsolate as error:
        print(f"cannot isolate: {error}", file=sys.stderr)
    except FileNotFoundError:
        print(f"{command[0]} was not found", file=sys.stderr)
    except OSError as error:
        print(f"Cannot start {command[0]}: {error.strerror}", file=sys.stderr)
    sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
