"""Wait for another process, thread or task. No test sleeps for a fixed time."""

import asyncio
import subprocess
import threading
import time
from pathlib import Path

HANGS = "tail -f /dev/null"
"""A command that never ends on its own."""


def wait_until(condition, process=None, within_s=200.0):
    """Wait until a condition is true. Fail after a timeout, or if `process` ends before."""
    pause, deadline = threading.Event(), time.monotonic() + within_s
    while not condition():
        assert process is None or process.poll() is None or condition(), process.communicate()
        assert time.monotonic() < deadline, "timed out"
        pause.wait(0.002)


async def wait_until_async(condition, within_s=200.0):
    """Wait until a condition is true without blocking the event loop."""
    await asyncio.to_thread(wait_until, condition, None, within_s)


async def let_others_run(turns=1):
    """Let the other tasks of the event loop run."""
    for _ in range(turns):
        await asyncio.sleep(0)


def words_in(path):
    """Return the words a program has written to a file so far."""
    return path.read_text().split() if path.exists() else []


def whole_lines(path):
    """Return the number of complete lines in a file."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def still_running(pids, within_s=200.0):
    """Return the processes that still run after a while; a killed process takes a moment to end."""
    try:
        wait_until(lambda: not any(map(_runs, pids)), within_s=within_s)
    except AssertionError:
        return [pid for pid in pids if _runs(pid)]
    return []


def _runs(pid):
    """Whether a process is running; a zombie is not."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(found.stdout.strip()) and not found.stdout.strip().startswith("Z")
