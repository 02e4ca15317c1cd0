"""Landlock: restrict the files that this process and its children may read and write. Linux 6.12, no privileges."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys

from agentv.sandbox.kernel import CannotIsolate, check, libc, system_call
from agentv.sandbox.system_calls import is_supported

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _DEVICE_CONTROL = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_MAKE_CHARACTER_DEVICE, _MAKE_SOCKET, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 9, 1 << 11
_ALL = (1 << 16) - 1
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_WRITING = _ALL & ~(_MAKE_CHARACTER_DEVICE | _MAKE_SOCKET | _MAKE_BLOCK_DEVICE | _DEVICE_CONTROL)
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL

_TCP = 0b11
_SCOPES = 0b11
"""Abstract sockets of, and signals to, processes outside the sandbox."""

_OLDEST_ABI = 6
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def landlock_problem() -> str:
    """Return why Landlock cannot be used on this system; an empty string if it can."""
    if not sys.platform.startswith("linux") or not is_supported():
        return f"Landlock is not supported on {sys.platform} {os.uname().machine}"
    version = libc().syscall(_CREATE_RULESET, None, 0, 1)
    if version < 0:
        return "the kernel does not support Landlock, or it is disabled"
    return "" if version >= _OLDEST_ABI else f"the kernel has Landlock version {version}, but {_OLDEST_ABI} is needed"


def restrict_files(readable: list[str], writable: list[str], *, has_network: bool) -> None:
    """Restrict this process irrevocably to reading and writing these paths. It needs `no_new_privs`.

    Processes outside cannot be inspected or signalled. Without a network of its own, TCP is denied.
    """
    lacking = landlock_problem()
    if lacking:
        raise CannotIsolate(lacking)
    handled = struct.pack("=QQQ", _ALL, 0 if has_network else _TCP, _SCOPES)
    ruleset = check(libc().syscall(_CREATE_RULESET, handled, len(handled), 0), "landlock_create_ruleset")
    try:
        for path in filter(os.path.exists, readable):
            _allow(ruleset, path, _READING)
        for path in writable:
            _allow(ruleset, path, _WRITING)
        for device in filter(os.path.exists, _DEVICES):
            _allow(ruleset, device, _READ_FILE | _WRITE_FILE | _DEVICE_CONTROL)
        check(libc().syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
        check(system_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), "landlock_add_rule")
    finally:
        os.close(place)
