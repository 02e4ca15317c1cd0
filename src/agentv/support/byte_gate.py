"""Bound the memory of large answers: each is counted until its job ends, and others wait before they are read."""

import asyncio
from collections import deque
from contextvars import ContextVar

LARGE_BYTES = 1 << 20
"""Smaller answers are not counted."""

UNKNOWN_BYTES = 16 << 20
"""The size assumed for a large answer that does not state its size."""

_MOST_BYTES = 48 << 20
_STALLED_S = 10.0


class ByteGate:
    """The bytes of large answers in one process. Used in one event loop.

    An answer larger than the limit is read when there is no other. If no answer was admitted for ten seconds, the next
    one is, because the jobs that hold memory may wait for the calls of those that wait.
    """

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._used = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of answers and jobs that wait; may be read from another thread."""
        return len(self._waiting)

    async def take(self, size: int) -> None:
        """Wait until this many bytes may be read, first come, first served."""
        if self._waiting or not self._has_room(size):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((turn, size))
            self._watch()
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.give_back(size)
                raise
        else:
            self._used += size

    def add(self, size: int) -> None:
        """Count bytes that were read already."""
        self._used += size

    def give_back(self, size: int) -> None:
        """Let waiting answers be read."""
        self._used -= size
        while self._waiting and (self._waiting[0][0].done() or self._has_room(self._waiting[0][1])):
            self._admit_next()

    def _has_room(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._most

    def _admit_next(self) -> None:
        turn, size = self._waiting.popleft()
        if not turn.done():
            self._used += size
            turn.set_result(None)
        self._watch()

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_STALLED_S, self._admit_next) if self._waiting else None


class HeldBytes:
    """The bytes of the large answers of one job, including the responses of its judges."""

    def __init__(self, gate: ByteGate) -> None:
        self._gate = gate
        self.size = 0
        _held.set(self)

    async def take(self, size: int) -> None:
        """Count bytes. Only the first answer of a job waits: a job that holds memory must be able to end."""
        if self.size:
            self._gate.add(size)
        else:
            await self._gate.take(size)
        self.size += size

    async def end_job(self) -> None:
        """Give all bytes back, and wait with the next job until the answers that wait have been read."""
        self.release()
        if self._gate.waiting:
            await self._gate.take(0)

    def release(self) -> None:
        """Give all bytes back."""
        size, self.size = self.size, 0
        self._gate.give_back(size)


_held: ContextVar[HeldBytes | None] = ContextVar("held_bytes", default=None)


async def hold_bytes(size: int) -> None:
    """Wait for memory, and count the bytes of an answer until its job ends. Small answers do not count."""
    gate = _held.get()
    if gate is not None and size > LARGE_BYTES:
        await gate.take(size)
