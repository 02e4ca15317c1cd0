"""What a job cost: its answer, its simulated user, its judges. A price that should be known and is not ends a run."""

from __future__ import annotations

import math
from collections.abc import Callable

from agentv.engine.scoring.scorer import total_cost
from agentv.errors import AgentvError
from agentv.model.result import EvaluatorResult, Result
from agentv.targets.target import Target

SettingsOf = Callable[[str], Target]


class CostUnknown(AgentvError):
    """A budget that cannot be enforced. Resuming the run would find the same."""

    def __init__(self, headline: str, noun: str) -> None:
        detail = "A budget cannot be held without a price, so the run has ended; what was answered is kept"
        super().__init__(headline, detail, f"Start a run without --budget-usd, or use a {noun} that reports its cost")


def job_cost(result: Result, settings_of: SettingsOf) -> float:
    """Return what a job cost. Raises CostUnknown."""
    metrics = None if result.cached else result.execution_metrics
    is_unknown = result.status != "error" and not result.cached and (metrics is None or metrics.cost_usd is None)
    if is_unknown and not settings_of(result.target).is_free:
        raise CostUnknown(f"The target '{result.target}' does not say what its answers cost", "target")
    own = metrics.cost_usd if metrics is not None and metrics.cost_usd is not None else 0.0
    judges = math.fsum(evaluator_cost(found, settings_of) for found in result.evaluator_results)
    return own + _user_cost(result) + judges


def evaluator_cost(found: EvaluatorResult, settings_of: SettingsOf) -> float:
    """Return what an evaluator cost. Raises CostUnknown when a judge that it called has a price and does not say it."""
    cost = total_cost(found)
    if cost is not None:
        return cost
    calls = (found.evaluator_provider_request or {}).get("calls", ())
    for call in calls:
        if "reply" in call and "cost_usd" not in call and not settings_of(call["target"]).is_free:
            raise CostUnknown(f"The judge '{call['target']}' does not say what its answers cost", "judge")
    members = (evaluator_cost(member, settings_of) for member in found.evaluator_results)
    return math.fsum((*(call.get("cost_usd", 0.0) for call in calls), *members))


def _user_cost(result: Result) -> float:
    """Return what a simulated user cost."""
    metrics = None if result.conversation is None else result.conversation.user_metrics
    if metrics is None:
        return 0.0
    if metrics.cost_usd is None:
        raise CostUnknown(f"The simulated user of '{result.eval_id}' does not say what its messages cost", "target")
    return metrics.cost_usd
