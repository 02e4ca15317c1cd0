"""Namespaces of this process: its own network, IPC objects and read-only mounts; and dropping its privileges."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from fcntl import ioctl

from agentv.sandbox import SHARED_MEMORY
from agentv.sandbox.kernel import CannotIsolate, check, libc, system_call

_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000
_NAMESPACES = _NEW_MOUNTS | _NEW_IPC | _NEW_NETWORK
_NO_SUID, _NO_DEVICES, _BIND, _RECURSIVE, _PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _BELOW, _READ_ONLY, _WITHOUT_DEVICES = 442, 0x8000, 1, 4
_HERE = -100

_INET, _DATAGRAM = 2, 2
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1
_NO_NEW_PRIVILEGES, _DROP_BOUND, _CLEAR_AMBIENT, _ADOPT_ORPHANS = 38, 24, 47, 36
_CAPABILITIES_VERSION = 0x20080522


def enter_namespaces(writable: list[str], shared_memory_bytes: int, hidden: list[str]) -> list[str]:
    """Move this process to a network with a loopback device only, and make all mounts read-only but these folders.

    Hidden files and folders become empty.

    Returns the writable folders, with one for shared memory of its own, which Python's `multiprocessing` needs.
    """
    if libc().unshare(_NAMESPACES) != 0:
        user, group = os.geteuid(), os.getegid()
        check(libc().unshare(_NEW_USER | _NAMESPACES), "unshare")
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            try:
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(line)
            except OSError as error:
                raise CannotIsolate(f"/proc/self/{name}: {error.strerror}") from None
    with suppress(OSError), open("/proc/sys/kernel/shmall", "w", encoding="ascii") as file:  # of the new namespace
        file.write(str(shared_memory_bytes // os.sysconf("SC_PAGE_SIZE")))
    here = os.getcwd()
    folders = [os.path.realpath(folder) for folder in writable]
    _make_mounts_read_only(folders, hidden)
    if os.path.isdir(SHARED_MEMORY):
        flags = ctypes.c_ulong(_NO_SUID | _NO_DEVICES)
        size = f"size={shared_memory_bytes}".encode()
        check(libc().mount(b"tmpfs", SHARED_MEMORY.encode(), b"tmpfs", flags, size), f"mount {SHARED_MEMORY}")
        folders.append(SHARED_MEMORY)
    os.chdir(here)  # into the writable mount, if there is one at this path
    _start_loopback()
    return folders


def _make_mounts_read_only(writable: list[str], hidden: list[str]) -> None:
    mount = libc().mount
    check(mount(b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None), "mount")
    for folder in writable:
        path = os.fsencode(folder)
        check(mount(path, path, None, ctypes.c_ulong(_BIND | _RECURSIVE), None), f"mount {folder}")
    for each in hidden:
        _cover(each)
    _set_read_only(b"/", below=True, read_only=True)
    for folder in writable:
        _set_read_only(os.fsencode(folder), below=False, read_only=False)


def _cover(path: str) -> None:
    """Mount a device or an empty folder that cannot be opened over a path. Targets of links have paths of their own."""
    if os.path.islink(path):
        return
    place = os.fsencode(path)
    if os.path.isdir(path):
        done = libc().mount(b"tmpfs", place, b"tmpfs", ctypes.c_ulong(_NO_SUID | _NO_DEVICES), b"size=4k,mode=000")
    else:
        done = libc().mount(b"/dev/null", place, None, ctypes.c_ulong(_BIND), None)
    if done < 0 and os.path.lexists(path):  # otherwise it was removed
        check(done, f"mount {path}")
    if done == 0:
        _set_attributes(place, 0, _READ_ONLY | _WITHOUT_DEVICES, 0)


def _set_read_only(path: bytes, *, below: bool, read_only: bool) -> None:
    values = (_READ_ONLY, 0) if read_only else (0, _READ_ONLY)
    _set_attributes(path, _BELOW if below else 0, *values)


def _set_attributes(path: bytes, flags: int, added: int, removed: int) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", added, removed, 0, 0))
    done = system_call(_MOUNT_SETATTR, _HERE, path, flags, attributes, 32)
    check(done, f"mount_setattr {os.fsdecode(path)}")


def _start_loopback() -> None:
    device = struct.pack("16sH14x", b"lo", 0)
    any_socket = check(libc().socket(_INET, _DATAGRAM, 0), "socket")
    try:
        flags = struct.unpack("16sH14x", ioctl(any_socket, _GET_FLAGS, device))[1]
        ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _IS_UP))
    except OSError as error:
        raise CannotIsolate(f"the loopback device: {error.strerror}") from None
    finally:
        os.close(any_socket)


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, so that the limits of this process include them."""
    check(libc().prctl(_ADOPT_ORPHANS, 1, 0, 0, 0), "prctl")


def drop_privileges() -> None:
    """Drop all capabilities of this process, also those of root, and let no program that it starts regain any."""
    prctl = libc().prctl
    check(prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    prctl(_CLEAR_AMBIENT, 4, 0, 0, 0)
    capability = 0
    while prctl(_DROP_BOUND, capability, 0, 0, 0) == 0:
        capability += 1
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES_VERSION, 0))
    check(libc().capset(header, ctypes.create_string_buffer(24)), "capset")


def has_capabilities() -> bool:
    """Whether this process has any capability that it could use or regain."""
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if line.startswith("Cap"))
    return any(int(lines[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"))
