"""An event loop whose clock pauses while the process is stopped, so that answers are read before timeouts expire.

A process is stopped by Ctrl-Z, SIGSTOP, a paused container or code that blocks the loop. What arrived meanwhile is read
in the first turns of the loop after that.
"""

import asyncio
import selectors
import sys
import time

_STOPPED_S = 1.0
"""A turn that takes this much longer than it should was interrupted by a stop."""


class _StopDetector(selectors.DefaultSelector):
    """A selector that measures how long the process was stopped, while it waited or between two waits."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped_s = 0.0
        self._returned = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began = time.monotonic()
        if began - self._returned > _STOPPED_S:
            self.stopped_s += began - self._returned
        events = super().select(timeout)
        self._returned = time.monotonic()
        if timeout is not None and self._returned - began > max(0.0, timeout) + _STOPPED_S:
            self.stopped_s += self._returned - began
        return events


class StoppableLoop(asyncio.SelectorEventLoop):
    """An event loop that does not count the time while the process was stopped."""

    def __init__(self) -> None:
        self._detector = _StopDetector()
        super().__init__(self._detector)

    def time(self) -> float:
        """Return the time in seconds, without that of stops."""
        return time.monotonic() - self._detector.stopped_s


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop that tolerates stops. Windows has no signals that stop a process."""
    return asyncio.new_event_loop() if sys.platform == "win32" else StoppableLoop()
