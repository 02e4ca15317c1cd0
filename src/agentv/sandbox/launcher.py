"""The program that isolates itself and then becomes a user's program. It uses only the standard library.

It starts in Python's isolated mode with an empty environment, so that no variable of a project can change it. It reads
its options, with the variables of the user's program, from an inherited file.
"""

from __future__ import annotations

import marshal
import os
import sys

from agentv.sandbox import PROXY_PORT, kernel
from agentv.sandbox.kernel import CannotIsolate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KERNEL_SETTINGS = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper")


def main(arguments: list[str]) -> None:
    """Isolate this process and execute a program; the argument is the number of the file with the options."""
    with open(int(arguments[0]), "rb") as file:
        options = marshal.load(file)  # noqa: S302 - written by our own process
    command = options["command"]
    try:
        _isolate(options)
        os.execvpe(command[0], command, options["env"])  # noqa: S606 - the user's own program
    except CannotIsolate as error:
        print(f"cannot isolate: {error}", file=sys.stderr)
    except FileNotFoundError:
        print(f"{command[0]} was not found", file=sys.stderr)
    except OSError as error:
        print(f"Cannot start {command[0]}: {error.strerror}", file=sys.stderr)
    os._exit(127)


def _isolate(options: dict[str, Any]) -> None:
    is_landlock, writable, hidden = options["method"] == "landlock", options["writable"], options["hidden"]
    reachable = (*options["readable"], *writable)
    if is_landlock and options["namespaces"]:
        masked = [path for path in hidden if not any(entry.startswith(os.path.join(path, "")) for entry in reachable)]
        hidden = [path for path in hidden if path not in masked]
        writable = kernel.enter_namespaces(writable, options["shared_memory_bytes"], masked, options["readable"])
    if options["listener"] is not None:
        send_listener(options["listener"])
    kernel.adopt_orphans()
    kernel.drop_privileges()
    has_own = not is_landlock or options["namespaces"]
    if is_landlock:
        readable = [path for entry in options["readable"] for path in paths_below(entry, hidden)]
        kernel.restrict_files(readable, writable, has_network=has_own)
    kernel.filter_system_calls(has_network=has_own, has_mounts=has_own)
    if kernel.has_capabilities():
        raise CannotIsolate("the privileges of root cannot be dropped")
    _check_kernel_settings()


def _check_kernel_settings() -> None:
    """Raise CannotIsolate if this process could change how the kernel works, such as the program for core dumps."""
    for path in _KERNEL_SETTINGS:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            continue
        raise CannotIsolate(f"{path} is writable")


def paths_below(path: str, hidden: list[str]) -> list[str]:
    """Return a path, or if a hidden one is below it, the entries of the folder that are not hidden.

    Links are left out: a rule for a link would allow the file that it leads to.
    """
    parents = set()
    for parent in hidden:
        while parent != (parent := os.path.dirname(parent)):
            parents.add(parent)
    waiting, visible = [path], []
    while waiting:
        if (path := waiting.pop()) in hidden:
            continue
        if path not in parents:
            visible.append(path)
            continue
        try:
            waiting += [entry.path for entry in os.scandir(path) if not entry.is_symlink()]
        except OSError:
            continue
    return visible


def send_listener(descriptor: int) -> None:
    """Listen on the program's own loopback, and pass the listening socket to the run, which serves it."""
    import socket  # late: slow to import, and few programs need a proxy

    with socket.socket(fileno=descriptor) as channel, socket.create_server(("127.0.0.1", PROXY_PORT)) as listening:
        socket.send_fds(channel, [b"listener"], [listening.fileno()])


if __name__ == "__main__":
    main(sys.argv[1:])
