"""What the judges of one run share and is ended with it: warm processes. Built where the jobs run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentv.environment import Environment
from agentv.evaluators.program import judge_environment

if TYPE_CHECKING:
    from agentv.evaluators.pool.pool import WorkerPool
    from agentv.model.judgement import Judgement


class JudgeHost:
    """Starts what judges need when one needs it, and ends it."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._pool: WorkerPool | None = None

    @property
    def pool(self) -> WorkerPool:
        """Processes for Python judges."""
        if self._pool is None:
            from agentv.evaluators.pool.pool import WorkerPool  # late: it needs asyncio, and few runs need it

            self._pool = WorkerPool(judge_environment(self._environment))
        return self._pool

    async def aclose(self) -> None:
        """Ends everything."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()


@asynccontextmanager
async def host_of(judgement: Judgement) -> AsyncIterator[JudgeHost]:
    """The run's own host; outside a run, one for this judgement alone."""
    if isinstance(judgement.host, JudgeHost):
        yield judgement.host
        return
    host = JudgeHost(judgement.environment)
    try:
        yield host
    finally:
        await host.aclose()
