"""Resources shared by the judges of one run: warm processes, threads and a model proxy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from agentv.model.environment import Environment
from agentv.model.job import Judgement
from agentv.settings.child_environment import child_environment

if TYPE_CHECKING:
    from agentv.evaluators.code.model_proxy import ModelProxy
    from agentv.evaluators.code.worker_pool import WorkerPool
    from agentv.support.function_call import DaemonThreads


class JudgeHost:
    """Starts each resource when a judge first needs it. `targets` are the names of the targets a judge may call."""

    def __init__(self, environment: Environment, targets: tuple[str, ...] = ()) -> None:
        self._environment = environment
        self._targets = targets
        self._proxy: asyncio.Task[ModelProxy] | None = None

    @cached_property
    def pool(self) -> WorkerPool:
        """The processes for Python judges."""
        from agentv.evaluators.code.worker_pool import WorkerPool  # late: few runs need it

        return WorkerPool(child_environment(environment=self._environment), serve=self._serve)

    def _serve(self, channel: socket.socket) -> Callable[[], None]:
        assert self._proxy is not None  # a judge with access to a model starts it first
        return self._proxy.result().serve(channel)

    @cached_property
    def threads(self) -> DaemonThreads:
        """The threads for functions that are called in this process."""
        from agentv.support.function_call import DaemonThreads  # late: few runs need it

        return DaemonThreads()

    async def proxy(self) -> ModelProxy:
        """Return the model proxy. The first call starts it."""
        if self._proxy is None:
            from agentv.evaluators.code.model_proxy import ModelProxy  # late: an HTTP server is slow to import

            self._proxy = asyncio.ensure_future(ModelProxy(self._targets).start())
        return await asyncio.shield(self._proxy)

    async def aclose(self) -> None:
        """End all processes and idle threads, and stop the proxy."""
        if "threads" in self.__dict__:
            self.threads.close()
        proxy, self._proxy = self._proxy, None
        try:
            if (pool := self.__dict__.pop("pool", None)) is not None:
                await pool.aclose()
        finally:
            if proxy is not None:
                await (await proxy).aclose()


@asynccontextmanager
async def host_of(judgement: Judgement) -> AsyncIterator[JudgeHost]:
    """Return the run's host; outside a run, create one for this judgement."""
    if isinstance(judgement.host, JudgeHost):
        yield judgement.host
        return
    async with aclosing(JudgeHost(judgement.environment)) as host:
        yield host
