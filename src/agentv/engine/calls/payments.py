"""Count what calls cost against the budget of a run, and refuse calls when it is used up."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar

import msgspec

from agentv.engine.calls.prices import BatchPrice, expected_tokens, price_of
from agentv.executors.executor import RunBudget, UnfinishedJob
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.model.result import Result
from agentv.targets.target import Target


class JobAccount:
    """What the calls of one job have cost, and whether one of them was refused. A stored answer is not lost."""

    __slots__ = ("answer", "is_open", "is_refused", "spent_usd", "stored_usd")

    def __init__(self) -> None:
        self.spent_usd = self.stored_usd = 0.0
        self.answer: bytes | None = None
        self.is_refused = False
        self.is_open = True


job_account: ContextVar[JobAccount | None] = ContextVar("job_account", default=None)
"""The account of the job that makes the current call."""


class Payments:
    """The budget of a run, as used by the jobs of one process."""

    def __init__(self, budget: RunBudget) -> None:
        self._budget = budget

    async def run(
        self, target: str, job: Awaitable[Result | UnfinishedJob], expected_usd: float | None = None
    ) -> Result | UnfinishedJob:
        """Run a job when the budget allows it. A job whose calls were refused has no record: it runs on resume.

        `expected_usd` is the cost of the job as far as it is known before any job has ended.
        """
        if not await self._budget.start(target, expected_usd):
            _discard(job)
            return UnfinishedJob()
        account, ok = JobAccount(), False
        job_account.set(account)
        try:
            result = await job
            ok = isinstance(result, Result) and result.status != "error"
        finally:
            account.is_open = False
            self._budget.end(target, account.spent_usd, ok=ok)
        lost_usd = max(0.0, account.spent_usd - account.stored_usd)
        if isinstance(result, UnfinishedJob):
            return msgspec.structs.replace(result, cost_usd=lost_usd)
        return UnfinishedJob(lost_usd, answer=account.answer) if account.is_refused else result

    def wrapped(self, responder: Responder, settings: Target) -> Responder:
        """Wrap a target so that its calls are counted."""
        return responder if settings.is_free else PaymentWrapper(responder, self._budget)


class PaymentWrapper(ResponderWrapper):
    """Counts the cost of every reply, with or without an answer. Refuses calls when the budget is exceeded.

    A reply that was cut off was paid for, and a call that timed out probably. If the target has no price, such a call
    costs as much as the target's other calls.
    """

    def __init__(self, inner: Responder, budget: RunBudget) -> None:
        super().__init__(inner)
        self._budget = budget
        self._total, self._known = 0.0, 0

    async def respond(self, request: Request) -> Response:
        """Make a call and pay for it. Raises TargetFailure."""
        account = job_account.get()
        if self._budget.is_exceeded:
            if account is not None:
                account.is_refused = True
            raise TargetFailure("refused", "The budget of the run is used up")
        try:
            response = await self._inner.respond(request)
        except TargetFailure as failure:
            is_billed = failure.is_billed or (failure.error_class == "timeout" and failure.status is None)
            if is_billed and failure.cost_usd is None and self._known:
                failure.cost_usd = failure.estimated_usd = self._total / self._known
            self._pay(failure.cost_usd, account)
            raise
        self._pay(response.cost_usd, account)
        return response

    def _pay(self, cost: float | None, account: JobAccount | None) -> None:
        if not cost:
            return
        self._total += cost
        self._known += 1
        if account is not None and account.is_open:
            account.spent_usd += cost
            self._budget.spend(cost)
        else:
            self._budget.spend(cost, in_job=False)


def batch_cost(settings: Target | None, request: Request) -> float | None:
    """Return the expected cost of a request in a batch: many are submitted before the first cost is known."""
    price = None if settings is None else price_of(settings)
    return None if price is None else BatchPrice(price).cost_usd(expected_tokens(request, settings))


def _discard(job: Awaitable[object]) -> None:
    """Close a coroutine that is not awaited, which Python would warn about."""
    close = getattr(job, "close", None)
    if close is not None:
        close()
