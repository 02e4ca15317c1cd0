"""Ctrl-C and its like, turned into a call, wherever a run goes on: in a loop of its own or beside somebody else's."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from agentv.errors import EXIT_INTERRUPTED

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(call: Callable[[], None]) -> Iterator[None]:
    """Inside the running loop, Ctrl-C means this call, and a second one the end of the process, whatever is in flight.

    Outside the main thread signals are not ours to handle.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    asked = False

    def handle(*_: object) -> None:
        # Not a handler of the loop's own: that one waits while somebody's function keeps the loop busy.
        nonlocal asked
        if asked:
            os._exit(EXIT_INTERRUPTED)
        asked = True
        loop.call_soon_threadsafe(call)

    before = {number: signal.signal(number, handle) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def in_a_loop(main: Callable[[], Coroutine[Any, Any, None]], interrupt: Callable[[], None]) -> None:
    """Runs a coroutine to its end, from plain code or from inside somebody's running loop, as in a notebook.

    `interrupt` makes it end early: beside a running loop, Ctrl-C reaches this thread and not the one that runs.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main())
        return
    failed: list[BaseException] = []

    def in_thread() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=in_thread, name="agentv-run")
    with _instead_of_the_loops_own(interrupt):
        thread.start()
        try:
            thread.join()
        except BaseException:
            interrupt()
            thread.join()
            raise
    if failed:
        raise failed[0]


@contextmanager
def _instead_of_the_loops_own(interrupt: Callable[[], None]) -> Iterator[None]:
    """While a loop is blocked by us, its own way of handling Ctrl-C, to cancel its task, would have no effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupt())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def git_commit(root: str) -> str | None:
    """The hash of the commit that is checked out; None where there is no git, or no commit yet."""
    try:
        command = ["git", "-C", root, "rev-parse", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
