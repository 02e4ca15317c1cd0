"""Event loops with a virtual clock: minutes pass in milliseconds, and deterministically."""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from agentv.support.processes import event_loop
from waiting import wait_until


class _Jumping(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Jumping()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on the virtual clock, which is `asyncio.get_running_loop().time`."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


async def passes(seconds: float) -> None:
    """Let virtual time pass."""
    await asyncio.sleep(seconds)


class _SkippingLoop(asyncio.SelectorEventLoop):
    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s

    def skip(self, seconds: float) -> None:
        self.skipped_s += seconds


@contextmanager
def skipped_ahead(*moments: Callable[[], bool], seconds: float = 3600.0) -> Iterator[None]:
    """Skip the clock of new event loops ahead at each moment: a long timeout then ends, on any machine, and only then.

    A moment is a condition, such as "the program has started". They are waited for one after the other.
    """
    loops: list[_SkippingLoop] = []
    has_ended = threading.Event()

    def new_loop() -> _SkippingLoop:
        loops.append(_SkippingLoop())
        return loops[-1]

    def skip_at_each_moment() -> None:
        for moment in moments:
            wait_until(lambda moment=moment: has_ended.is_set() or moment())
            for loop in loops:
                with suppress(RuntimeError):  # it is closed
                    loop.call_soon_threadsafe(loop.skip, seconds)

    skipping = threading.Thread(target=skip_at_each_moment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.events, "new_event_loop", new_loop)
        patch.setattr(asyncio, "new_event_loop", new_loop)
        patch.setattr(event_loop, "StoppableLoop", new_loop)
        skipping.start()
        try:
            yield
        finally:
            has_ended.set()
            skipping.join()
