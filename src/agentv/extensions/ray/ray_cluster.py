"""Run jobs on a Ray cluster: one worker per CPU, which reads secrets from its own environment."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, NamedTuple

from agentv.errors import UsageError
from agentv.executors.crew import Crew, JobQueue, NumberedJob, NumberedResult, WorkerLost, pack, portable
from agentv.executors.executor import Emit, ExecutorOptions, Jobs, Load, WorkSpec
from agentv.executors.leases import LeasedLimits, LimitHub
from agentv.support.processes.watchdog import end_after_death

_AHEAD_S = 1.0
_BATCH_S = 0.02
"""How long a worker collects results before it sends them. Results that were not sent are lost with the driver."""
_CLOSE_S = 10.0
_LOAD_S = 0.5
_CONNECT_S = 10.0
_MOST_WAITING = 100_000
"""Calls that may wait for the hub: every job in flight may wait for the budget."""


class WorkerSetting(NamedTuple):
    """The settings of a worker actor: the packed spec, the cores of all workers, the driver's path and folder."""

    spec: bytes
    cores: int
    path: list[str]
    folder: str


class RayExecutor:
    """Runs jobs on the cluster at `ray_address`, or on a local Ray instance."""

    is_remote = True

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options
        self._load = Load()

    async def run(self, spec: WorkSpec, jobs: Jobs, emit: Emit) -> tuple[str, ...]:
        """Run every job; see `agentv.executors.executor.Executor`."""
        packed = pack(spec)
        ray = _import_ray()
        async with _connected(ray, self._options.ray_address):
            cluster = _Cluster(ray)
            watching = asyncio.create_task(self._watch(cluster))
            try:
                most = max(1, self._options.processes or int(ray.cluster_resources().get("CPU", 1)))
                setting = WorkerSetting(packed, most, sys.path, os.getcwd())
                return await Crew(spec, jobs, emit, ahead_s=_AHEAD_S).run(lambda: cluster.start(setting), most)
            finally:
                watching.cancel()
                cluster.close()

    def load(self) -> Load:
        """Return the most recent load of all workers."""
        return self._load

    async def _watch(self, cluster: _Cluster) -> None:
        while True:
            with suppress(cluster.ray.exceptions.RayError):  # only for display: workers detect a lost hub themselves
                self._load = await cluster.hub.load.remote()
            await asyncio.sleep(_LOAD_S)


def _import_ray() -> Any:
    """Import Ray without its messages on stdout, which is reserved for the command's output."""
    quiet = "RAY_DEDUP_LOGS_SKIP_REGEX"
    value = os.environ.setdefault(quiet, ".")
    try:
        import ray  # late: optional and slow
    except ImportError:
        hint = "Install it with: pip install 'agentv[ray]'"
        raise UsageError("The executor 'ray' requires the package 'ray'", hint=hint) from None
    finally:
        if value == ".":
            os.environ.pop(quiet, None)
    return ray


@asynccontextmanager
async def _connected(ray: Any, address: str | None) -> AsyncIterator[None]:
    """Connect to the cluster, or start one. An existing connection of the program is used and left open."""
    if ray.is_initialized():
        yield
        return
    _check_address(ray, address)
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        # In this thread, although it takes seconds: the processes Ray starts end with the thread that started them.
        if address is None:
            ray.init(address="local", include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"to the Ray cluster at {address}" if address else "to a local Ray"
        raise UsageError(f"Cannot connect {where}", str(error), "See `ray status`") from error
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, handler)
    end_after_death()
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(ray: Any, address: str | None) -> None:
    """Raise UsageError if nothing listens at HOST:PORT; Ray itself would retry for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not port.isdigit() or "/" in host:
        return
    if host in ("localhost", "127.0.0.1", "::1"):
        host = ray.util.get_node_ip_address()  # as Ray does
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError as error:
        hint = "Pass the address of the head node printed by `ray start --head`"
        raise UsageError(f"Cannot connect to the Ray cluster at {address}", str(error), hint) from None


class _Cluster:
    """The actors of one run. They end with the run or with the driver."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._names = count(1)
        self._worker = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(RayWorker)
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # late: optional

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        hub = ray.remote(num_cpus=0, scheduling_strategy=here, max_concurrency=_MOST_WAITING)(LimitHub)
        self.hub = hub.remote()
        self._actors: set[Any] = {self.hub}

    async def start(self, setting: WorkerSetting) -> _RayLink:
        actor = self._worker.remote()
        self._actors.add(actor)
        link = _RayLink(self, actor, f"ray-{next(self._names)}")
        try:
            await link.open(setting)
        except BaseException:
            self.kill(actor)
            raise
        end_after_death()  # a Ray of our own starts processes when they are needed
        return link

    def kill(self, actor: Any) -> None:
        self._actors.discard(actor)
        with suppress(Exception):  # the actor or the cluster is already gone
            self.ray.kill(actor)

    def close(self) -> None:
        for actor in list(self._actors):
            self.kill(actor)


class _RayLink:
    """The driver's link to a worker actor."""

    def __init__(self, cluster: _Cluster, actor: Any, name: str) -> None:
        self.capacity = 1
        self.lent = 0
        self._cluster = cluster
        self._actor = actor
        self._name = name
        self._is_lost = False

    async def open(self, setting: WorkerSetting) -> None:
        self.capacity = await self._result(self._actor.open.remote(setting, self._name, self._cluster.hub))

    def begin(self, share: int) -> None:
        self._actor.begin.remote(share)

    def send(self, jobs: list[NumberedJob]) -> None:
        self._actor.add.remote(pack(jobs))

    def stop(self) -> None:
        self._actor.stop.remote()

    async def receive(self) -> list[NumberedResult]:
        results: list[NumberedResult]
        results, self.lent = await self._result(self._actor.take.remote())
        return results

    async def close(self) -> tuple[str, ...]:
        missing: tuple[str, ...] = ()
        if not self._is_lost:
            with suppress(WorkerLost, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    missing = await self._result(self._actor.close.remote())
        self._cluster.kill(self._actor)
        self._cluster.hub.lose.remote(self._name)
        return missing

    async def _result(self, reference: Awaitable[bytes]) -> Any:
        """Wait for a result of the actor. Raises WorkerLost, or the exception the actor returned."""
        exceptions = self._cluster.ray.exceptions
        try:
            result = pickle.loads(await reference)  # noqa: S301 - from our own worker
        except exceptions.RayTaskError:
            raise
        except exceptions.RayError as error:
            self._is_lost = True
            raise WorkerLost(str(error).strip().splitlines()[0]) from error
        if isinstance(result, BaseException):
            raise result
        return result


class RayWorker:
    """A worker actor. Ray starts it in its own process, on any node."""

    async def open(self, setting: WorkerSetting, name: str, hub: Any) -> bytes:
        """Open the targets; return the capacity, or the error."""
        self._results: list[NumberedResult] = []
        self._left = 0
        self._some, self._all = asyncio.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        sys.path.extend(path for path in setting.path if path not in sys.path)
        with suppress(OSError):  # the driver's folder may not exist on this machine
            os.chdir(setting.folder)

        def call(method: str, *arguments: Any) -> Any:
            return getattr(hub, method).remote(name, *arguments)

        try:
            spec = pickle.loads(setting.spec)  # noqa: S301 - from our own driver
            limits = LeasedLimits(call, setting.cores)
            worker = spec.open(limits)
        except Exception as error:
            return pack(portable(error))
        self._slots = limits.slots
        self._queue = JobQueue(worker, limits, self._deliver, self._fail)
        limits.slots.changed = self._fill
        return pack(worker.capacity)

    async def begin(self, share: int) -> None:
        """Run at most this many jobs at a time."""
        self._queue.begin(share)

    async def add(self, jobs: bytes) -> None:
        """Queue jobs."""
        added = pickle.loads(jobs)  # noqa: S301 - from our own driver
        self._left += len(added)
        self._queue.add(added)

    async def stop(self) -> None:
        """Drop the jobs that have not made a call yet."""
        self._queue.stop()

    async def take(self) -> bytes:
        """Wait for results; while jobs are left, wait a little longer to collect more."""
        await self._some.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(_BATCH_S):
                await self._all.wait()
        results, self._results = self._results, []
        self._some.clear()
        self._all.clear()
        return pack((results, self._slots.lent) if self._failure is None else self._failure)

    async def close(self) -> bytes:
        """Cancel the jobs and close the targets; return the calls missing from a replay."""
        return pack(await self._queue.aclose())

    def _fill(self) -> None:
        self._queue.fill()
        if self._slots.lent:
            self._some.set()

    def _deliver(self, result: NumberedResult) -> None:
        self._results.append(result)
        self._left -= 1
        self._some.set()
        if not self._left:
            self._all.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = portable(error)
        self._some.set()
        self._all.set()
