"""Run jobs in this process: tasks pulling from one iterator."""

from __future__ import annotations

import asyncio
import time

from agentv.executors.executor import TURN_S, Emit, ExecutorOptions, Jobs, Load, LocalLimits, Worker, WorkSpec
from agentv.support.byte_gate import HeldBytes


class LocalExecutor:
    """Runs jobs concurrently in one event loop. A task emits its result before it takes the next job."""

    is_remote = False

    def __init__(self, options: ExecutorOptions) -> None:  # noqa: ARG002  # nothing to configure
        self.limits = LocalLimits()

    async def run(self, spec: WorkSpec, jobs: Jobs, emit: Emit) -> tuple[str, ...]:
        """Run every job; see `agentv.executors.executor.Executor`."""
        worker = spec.open(self.limits)
        try:
            async with asyncio.TaskGroup() as group:
                _Pool(worker, jobs, emit, self.limits).start(group)
        finally:
            await worker.aclose()
            self.limits.close()
        return worker.missing

    def load(self) -> Load:
        """Return the load of this process."""
        return self.limits.load()


class _Pool:
    """A task for each slot, and more while slots are lent. Each runs jobs one after another until none are left.

    When the run stops, tasks whose job has not made a call yet are cancelled: the job has no record.
    """

    def __init__(self, worker: Worker, jobs: Jobs, emit: Emit, limits: LocalLimits) -> None:
        self._worker = worker
        self._jobs = jobs
        self._emit = emit
        self._limits = limits
        self._slots = limits.slots
        self._tasks = 0
        self._is_exhausted = False
        self._emitted = asyncio.Event()
        self._waits = False  # whether a job waits for others

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the tasks, and others when slots are lent."""
        self._slots.total = self._worker.capacity

        def fill() -> None:
            for _ in range(0 if self._is_exhausted else self._slots.total + self._slots.lent - self._tasks):
                self._tasks += 1
                group.create_task(self._pull())

        self._slots.changed = fill
        fill()

    async def _pull(self) -> None:
        worker, emit, slots = self._worker, self._emit, self._slots
        resumed, memory = time.monotonic(), HeldBytes(self._limits.memory)
        try:
            for job in self._jobs:
                if job is None:
                    self._waits = True
                    self._emitted.clear()
                    await self._emitted.wait()
                    continue
                if emit(await worker.run(job)):
                    self._limits.stop()
                if self._waits:
                    self._emitted.set()
                if memory.size:
                    await memory.end_job()
                if self._tasks > slots.total and self._tasks - slots.lent > slots.total:
                    return
                if time.monotonic() - resumed > TURN_S:
                    await asyncio.sleep(0)
                    resumed = time.monotonic()
            self._is_exhausted = True
        finally:
            memory.release()
            self._tasks -= 1
