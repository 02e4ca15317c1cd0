"""Hold back target calls whose answers would wait for a judge that is down."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentv.executors.executor import Limits
from agentv.executors.limiter import EndpointLimit


class JudgeHold:
    """Holds back new jobs while a judge is down and answers wait for it: each answer is paid for.

    The answers that wait show when the judge is back. `judges` are the limits of the run's judges.
    """

    def __init__(self, judges: Sequence[EndpointLimit], limits: Limits) -> None:
        self._judges = judges
        self._scored = 0
        self._waiting: list[asyncio.Future[None]] = []
        limits.on_stop(self._drop)

    @property
    def is_closed(self) -> bool:
        """Whether new jobs have to wait."""
        return self._scored > 0 and any(judge.lane.suspect_since is not None for judge in self._judges)

    async def wait(self) -> None:
        """Wait until new jobs may start. Cancelled if the run stops."""
        while self.is_closed:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def __enter__(self) -> None:
        """Begin to score an answer."""
        self._scored += 1

    def __exit__(self, *_: object) -> None:
        """End to score an answer, which may show that the judge is back."""
        self._scored -= 1
        if self._waiting and not self.is_closed:
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                if not turn.done():
                    turn.set_result(None)

    def _drop(self) -> None:
        for turn in self._waiting:
            turn.cancel()
        self._waiting.clear()
