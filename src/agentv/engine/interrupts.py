"""Run a coroutine that Ctrl-C, a signal or another thread can interrupt, wherever the caller is."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from agentv.errors import EXIT_INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Value = TypeVar("Value")


class InterruptibleLoop:
    """An event loop of its own for one coroutine: from plain code, or beside a running loop, as in a notebook."""

    def __init__(self) -> None:
        self.interrupted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._error: Exception | None = None

    def run(self, main: Coroutine[Any, Any, Value]) -> Value | None:
        """Return what the coroutine returns; None when it was interrupted. A second Ctrl-C ends the process."""
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return self._run_in_thread(main)
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            task = self._loop.create_task(main)
            self._task = task
            if self.interrupted:
                task.cancel()
            try:
                with interruptible(self.interrupt):
                    return self._loop.run_until_complete(task)
            except asyncio.CancelledError:
                if self._error is not None:
                    raise self._error from None
                if not self.interrupted:
                    raise
                return None
            finally:
                self._loop = None

    def interrupt(self) -> None:
        """Cancel the coroutine; may be called from another thread, and before it has started."""
        self.interrupted = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop, from its own thread. An exception ends the coroutine."""
        assert self._loop is not None
        self._loop.call_soon(self._call, function)

    def _call(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:
            self._error = self._error or error
            assert self._task is not None
            self._task.cancel()

    def _run_in_thread(self, main: Coroutine[Any, Any, Value]) -> Value | None:
        """Run beside a loop that this thread is blocking. Ctrl-C reaches this thread and not the one that runs."""
        returned: list[Value | None] = []
        raised: list[BaseException] = []

        def in_thread() -> None:
            try:
                returned.append(self.run(main))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=in_thread, name="agentv-run")
        with interruptible(self.interrupt, (signal.SIGINT,)):
            thread.start()
            try:
                thread.join()
            except BaseException:
                self.interrupt()
                thread.join()
                raise
        if raised:
            raise raised[0]
        return returned[0]


@contextmanager
def interruptible(interrupt: Callable[[], None], numbers: tuple[signal.Signals, ...] = _SIGNALS) -> Iterator[None]:
    """Turn Ctrl-C and its like into a call, a second one into the end of the process.

    Outside the main thread signals are not ours to handle.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(*_: object) -> None:
        # Not a handler of the loop's own: that one waits while a user's function keeps the loop busy.
        nonlocal asked
        if asked:
            os._exit(EXIT_INTERRUPTED)
        asked = True
        interrupt()

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
