"""Share endpoint limits between the workers of a run: the driver divides what other runs leave to this one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from agentv.executors.budget import BudgetHub, BudgetTerms, LeasedBudget
from agentv.executors.executor import Load, LocalLimits
from agentv.executors.shares import Demand, FileLease, HubLease, Owner, Part, divide

Call = Callable[..., Awaitable[Any]]
"""Call a method of the hub: `await call("share", endpoint, demand, load)`."""


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
        worst = max(loads, key=lambda load: load.down_s, default=Load())
        concurrency = sum(owner.owned for owners in list(self._owners.values()) for owner in list(owners.values()))
        return msgspec.structs.replace(
            worst,
            concurrency=concurrency,
            waits_s=max((load.waits_s for load in loads), default=0.0),
            isolated=sum((Counter(load.isolated) for load in loads), Counter[str]()),
        )

    async def share(self, worker: str, endpoint: str, demand: Demand, load: Load) -> Part:
        """Return a worker's part of the limit of an endpoint."""
        if worker in self._lost:
            return Part(0)
        self._loads[worker] = load
        owners = self._owners.setdefault(endpoint, {})
        total = None
        if "://" in endpoint:
            lease = self._leases.setdefault(endpoint, FileLease(endpoint))
            others = [owner for name, owner in owners.items() if name != worker]
            most = max((demand.most, *(owner.most for owner in others)))
            wanted = min(most, demand.wanted + sum(owner.wanted for owner in others))
            owned = demand.in_flight + sum(owner.owned for owner in others)
            total = (await lease.update(Demand(most, wanted, owned))).calls
        return divide(owners, worker, demand, total)

    def lose(self, worker: str) -> None:
        """Take back the parts of a lost worker, and what its jobs reserved of the budget."""
        super().lose(worker)
        self._lost.add(worker)
        self._loads.pop(worker, None)
        for owners in self._owners.values():
            owners.pop(worker, None)


class LeasedLimits(LocalLimits):
    """The limits of one worker, leased from the hub. `cores` is the total of all workers."""

    def __init__(self, call: Call, cores: int) -> None:
        super().__init__()
        self.cores = cores
        self._call = call

    def _lease(self, endpoint: str) -> HubLease:
        return HubLease(endpoint, self._call, self.load)

    def report(self, text: str | None) -> None:
        """Do nothing: each worker waits for something else."""

    def budget(self, terms: BudgetTerms) -> LeasedBudget:
        """Return the budget of the run."""
        return LeasedBudget(terms, self._call)
