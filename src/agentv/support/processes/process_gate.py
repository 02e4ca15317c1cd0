"""Limit concurrent programs and connections to what the number of open files allows."""

import asyncio
import sys
from collections import deque
from contextlib import suppress
from weakref import WeakKeyDictionary

_MOST_DESCRIPTORS = 16_384
_OTHER_DESCRIPTORS, _DESCRIPTORS_EACH = 32, 8


def raise_descriptor_limit() -> int:
    """Raise the limit of open files of this process as far as allowed, and return it."""
    if sys.platform == "win32":
        return _MOST_DESCRIPTORS
    import resource  # late: not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_DESCRIPTORS
    limit = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft < limit:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def most_connections(targets: int) -> int:
    """Return how many connections each of some targets may have. Some files stay free: closed ones end later."""
    return max(1, (raise_descriptor_limit() - _OTHER_DESCRIPTORS) * 3 // (4 * max(1, targets)))


class ProcessGate:
    """Lets programs start while there are files for their pipes. One that has to wait is not a failure of the target.

    Used in one event loop.
    """

    def __init__(self) -> None:
        self._most = max(1, (raise_descriptor_limit() - _OTHER_DESCRIPTORS) // _DESCRIPTORS_EACH)
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait until a program may start."""
        while self._running >= self._most:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()  # the turn is another's
                raise
        self._running += 1

    def leave(self) -> None:
        """Let the next program start."""
        self._running -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, ProcessGate] = WeakKeyDictionary()


def gate_of(loop: asyncio.AbstractEventLoop) -> ProcessGate:
    """Return the gate of an event loop."""
    if (gate := _gates.get(loop)) is None:
        gate = _gates[loop] = ProcessGate()
    return gate
