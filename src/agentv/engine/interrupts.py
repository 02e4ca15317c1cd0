"""Run a coroutine that Ctrl-C, a signal or another thread can interrupt."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from agentv.errors import EXIT_INTERRUPTED
from agentv.support.processes.event_loop import new_event_loop

_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *(() if _HANGUP is None else (_HANGUP,)))
Value = TypeVar("Value")


class InterruptibleLoop:
    """Runs one coroutine in its own event loop, even if a loop is already running, as in a notebook."""

    def __init__(self) -> None:
        self.interrupted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._error: Exception | None = None

    def run(self, main: Coroutine[Any, Any, Value]) -> Value | None:
        """Return the result of the coroutine; None if it was interrupted. A second Ctrl-C ends the process."""
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return self._run_in_thread(main)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
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
        """Cancel the coroutine; may be called from any thread, and before it has started."""
        self.interrupted = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop is closed: the coroutine has already ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop, from its own thread. An exception ends the coroutine."""
        assert self._loop is not None
        self._loop.call_soon(self._call, function)

    def call_from_thread(self, function: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop, from any thread. An exception ends the coroutine."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the coroutine has already ended
                loop.call_soon_threadsafe(self._call, function)

    def _call(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:
            self._error = self._error or error
            assert self._task is not None
            self._task.cancel()

    def _run_in_thread(self, main: Coroutine[Any, Any, Value]) -> Value | None:
        """Run in a thread while this one, whose event loop is busy, waits. Ctrl-C only reaches this thread."""
        with ThreadPoolExecutor(1, "agentv-run") as pool, interruptible(self.interrupt, (signal.SIGINT,)):
            running = pool.submit(self.run, main)
            try:
                return running.result()
            finally:
                if not running.done():
                    self.interrupt()


@contextmanager
def call_later(seconds: float | None, function: Callable[[], None]) -> Iterator[None]:
    """Call a function in another thread if the block takes longer than this; None for any time."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def interruptible(interrupt: Callable[[], None], numbers: tuple[signal.Signals, ...] = _SIGNALS) -> Iterator[None]:
    """Call `interrupt` on the first signal, and end the process on the second.

    Outside the main thread, signals cannot be handled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    was_interrupted = False

    def handle(*_: object) -> None:
        # Not an event-loop handler, which would wait while a user's function blocks the loop.
        nonlocal was_interrupted
        if was_interrupted:
            os._exit(EXIT_INTERRUPTED)
        was_interrupted = True
        interrupt()

    ignored = [] if _HANGUP is None or signal.getsignal(_HANGUP) is not signal.SIG_IGN else [_HANGUP]  # by `nohup`
    before = {number: signal.signal(number, handle) for number in numbers if number not in ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def first_error(error: BaseException) -> BaseException:
    """Return the first exception of a group: its tasks end for the same reason."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
