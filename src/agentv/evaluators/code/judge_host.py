"""Resources that the judges of one run share and that end with it: warm processes, a proxy to models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentv.model.job import Judgement
from agentv.settings.environment import Environment, judge_environment

if TYPE_CHECKING:
    from agentv.evaluators.code.model_proxy import ModelProxy
    from agentv.evaluators.code.worker_pool import WorkerPool


class JudgeHost:
    """Starts each resource when a judge first needs it. `targets` are the names that a judge may ask for."""

    def __init__(self, environment: Environment, targets: tuple[str, ...] = ()) -> None:
        self._environment = environment
        self._targets = targets
        self._pool: WorkerPool | None = None
        self._proxy: asyncio.Task[ModelProxy] | None = None

    @property
    def pool(self) -> WorkerPool:
        """Processes for Python judges."""
        if self._pool is None:
            from agentv.evaluators.code.worker_pool import WorkerPool  # late: few runs need it

            self._pool = WorkerPool(judge_environment(self._environment))
        return self._pool

    async def proxy(self) -> ModelProxy:
        """The proxy to models; the first call starts it."""
        if self._proxy is None:
            self._proxy = asyncio.ensure_future(self._start_proxy())
        return await asyncio.shield(self._proxy)

    async def aclose(self) -> None:
        """End everything."""
        pool, self._pool = self._pool, None
        proxy, self._proxy = self._proxy, None
        try:
            if pool is not None:
                await pool.aclose()
        finally:
            if proxy is not None:
                await (await proxy).aclose()

    async def _start_proxy(self) -> ModelProxy:
        from agentv.evaluators.code.model_proxy import ModelProxy  # late: an HTTP server is slow to import

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
