"""Add up the cost of a job: its answer, simulated user and judges. An unknown price ends a run with a budget."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from agentv.engine.answers.answer_log import UnscoredAnswers
from agentv.engine.job.artifacts import ANSWERS
from agentv.engine.run_options import CALL_LIMITS
from agentv.engine.scoring.scorer import total_cost
from agentv.errors import AgentvError
from agentv.executors.budget import BudgetTerms
from agentv.executors.budget_file import BudgetShare
from agentv.model.manifest import RunManifest
from agentv.model.result import EvaluatorResult, JobKey, Result
from agentv.runs.store import RunStore
from agentv.targets.target import Target

if TYPE_CHECKING:
    from agentv.engine.run_plan import RunPlan

SettingsOf = Callable[[str], Target]

MAY_DIFFER = (
    *("shard", "workers", "executor", "processes", "ray_address", "record", "dump_prompts", "dump_traces"),
    "trace_port",
)
"""Options that select the shard or the way it runs; results do not depend on them."""


class CostUnknown(AgentvError):
    """A budget cannot be enforced because a cost is unknown. Resuming the run would fail in the same way."""

    def __init__(self, headline: str, noun: str) -> None:
        detail = "The budget cannot be enforced, so the run was stopped; completed jobs are kept"
        super().__init__(headline, detail, f"Run without --budget-usd, or use a {noun} that reports its cost")


class RunCosts:
    """What the jobs of a run cost so far, including those from before it was resumed, and its budget."""

    def __init__(self, budget_usd: float | None, cost_of: Callable[[Result], float], unrecorded_usd: float) -> None:
        self._budget = budget_usd
        self.has_budget = budget_usd is not None
        self._cost_of = cost_of
        self._recorded = 0.0
        self._answers: dict[JobKey, float] = {}
        self.unrecorded_usd = unrecorded_usd

    @property
    def is_used_up(self) -> bool:
        """Whether no new job may start."""
        return self._budget is not None and self.spent_usd >= self._budget

    @property
    def left_usd(self) -> float | None:
        """The rest of the budget; None if there is no budget."""
        return None if self._budget is None else max(0.0, self._budget - self.spent_usd)

    @property
    def spent_usd(self) -> float:
        """The cost so far, as far as it is counted: without a budget, only that of jobs without a record."""
        return self._recorded + self.unrecorded_usd + math.fsum(self._answers.values())

    def add(self, result: Result) -> None:
        """Count a job, unless an earlier run paid for it. Raises CostUnknown if there is a budget."""
        if self._budget is not None and result.carried_from is None:
            self._answers.pop(result.key, None)
            self._recorded += self._cost_of(result)

    def add_answers(self, costs: dict[JobKey, float]) -> None:
        """Count stored answers that are not scored yet; each is part of the cost of its record later."""
        self._answers.update(costs)


def costs_so_far(plan: RunPlan, store: RunStore) -> RunCosts:
    """Return what a run has cost before it starts or is resumed. Raises CostUnknown if it has a budget."""
    budget_usd, rescored, begun = plan.options.budget_usd, plan.rescored, store.manifest
    settings = {target.name: target for target in plan.targets}
    cost_of = partial(job_cost, settings_of=settings.__getitem__) if rescored is None else rescored.cost_of
    lost = 0.0 if begun is None else begun.unrecorded_cost_usd - begun.stored_cost_usd
    costs = RunCosts(budget_usd, cost_of, max(0.0, lost))
    if begun is not None and budget_usd is not None:
        done_keys = set()
        for result in RunStore.open(store.path).records():
            costs.add(result)
            done_keys.add(result.key)
        costs.add_answers(UnscoredAnswers(store.path, done_keys).costs)
    return costs


def budget_terms(plan: RunPlan, manifest: RunManifest, costs: RunCosts) -> BudgetTerms | None:
    """Return what is left of the budget of a run, if it has one. Shards on this machine share their budget."""
    budget_usd, left_usd = plan.options.budget_usd, costs.left_usd
    if budget_usd is None or left_usd is None:
        return None
    if plan.options.shard is None or plan.project.is_remote:
        return BudgetTerms(left_usd)
    shard, shards = plan.options.shard
    ignored = {*MAY_DIFFER, *CALL_LIMITS}
    options = {name: value for name, value in manifest.options.items() if name not in ignored}
    evaluation = (socket.gethostname(), plan.project.root, shards, options)
    key = sha256(msgspec.json.encode(evaluation, order="sorted")).hexdigest()[:24]
    return BudgetTerms(left_usd, BudgetShare(key, shard, manifest.run_id, budget_usd, costs.spent_usd))


def stored_cost(store: RunStore) -> float:
    """Return the cost of the stored answers of a run whose jobs have no record yet."""
    if not (store.path / ANSWERS).is_dir():
        return 0.0
    return math.fsum(UnscoredAnswers(store.path, store.done_jobs()).costs.values())


def job_cost(result: Result, settings_of: SettingsOf) -> float:
    """Return the cost of a job. Raises CostUnknown."""
    metrics = None if result.cached else result.execution_metrics
    is_unknown = result.status != "error" and not result.cached and (metrics is None or metrics.cost_usd is None)
    name = result.target if metrics is None else metrics.answered_by or result.target
    if is_unknown and not settings_of(name).is_free:
        raise CostUnknown(f"Target '{name}' does not report the cost of its answers", "target")
    own = metrics.cost_usd if metrics is not None and metrics.cost_usd is not None else 0.0
    judges = math.fsum(evaluator_cost(entry, settings_of) for entry in result.evaluator_results)
    return own + _user_cost(result) + judges


def evaluator_cost(result: EvaluatorResult, settings_of: SettingsOf) -> float:
    """Return the cost of an evaluator. Raises CostUnknown if a judge that is not free does not report its cost."""
    cost = total_cost(result)
    if cost is not None:
        return cost
    calls = (result.evaluator_provider_request or {}).get("calls", ())
    for call in calls:
        name = call.get("answered_by", call["target"])
        if "reply" in call and "cost_usd" not in call and not settings_of(name).is_free:
            raise CostUnknown(f"Judge '{name}' does not report the cost of its answers", "judge")
    members = (evaluator_cost(member, settings_of) for member in result.evaluator_results)
    return math.fsum((*(call.get("cost_usd", 0.0) for call in calls), *members))


def _user_cost(result: Result) -> float:
    metrics = None if result.conversation is None else result.conversation.user_metrics
    if metrics is None:
        return 0.0
    if metrics.cost_usd is None:
        raise CostUnknown(f"The simulated user of '{result.eval_id}' does not report its cost", "target")
    return metrics.cost_usd
