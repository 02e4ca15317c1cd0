"""Wait for the end of a process in an event loop."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any


async def wait_uncancelled(future: asyncio.Future[Any], timeout_s: float) -> None:
    """Wait for a future even if cancelled meanwhile, then re-raise. For short waits that must not be cut off."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    cancelled: asyncio.CancelledError | None = None
    while not future.done() and (left_s := deadline - loop.time()) > 0:
        try:
            await asyncio.wait([future], timeout=left_s)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def when_ended(process: subprocess.Popen[bytes], call: Callable[[], None]) -> Callable[[], None]:
    """Schedule a callback for the end of a process. Returns a function that unregisters it.

    Where the system allows it, the process is not reaped, so that its id and its group's id are not reused.
    """
    loop = asyncio.get_running_loop()
    try:
        if sys.platform != "linux":
            raise OSError("only Linux has process descriptors")
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):

        def wait() -> None:
            process.wait()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(call)

        # Without pidfd (not Linux, or an old kernel), wait in a thread.
        Thread(target=wait, daemon=True).start()
        return lambda: None

    def stop() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            descriptor = -1

    def ended() -> None:
        stop()
        call()

    loop.add_reader(descriptor, ended)
    return stop
