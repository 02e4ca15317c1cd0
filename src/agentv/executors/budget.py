"""The budget of a run: jobs start only if their expected cost fits, together with that of the jobs in flight.

A job reserves what jobs of its target have cost so far, including their judges. Before the first known cost, one job of
each target runs at a time. The first few costs are a poor estimate, so they reserve a multiple.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from math import sqrt
from typing import Any

import msgspec

from agentv.executors.budget_file import ROUNDING_USD, Allowance, BudgetFile, BudgetShare

_TICK_S, _PUBLISHED = 0.25, 0.01
"""How often a shard reports what it has spent, and the fraction of the budget that it reports at once."""
_TOLERANCE = 1.05
"""Jobs in flight may exceed the budget by this factor to finish; then their next calls are refused."""
_DEVIATIONS = 2.0
_CAUTION = 8.0
"""How many known costs it takes until a job reserves only twice the estimate."""


class JobCosts:
    """The costs of the jobs of one target so far, and the number of those in flight."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.guess_usd = 0.0
        self._known = self._free = 0
        self._mean = self._squares = 0.0

    @property
    def may_be_free(self) -> bool:
        """Whether no job has cost anything yet; then only as many run as have ended well, and one more."""
        return self._mean == self.guess_usd == 0.0

    @property
    def has_room(self) -> bool:
        """Whether another job of unknown cost may start."""
        return self.in_flight <= self._free

    def expected(self, more: int = 0) -> float:
        """Return the expected cost of the jobs in flight and of some more, with a margin."""
        jobs = self.in_flight + more
        if not jobs or not self._known:
            return jobs * self.guess_usd
        deviation = sqrt(self._squares / self._known)
        return (jobs * self._mean + _DEVIATIONS * sqrt(jobs) * deviation) * (1 + _CAUTION / self._known)

    def add(self, cost: float, *, ok: bool) -> None:
        """Add the cost of a job. A failed job without a cost is not counted: others may cost something."""
        if not cost and not ok:
            return
        self._free += not cost
        if cost or self._known:
            self._known += 1
            change = cost - self._mean
            self._mean += change / self._known
            self._squares += change * (cost - self._mean)


class BudgetTerms(msgspec.Struct, frozen=True):
    """What is left of the budget of a run, and the budget that it shares with other shards, if there are any."""

    limit_usd: float
    share: BudgetShare | None = None


class Budget:
    """The budget of a run, shared by all its jobs. Used in one event loop only."""

    def __init__(self, limit_usd: float, share: BudgetShare | None = None) -> None:
        self._limit = limit_usd
        self._most = limit_usd * _TOLERANCE
        self._share = share
        self._file = None if share is None else BudgetFile(share)
        self._allowance: Allowance | None = None
        self._published = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.spent_usd = 0.0
        self._settled = 0.0
        self._paid_calls = 0
        self._costs: dict[str, JobCosts] = {}
        self._waiting: dict[str, deque[asyncio.Future[bool]]] = {}

    @property
    def is_exceeded(self) -> bool:
        """Whether the jobs in flight may make no more calls, because those of the others use up the budget."""
        others = max(0, self._jobs - 1) * self._mean_call
        return self.spent_usd + others >= self._most

    def close(self) -> None:
        """Leave the rest of a shared budget to the other shards."""
        if self._timer is not None:
            self._timer.cancel()
        if self._file is not None:
            self._file.release(self.spent_usd)

    @property
    def _jobs(self) -> int:
        return sum(entry.in_flight for entry in self._costs.values())

    @property
    def _mean_call(self) -> float:
        return self.spent_usd / max(1, self._paid_calls)

    async def start(self, target: str, expected_usd: float | None = None) -> bool:
        """Wait until a job of a target may start; return False if the budget is used up.

        `expected_usd` is what the job is expected to cost as long as the cost of no job is known.
        """
        waiting = self._waiting.setdefault(target, deque())
        self._costs.setdefault(target, JobCosts()).guess_usd = expected_usd or 0.0
        if self._file is not None and self._timer is None:
            self._renew()
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.append(place)
        self._wake()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.result():
                self.end(target, 0.0, ok=False)
            raise

    def spend(self, cost: float, *, in_job: bool = True) -> None:
        """Count the cost of a call; `in_job` if the job in flight that made it will report the cost again."""
        self.spent_usd += cost
        self._paid_calls += cost > 0
        if not in_job:
            self._settled += cost
        if self._share is not None and self.spent_usd - self._published > _PUBLISHED * self._share.limit_usd:
            self._publish()
        if self.spent_usd >= self._limit:
            self._wake()

    def end(self, target: str, cost: float, *, ok: bool) -> None:
        """End a job, whose calls cost this much; `ok` if it was not an error."""
        costs = self._costs[target]
        costs.in_flight -= 1
        costs.add(cost, ok=ok)
        self._settled += cost
        self._wake()

    def _wake(self) -> None:
        for target, waiting in self._waiting.items():
            costs = self._costs.setdefault(target, JobCosts())
            while waiting and (may_start := self._may_start(costs)) is not None:
                place = waiting.popleft()
                if not place.done():
                    costs.in_flight += may_start
                    place.set_result(may_start)

    def _may_start(self, costs: JobCosts) -> bool | None:
        """Return whether another job may start; None if that depends on the jobs in flight, or on other shards."""
        others = self._allowance
        if self.spent_usd >= self._limit - ROUNDING_USD:
            return False if others is None or others.is_used_up else None
        jobs = self._jobs
        if not jobs and (others is None or not others.others_run):
            return True
        if costs.may_be_free and not costs.has_room:
            return None
        expected = sum(entry.expected() for entry in self._costs.values()) - costs.expected() + costs.expected(1)
        still_to_pay = self._still_to_pay(expected, jobs + 1)
        return True if self.spent_usd + still_to_pay <= self._limit else None

    def _still_to_pay(self, expected: float, jobs: int) -> float:
        """Return what jobs still have to pay: they have paid for some calls already, but each may make another one."""
        return max(expected - (self.spent_usd - self._settled), jobs * self._mean_call)

    def _renew(self) -> None:
        """Report to the other shards, and again after a while."""
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._renew)
        self._publish()
        self._wake()

    def _publish(self) -> None:
        """Report what this shard has spent and reserved; take note of what it may spend."""
        file, share, jobs = self._file, self._share, self._jobs
        if file is None or share is None:
            return
        expected = sum(entry.expected() for entry in self._costs.values())
        try:
            allowed = file.update(self.spent_usd, self._still_to_pay(expected, jobs), jobs)
        except BlockingIOError:
            return  # another shard is slow: report again later
        except (OSError, ImportError, msgspec.MsgspecError) as error:
            self._file = self._allowance = None
            self._limit = share.limit_usd - share.spent_usd
            logging.getLogger("agentv").warning("The budget is not shared with other shards: %s", error)
            return
        self._published, self._allowance = self.spent_usd, allowed
        self._limit = allowed.usd - share.spent_usd
        self._most = share.limit_usd * _TOLERANCE - allowed.others_usd - share.spent_usd


class BudgetHub:
    """The budget of a run whose jobs run in several workers. Lost workers give back what their jobs reserved."""

    def __init__(self) -> None:
        self._budget: Budget | None = None
        self._jobs: dict[str, Counter[str]] = {}

    def close(self) -> None:
        """Leave the rest of a shared budget to the other shards."""
        if self._budget is not None:
            self._budget.close()

    async def start_job(self, worker: str, terms: BudgetTerms, target: str, expected_usd: float | None) -> bool:
        """Wait until a job of a worker may start."""
        if self._budget is None:
            self._budget = Budget(terms.limit_usd, terms.share)
        may_start = await self._budget.start(target, expected_usd)
        self._jobs.setdefault(worker, Counter())[target] += may_start
        return may_start

    async def pay(self, worker: str, cost: float, in_job: bool) -> bool:  # noqa: ARG002  # the hub calls with the worker
        """Count the cost of a call; return whether the jobs in flight may make no more calls."""
        assert self._budget is not None
        self._budget.spend(cost, in_job=in_job)
        return self._budget.is_exceeded

    async def end_job(self, worker: str, target: str, cost: float, ok: bool) -> None:
        """End a job of a worker."""
        if self._budget is not None and self._jobs[worker][target]:
            self._jobs[worker][target] -= 1
            self._budget.end(target, cost, ok=ok)

    def lose(self, worker: str) -> None:
        """End all jobs of a lost worker."""
        for target, jobs in self._jobs.pop(worker, Counter()).items():
            for _ in range(jobs):
                assert self._budget is not None
                self._budget.end(target, 0.0, ok=False)


class LeasedBudget:
    """The budget in one worker, kept by the hub. `is_exceeded` is as of the last paid call."""

    def __init__(self, terms: BudgetTerms, call: Callable[..., Awaitable[Any]]) -> None:
        self._terms = terms
        self._call = call
        self._sending: set[asyncio.Future[Any]] = set()
        self.is_exceeded = False

    async def start(self, target: str, expected_usd: float | None = None) -> bool:
        """Wait until a job of a target may start; return False if the budget is used up."""
        may_start: bool = await self._call("start_job", self._terms, target, expected_usd)
        return may_start

    def spend(self, cost: float, *, in_job: bool = True) -> None:
        """Send the cost of a call to the hub."""
        if cost:
            self._send(self._paid(cost, in_job))

    def end(self, target: str, cost: float, *, ok: bool) -> None:
        """Tell the hub that a job has ended."""
        self._send(self._ended(target, cost, ok))

    async def _paid(self, cost: float, in_job: bool) -> None:
        self.is_exceeded = await self._call("pay", cost, in_job)

    async def _ended(self, target: str, cost: float, ok: bool) -> None:
        await self._call("end_job", target, cost, ok)

    def _send(self, message: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(message)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
