"""Add up the cost of a job: its answer, simulated user and judges. An unknown price ends a run with a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

from agentv.engine.scoring.scorer import total_cost
from agentv.errors import AgentvError
from agentv.model.result import EvaluatorResult, Result
from agentv.targets.target import Target

SettingsOf = Callable[[str], Target]


class CostUnknown(AgentvError):
    """A budget cannot be enforced because a cost is unknown. Resuming the run would fail in the same way."""

    def __init__(self, headline: str, noun: str) -> None:
        detail = "The budget cannot be enforced, so the run was stopped; completed jobs are kept"
        super().__init__(headline, detail, f"Run without --budget-usd, or use a {noun} that reports its cost")


def job_cost(result: Result, settings_of: SettingsOf) -> float:
    """Return the cost of a job. Raises CostUnknown."""
    metrics = None if result.cached else result.execution_metrics
    is_unknown = result.status != "error" and not result.cached and (metrics is None or metrics.cost_usd is None)
    name = result.target if metrics is None else metrics.answered_by or result.target
    if is_unknown and not settings_of(name).is_free:
        raise CostUnknown(f"Target '{name}' does not report the cost of its answers", "target")
    own = metrics.cost_usd if metrics is not None and metrics.cost_usd is not None else 0.0
    judges = math.fsum(evaluator_cost(found, settings_of) for found in result.evaluator_results)
    return own + _user_cost(result) + judges


def evaluator_cost(found: EvaluatorResult, settings_of: SettingsOf) -> float:
    """Return the cost of an evaluator. Raises CostUnknown if a judge that is not free does not report its cost."""
    cost = total_cost(found)
    if cost is not None:
        return cost
    calls = (found.evaluator_provider_request or {}).get("calls", ())
    for call in calls:
        name = call.get("answered_by", call["target"])
        if "reply" in call and "cost_usd" not in call and not settings_of(name).is_free:
            raise CostUnknown(f"Judge '{name}' does not report the cost of its answers", "judge")
    members = (evaluator_cost(member, settings_of) for member in found.evaluator_results)
    return math.fsum((*(call.get("cost_usd", 0.0) for call in calls), *members))


def _user_cost(result: Result) -> float:
    metrics = None if result.conversation is None else result.conversation.user_metrics
    if metrics is None:
        return 0.0
    if metrics.cost_usd is None:
        raise CostUnknown(f"The simulated user of '{result.eval_id}' does not report its cost", "target")
    return metrics.cost_usd
