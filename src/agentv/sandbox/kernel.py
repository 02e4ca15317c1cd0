"""The kernel's means of isolation: namespaces, Landlock, and a filter of system calls.

Like all modules that the launcher imports, it imports as little as possible: every isolated program waits for it.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from fcntl import ioctl

from agentv.sandbox import SHARED_MEMORY


class CannotIsolate(Exception):
    """This system cannot isolate a process."""


_loaded: list[ctypes.CDLL] = []


def libc() -> ctypes.CDLL:
    """Return the C library."""
    if not _loaded:
        _loaded.append(ctypes.CDLL(None, use_errno=True))
    return _loaded[0]


def check(result: int, what: str) -> int:
    """Return the result of a system call. Raises CannotIsolate if it failed."""
    if result < 0:
        raise CannotIsolate(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers are passed as 64 bits. Returns -1 if it failed."""
    wide = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    return int(libc().syscall(ctypes.c_long(number), *wide))


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _DEVICE_CONTROL = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_MAKE_CHARACTER_DEVICE, _MAKE_SOCKET, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 9, 1 << 11
_ALL = (1 << 16) - 1
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_WRITING = _ALL & ~(_MAKE_CHARACTER_DEVICE | _MAKE_SOCKET | _MAKE_BLOCK_DEVICE | _DEVICE_CONTROL)
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL

_TCP_RIGHTS = 0b11
_SCOPES = 0b11
"""Abstract sockets of, and signals to, processes outside the sandbox."""

_OLDEST_ABI = 6
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def landlock_problem() -> str:
    """Return why Landlock cannot be used on this system; an empty string if it can."""
    if sys.platform != "linux":
        return f"Landlock is not supported on {sys.platform}"
    if not is_supported():
        return f"Landlock is not supported on {os.uname().machine}"
    if (version := libc().syscall(_CREATE_RULESET, None, 0, 1)) < 0:
        return "the kernel does not support Landlock, or it is disabled"
    return "" if version >= _OLDEST_ABI else f"the kernel has Landlock version {version}, but {_OLDEST_ABI} is needed"


def restrict_files(readable: list[str], writable: list[str], *, has_network: bool) -> None:
    """Restrict this process irrevocably to reading and writing these paths. It needs `no_new_privs`.

    Processes outside cannot be inspected or signalled. Without a network of its own, TCP is denied.
    """
    if lacking := landlock_problem():
        raise CannotIsolate(lacking)
    handled = struct.pack("=QQQ", _ALL, 0 if has_network else _TCP_RIGHTS, _SCOPES)
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
    if sys.platform != "linux":
        raise CannotIsolate(f"Landlock is not supported on {sys.platform}")
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
        check(system_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), "landlock_add_rule")
    finally:
        os.close(place)


_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000
_NAMESPACES = _NEW_MOUNTS | _NEW_IPC | _NEW_NETWORK
_NO_SUID, _NO_DEVICES, _BIND, _RECURSIVE, _PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _BELOW, _READ_ONLY, _WITHOUT_DEVICES = 442, 0x8000, 1, 4
_HERE = -100

_INET, _DATAGRAM = 2, 2
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1
_NO_NEW_PRIVILEGES, _DROP_BOUND, _CLEAR_AMBIENT, _ADOPT_ORPHANS = 38, 24, 47, 36
_CAPABILITIES_VERSION = 0x20080522


def enter_namespaces(
    writable: list[str], shared_memory_bytes: int, hidden: list[str], readable: Sequence[str]
) -> list[str]:
    """Move this process to a network with a loopback device only, and make all mounts read-only but these folders.

    Hidden files and folders become empty.

    Returns the writable folders, with one for shared memory of its own, which Python's `multiprocessing` needs, unless
    a file that the process may use is in it.
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
    is_used = any(path.startswith(f"{SHARED_MEMORY}/") for path in (*readable, *folders))
    if os.path.isdir(SHARED_MEMORY) and not is_used:
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
    for hidden_path in hidden:
        _cover(hidden_path)
    _set_read_only(b"/", below=True, read_only=True)
    for folder in writable:
        _set_read_only(os.fsencode(folder), below=False, read_only=False)


def _cover(path: str) -> None:
    """Mount a device or an empty folder that cannot be opened over a path. Targets of links have paths of their own."""
    if os.path.islink(path):
        return
    place = os.fsencode(path)
    if os.path.isdir(path):
        status = libc().mount(b"tmpfs", place, b"tmpfs", ctypes.c_ulong(_NO_SUID | _NO_DEVICES), b"size=4k,mode=000")
    else:
        status = libc().mount(b"/dev/null", place, None, ctypes.c_ulong(_BIND), None)
    if status < 0 and os.path.lexists(path):  # otherwise it was removed
        check(status, f"mount {path}")
    if status == 0:
        _set_attributes(place, 0, _READ_ONLY | _WITHOUT_DEVICES, 0)


def _set_read_only(path: bytes, *, below: bool, read_only: bool) -> None:
    values = (_READ_ONLY, 0) if read_only else (0, _READ_ONLY)
    _set_attributes(path, _BELOW if below else 0, *values)


def _set_attributes(path: bytes, flags: int, added: int, removed: int) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", added, removed, 0, 0))
    status = system_call(_MOUNT_SETATTR, _HERE, path, flags, attributes, 32)
    check(status, f"mount_setattr {os.fsdecode(path)}")


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


_SET_SECCOMP, _FILTER_MODE = 22, 2
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_FAST_OPEN = 0x20000000
_NEW_NAMESPACES = 0x7E020000
"""The flags of `clone` that create namespaces."""

_LOCAL, _INET, _INET6 = 1, 2, 10
_STREAM, _DATAGRAM, _PACKETS = 1, 2, 5
_TCP = 6

# x86-64, 64-bit ARM. These calls inspect other processes, change mounts or namespaces, use keyrings or the kernel.
_DENIED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_by_handle_at": (304, 265),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "settimeofday": (164, 170), "clock_settime": (227, 112),
    "io_uring_setup": (425, 425), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fspick": (433, 433), "pidfd_getfd": (438, 438), "mount_setattr": (442, 442),
}  # fmt: skip

# These calls change the modes, owners and times of files, which Landlock does not control.
_FILE_MODES = {
    "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None),
    "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fchmod": (91, 52), "fchown": (93, 55), "fsetxattr": (190, 7), "fremovexattr": (199, 16),
}  # fmt: skip

# System V IPC and message queues belong to all programs of this machine, unless a process has a namespace for them.
_SHARED_OBJECTS = {
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip

_USED = {
    "socket": (41, 198), "socketpair": (53, 199), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "clone": (56, 220), "clone3": (435, 435),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

Line = tuple[object, ...]


def is_supported() -> bool:
    """Whether there is a filter for this machine's architecture."""
    return os.uname().machine in _ARCHITECTURES


def filter_system_calls(*, has_network: bool, has_mounts: bool) -> None:
    """Filter the system calls of this process and its children. It needs `no_new_privs`.

    `has_network`: the process has a network and IPC objects of its own, in which sockets are harmless. `has_mounts`: it
    has its own read-only mounts; without them, changes of file modes and times have no effect.
    """
    program = assembled(_program(has_network=has_network, has_mounts=has_mounts))
    code = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    check(libc().prctl(_SET_SECCOMP, _FILTER_MODE, filter_, 0, 0), "seccomp")


def _program(*, has_network: bool, has_mounts: bool) -> list[Line]:
    column, architecture = _ARCHITECTURES[os.uname().machine]
    numbers = {name: row[column] for name, row in _USED.items()}
    calls = _DENIED if has_network else {**_DENIED, **_SHARED_OBJECTS}
    denied: list[Line] = [("if", row[column], "deny") for row in calls.values()]
    modes: list[Line] = [("if", row[column], "ignore") for row in _FILE_MODES.values() if row[column] is not None]
    kinds: list[Line] = [("if", kind, "allow") for kind in ((_STREAM, _DATAGRAM) if has_network else ())]
    return [
        ("load", 4), ("unless", architecture, "deny"),
        ("load", 0), ("from", 0x40000000, "deny"),
        ("if", numbers["socket"], "socket"), ("if", numbers["socketpair"], "pair"),
        ("if", numbers["sendto"], "fourth"), ("if", numbers["sendmmsg"], "fourth"), ("if", numbers["sendmsg"], "third"),
        ("if", numbers["clone"], "clone"), ("if", numbers["clone3"], "missing"),
        *denied, *([] if has_mounts else modes), ("goto", "allow"),
        ("label", "socket"), ("load", 16), ("if", _INET, "type"), ("unless", _INET6, "deny"),
        ("label", "type"), ("load", 24), ("and", 0xF), *kinds, ("unless", _STREAM, "deny"),
        ("load", 32), ("if", 0, "allow"), ("if", _TCP, "allow"), ("goto", "deny"),
        # Stream sockets of a pair stay connected to each other; datagram sockets could connect to any local socket.
        ("label", "pair"), ("load", 16), ("unless", _LOCAL, "deny"),
        ("load", 24), ("and", 0xF), ("if", _STREAM, "allow"), ("if", _PACKETS, "allow"), ("goto", "deny"),
        ("label", "third"), ("load", 32), ("goto", "flags"),
        ("label", "fourth"), ("load", 40),
        ("label", "flags"), ("with", _FAST_OPEN, "deny"), ("goto", "allow"),
        ("label", "clone"), ("load", 16), ("with", _NEW_NAMESPACES, "deny"),
        ("label", "allow"), ("return", _ALLOW),
        ("label", "deny"), ("return", _ERROR | errno.EACCES),
        ("label", "ignore"), ("return", _ERROR),
        # The flags of `clone3` are in memory, which a filter cannot read; C libraries use `clone` instead.
        ("label", "missing"), ("return", _ERROR | errno.ENOSYS),
    ]  # fmt: skip


def assembled(lines: list[Line]) -> bytes:
    """Assemble a filter to BPF code. Jumps are relative and go forward only."""
    places: dict[object, int] = {}
    steps: list[Line] = []
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
