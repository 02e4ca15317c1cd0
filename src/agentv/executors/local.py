"""Run jobs in this process: a fixed number of tasks pulling from one iterator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from agentv.executors.executor import TURN_S, Emit, ExecutorOptions, Load, LocalLimits, Worker, WorkSpec
from agentv.model.job import Job


class LocalExecutor:
    """Runs jobs concurrently in one event loop. A task emits its result before it takes the next job."""

    is_remote = False

    def __init__(self, options: ExecutorOptions) -> None:  # noqa: ARG002  # nothing to configure
        self._limits = LocalLimits()

    async def run(self, spec: WorkSpec, jobs: Iterator[Job], emit: Emit) -> tuple[str, ...]:
        """Run every job; see `agentv.executors.executor.Executor`."""
        worker = spec.open(self._limits)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(worker.capacity):
                    group.create_task(pull(worker, jobs, emit))
        finally:
            await worker.aclose()
        return worker.missing

    def load(self) -> Load:
        """Return the load of this process."""
        return self._limits.load()


async def pull(worker: Worker, jobs: Iterator[Job], emit: Emit) -> None:
    """Run jobs one after another until none are left."""
    resumed = time.monotonic()
    for job in jobs:
        emit(await worker.run(job))
        if time.monotonic() - resumed > TURN_S:
            await asyncio.sleep(0)
            resumed = time.monotonic()
