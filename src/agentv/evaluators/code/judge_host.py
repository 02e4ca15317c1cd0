"""What the judges of one run share, ended with it: warm processes, a proxy to models. Built where the jobs run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentv.model.judgement import Judgement
from agentv.settings.environment import Environment, judge_environment

if TYPE_CHECKING:
    import asyncio

    from agentv.evaluators.code.model_proxy import ModelProxy
    from agentv.evaluators.pool.pool import WorkerPool


class JudgeHost:
    """Starts what judges need when one needs it, and ends it. `targets` are those that a judge may ask by name."""

    def __init__(self, environment: Environment, targets: tuple[str, ...] = ()) -> None:
        self._environment = environment
        self._targets = targets
        self._pool: WorkerPool | None = None
        self._proxy: asyncio.Task[ModelProxy] | None = None

    @property
    def pool(self) -> WorkerPool:
        """Processes for Python judges."""
        if self._pool is None:
            from agentv.evaluators.pool.pool import WorkerPool  # late: it needs asyncio, and few runs need it

            self._pool = WorkerPool(judge_environment(self._environment))
        return self._pool

    async def proxy(self) -> ModelProxy:
        """The way to models; the first who asks starts it."""
        import asyncio  # late: as above

        if self._proxy is None:
            self._proxy = asyncio.ensure_future(self._started())
        return await asyncio.shield(self._proxy)

    async def aclose(self) -> None:
        """Ends everything."""
        pool, self._pool = self._pool, None
        proxy, self._proxy = self._proxy, None
        try:
            if pool is not None:
                await pool.aclose()
        finally:
            if proxy is not None:
                await (await proxy).aclose()

    async def _started(self) -> ModelProxy:
        from agentv.evaluators.code.model_proxy import ModelProxy  # late: an HTTP server takes a moment to import

        proxy = ModelProxy(self._targets)
        await proxy.start()
        return proxy


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
