"""Share endpoint limits between the workers of a run: the driver divides what other runs leave to this one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from agentv.executors.budget import BudgetHub, BudgetTerms, LeasedBudget
from agentv.executors.executor import Load, LocalLimits
from agentv.executors.shares import FileLease, Owner, Part, divide

Call = Callable[..., Awaitable[Any]]
"""Call a method of the hub: `await call("share", endpoint, owner, load)`."""


class LimitHub(BudgetHub):
    """The limits and the budget of a run. The parts of lost workers are free again."""

    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[str, dict[str, Owner]] = {}
        self._leases: dict[str, FileLease] = {}
        self._loads: dict[str, Load] = {}
        self._lost: set[str] = set()

    def close(self) -> None:
        """Leave the limits and the budget to other processes."""
        super().close()
        for lease in self._leases.values():
            lease.release()

    def load(self) -> Load:
        """Return the load of all workers."""
        loads = list(self._loads.values())
        return msgspec.structs.replace(
            max(loads, key=lambda load: load.down_s, default=Load()),
            concurrency=sum(owner.owned for owners in [*self._owners.values()] for owner in [*owners.values()]),
            waits_s=max((load.waits_s for load in loads), default=0.0),
            failing=sum((Counter(load.failing) for load in loads), Counter[str]()),
        )

    async def share(self, worker: str, endpoint: str, own: Owner, load: Load) -> Part:
        """Return a worker's part of the limit of an endpoint."""
        if worker in self._lost:
            return Part(0)
        self._loads[worker] = load
        owners = self._owners.setdefault(endpoint, {})
        owners[worker], total = own, None
        if "://" in endpoint:
            lease = self._leases.setdefault(endpoint, FileLease(endpoint))
            most = max(owner.most for owner in owners.values())
            demand = min(most, sum(owner.wanted for owner in owners.values()))
            total = (await lease.update(Owner(most, demand, sum(owner.owned for owner in owners.values())))).calls
        return divide(owners, worker, own, total)

    def lose(self, worker: str) -> None:
        """Take back the parts of a lost worker, and what its jobs reserved of the budget."""
        super().lose(worker)
        self._lost.add(worker)
        self._loads.pop(worker, None)
        for owners in self._owners.values():
            owners.pop(worker, None)


class HubLease:
    """The share of a worker in the limit of an endpoint, from its driver."""

    def __init__(self, endpoint: str, limits: LeasedLimits) -> None:
        self._endpoint = endpoint
        self._limits = limits

    async def update(self, own: Owner) -> Part:
        """Return the calls that may be in flight."""
        part: Part = await self._limits.call("share", self._endpoint, own, self._limits.load())
        return part

    def release(self) -> None:
        """Give the share back, unless the driver or the event loop is gone."""
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            reply = self._limits.call("share", self._endpoint, Owner(0, 0, 0), self._limits.load())
            # No task for a reply that is a future: the loop may close before it arrives, and would complain about one.
            asyncio.ensure_future(reply, loop=loop).add_done_callback(lambda sent: sent.cancelled() or sent.exception())


class LeasedLimits(LocalLimits):
    """The limits of one worker, leased from the hub. `cores` is the total of all workers."""

    def __init__(self, call: Call, cores: int) -> None:
        super().__init__()
        self.cores = cores
        self.call = call

    def _lease(self, endpoint: str) -> HubLease:
        return HubLease(endpoint, self)

    def report(self, text: str | None) -> None:
        """Do nothing: each worker waits for something else."""

    def budget(self, terms: BudgetTerms) -> LeasedBudget:
        """Return the budget of the run."""
        return LeasedBudget(terms, self.call)
