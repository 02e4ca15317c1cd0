"""The executor seam: a spec and jobs go in as plain data, results come out. Workers are built where they run."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar, Protocol

import msgspec

from agentv.executors.limiter import Limiter
from agentv.model.job import Job
from agentv.model.result import Result

Emit = Callable[[Result], None]

TURN_S = 0.02
"""How long a task may run without a pause: the event loop has signals and timers to handle."""


class EndpointLimit(Protocol):
    """The limit of one endpoint, as a call sees it; see `agentv.executors.limiter.Limiter`."""

    def try_enter(self) -> bool: ...

    async def enter(self) -> None: ...

    def leave(
        self, *, ok: bool = ..., refused: bool = ..., overloaded: bool = ..., retry_after_s: float | None = ...
    ) -> None: ...


class Limits(Protocol):
    """Where a worker gets the limits of its endpoints. All workers of a run share them, and have `cores` together."""

    @property
    def cores(self) -> int: ...

    def limit(self, endpoint: str, start: int, most: int) -> EndpointLimit: ...


class Worker(Protocol):
    """Runs jobs in one process. `capacity` is how many jobs keep it busy, `missing` what a replay did not have."""

    @property
    def capacity(self) -> int: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    def run(self, job: Job) -> Awaitable[Result]: ...

    async def aclose(self) -> None: ...


class WorkSpec(Protocol):
    """Everything a worker is built from: plain data that can be pickled."""

    def open(self, limits: Limits) -> Worker: ...

    def failed(self, job: Job, message: str) -> Result:
        """Return the record of a job that no worker could run."""
        ...


class ExecutorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about where jobs run."""

    processes: int | None = None
    ray_address: str | None = None


class Load(msgspec.Struct, frozen=True):
    """What the progress line shows: calls allowed in flight, and the longest pause an endpoint asked for."""

    concurrency: int = 0
    waits_s: float = 0.0


class Executor(Protocol):
    """Runs every job once. `load` may be called from another thread.

    `is_remote`: its workers run on other machines, so that their spec has no secrets in it.
    """

    is_remote: ClassVar[bool]

    def __init__(self, options: ExecutorOptions) -> None: ...

    async def run(self, spec: WorkSpec, jobs: Iterator[Job], emit: Emit) -> tuple[str, ...]:
        """Return when every job has been emitted: what replays did not have, which is an error of the run.

        Jobs are pulled as workers become free, and not before the targets of a worker are open. Cancelling it
        cancels the jobs in flight and lets them clean up.
        """
        ...

    def load(self) -> Load: ...


class LocalLimits:
    """The limiters of one process, by endpoint."""

    def __init__(self) -> None:
        self.cores = os.cpu_count() or 1
        self._limiters: dict[str, Limiter] = {}

    def limit(self, endpoint: str, start: int, most: int) -> Limiter:
        """Return the limiter of an endpoint; the first call decides its size."""
        limiter = self._limiters.get(endpoint)
        if limiter is None:
            limiter = self._limiters[endpoint] = Limiter(start, most)
        return limiter

    def load(self) -> Load:
        """Return the load over all endpoints."""
        limiters = tuple(self._limiters.values())
        waits_s = max((limiter.closed_for_s for limiter in limiters), default=0.0)
        return Load(sum(limiter.limit for limiter in limiters), waits_s)
