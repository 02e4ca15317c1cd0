"""The filter of system calls for isolated programs, compiled to BPF."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from agentv.sandbox.kernel import check, libc

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
