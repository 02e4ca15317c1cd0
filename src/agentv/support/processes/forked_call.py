"""Run a function in a forked process, with limits on its time, its memory and the size of its result.

Native code that runs out of memory or stack ends its process, and nothing in that process can prevent it. A forked
process needs no protocol: it has the function and its arguments already. On Windows, a new process gets them pickled;
its memory is not limited.
"""

import faulthandler
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

MAX_SECONDS = 5.0
MAX_EXTRA_BYTES = 512 * 1024 * 1024
"""Memory that the forked process may use in addition to what it starts with."""
MAX_RESULT_BYTES = 64 * 1024 * 1024

_START_S = 10.0
"""Additional time for a new process to start, on Windows."""
_CALL = "import sys; from agentv.support.processes import forked_call; forked_call.answer_call(int(sys.argv[1]))"


class LimitExceeded(Exception):
    """A call that exceeded a limit. The message is a phrase: `takes longer than 5 s`."""


class CallLimits(NamedTuple):
    """The limits of a call; the usual ones for those that are None."""

    seconds: float | None = None
    extra_bytes: int | None = None
    result_bytes: int | None = None


def forked_call(function: Callable[[], bytes], limits: CallLimits = CallLimits()) -> bytes:  # noqa: B008 - immutable
    """Call a function in a forked process and return its result. Raises LimitExceeded."""
    limits = CallLimits(
        MAX_SECONDS if limits.seconds is None else limits.seconds,
        MAX_EXTRA_BYTES if limits.extra_bytes is None else limits.extra_bytes,
        MAX_RESULT_BYTES if limits.result_bytes is None else limits.result_bytes,
    )
    if sys.platform == "win32":
        return _spawned_call(pickle.dumps(function), limits)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns about other threads. The child runs none of their code, and never returns to the caller.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _answer(function, writer, limits.extra_bytes or 0)
    os.close(writer)
    try:
        return _received(reader, limits)
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _spawned_call(function: bytes, limits: CallLimits) -> bytes:
    import subprocess  # late: only needed on Windows

    seconds, extra_bytes, result_bytes = (limit or 0 for limit in limits)
    command = [sys.executable, "-P", "-c", _CALL, str(extra_bytes)]
    try:
        ended = subprocess.run(command, input=function, capture_output=True, timeout=_START_S + seconds, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise LimitExceeded(f"takes longer than {seconds:g} s") from None
    if len(ended.stdout) > result_bytes:
        raise LimitExceeded(f"produces more than {result_bytes // 2**20:g} MiB")
    return _result(ended.stdout, extra_bytes)


def answer_call(extra_bytes: int) -> None:
    """Call the function that is pickled in stdin, and write its result to stdout."""
    with suppress(ImportError):
        _limit_memory(extra_bytes)
    sys.stdout.buffer.write(b"+" + pickle.load(sys.stdin.buffer)())  # noqa: S301 - from the process that started this one


def _answer(function: Callable[[], bytes], writer: int, extra_bytes: int) -> None:
    """Write the result and end the process, in the child."""
    try:
        faulthandler.disable()
        _limit_memory(extra_bytes)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # native code reports on stderr that it ran out of memory
            os.dup2(nothing, stream)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        result = b"+" + function()
        while result:
            result = result[os.write(writer, result) :]
    finally:
        os._exit(0)


def _limit_memory(extra_bytes: int) -> None:
    import resource  # late: not on all systems

    with suppress(OSError, ValueError), open("/proc/self/statm", "rb") as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = used + extra_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _received(reader: int, limits: CallLimits) -> bytes:
    seconds, extra_bytes, result_bytes = (limit or 0 for limit in limits)
    deadline = time.monotonic() + seconds
    pieces: list[bytes] = []
    size = 0
    while True:
        timeout = deadline - time.monotonic()
        if timeout <= 0 or not select.select([reader], [], [], timeout)[0]:
            raise LimitExceeded(f"takes longer than {seconds:g} s")
        if not (piece := os.read(reader, 1 << 20)):
            break
        pieces.append(piece)
        size += len(piece)
        if size > result_bytes:
            raise LimitExceeded(f"produces more than {result_bytes // 2**20:g} MiB")
    return _result(b"".join(pieces), extra_bytes)


def _result(whole: bytes, extra_bytes: float) -> bytes:
    if not whole.startswith(b"+"):
        raise LimitExceeded(f"is nested too deeply, or needs more than {extra_bytes // 2**20:g} MiB of memory")
    return whole[1:]
