"""Keep child processes from reading this process's environment and memory. Linux only; elsewhere nothing changes.

The environment that a process was started with is readable by other processes of the same user in
`/proc/PID/environ`, whatever variables its children are given.
"""

import os
import sys
from contextlib import suppress

MARK = "AGENTV_PROCESS"
"""The variable that identifies a user's program and all its descendants, see `watchdog`."""

_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48
"""The fields of `/proc/PID/stat` with the addresses of the initial environment, counted after the program's name."""

_SET_DUMPABLE = 4

STARTUP_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", MARK)
_STARTUP_PREFIXES = ("PYTHON", "LD_", "DYLD_", "COVERAGE_")

_is_own = False
_is_hidden = False


def claim_process() -> None:
    """Declare that this process belongs to agentv, not to a program that calls it, so that it may be locked."""
    global _is_own
    _is_own = True


def startup_environment() -> dict[str, str]:
    """Return the variables that a process of agentv needs to start. It receives the others over a socket."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in STARTUP_VARIABLES or name.startswith(_STARTUP_PREFIXES)
    }


def hide_environment() -> None:
    """Erase the initial environment from memory, once; call it before starting a user's program.

    `os.environ` stays as it is. A process of agentv is also locked: processes of the same user without special
    privileges cannot inspect its memory, and it leaves no core dumps.
    """
    global _is_hidden
    if sys.platform != "linux" or _is_hidden:
        return
    _is_hidden = True
    with suppress(OSError, ValueError, IndexError):
        _erase_environment()
    if _is_own:
        import ctypes  # late: slow to import, and many runs start no program

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def _erase_environment() -> None:
    if sys.platform != "linux":
        return
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[_ENVIRONMENT_START]), int(fields[_ENVIRONMENT_END])
    for name, value in os.environb.items():
        os.putenv(name, value)  # copies it, so that the C library no longer uses the initial environment
    mark = os.environb.get(MARK.encode())
    content = b"" if mark is None else MARK.encode() + b"=" + mark  # the watchdog of an outer run looks for it
    memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(memory, content.ljust(end - start, b"\0")[: end - start], start)
    finally:
        os.close(memory)
