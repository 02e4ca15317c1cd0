"""Runs jobs in this process: a fixed number of workers pulling from one iterator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

JobType = TypeVar("JobType")
ResultType = TypeVar("ResultType")

_TURN_S = 0.02
"""How long a worker may go on without a pause: the loop has signals and timers to see to."""


class LocalExecutor:
    """At most `workers` jobs at once. A result is handed on by the worker that made it, before its next job."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    async def run(
        self,
        jobs: Iterator[JobType],
        work: Callable[[JobType], Awaitable[ResultType]],
        emit: Callable[[ResultType], None],
    ) -> None:
        """Returns when all jobs are done. Cancelled, it cancels what is in flight and lets it clean up."""

        async def pull() -> None:
            resumed = time.monotonic()
            for job in jobs:
                emit(await work(job))
                if time.monotonic() - resumed > _TURN_S:
                    await asyncio.sleep(0)
                    resumed = time.monotonic()

        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(pull())
