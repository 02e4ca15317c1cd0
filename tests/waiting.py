"""Wait for what another process, thread or task is about to do. No test sleeps for a fixed time."""

import asyncio
import subprocess
import threading
import time
from pathlib import Path

HANGS = "tail -f /dev/null"
"""A command that never ends by itself."""


def wait_until(condition, process=None, within_s=60.0):
    """Returns once the condition holds. Fails when the time is up, or when `process` ended before."""
    pause, deadline = threading.Event(), time.monotonic() + within_s
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(0.002)


async def wait_until_async(condition, within_s=60.0):
    """The same, while the event loop goes on."""
    await asyncio.to_thread(wait_until, condition, None, within_s)


async def let_others_run(turns=1):
    """Gives the other tasks of the event loop so many turns."""
    for _ in range(turns):
        await asyncio.sleep(0)


def words_in(path):
    """The words that a program has written into a file so far."""
    return path.read_text().split() if path.exists() else []


def whole_lines(path):
    """How many whole lines a file has by now."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def still_running(pids, within_s=10.0):
    """Those of some processes that run on after a while: a killed one is not gone the same instant."""
    try:
        wait_until(lambda: not any(map(_runs, pids)), within_s=within_s)
    except AssertionError:
        return [pid for pid in pids if _runs(pid)]
    return []


def _runs(pid):
    """Whether a process runs; one that has ended and was not waited for yet does not."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(found.stdout.strip()) and not found.stdout.strip().startswith("Z")
