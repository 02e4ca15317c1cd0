"""Limits on what a job may use: time, money, tokens, calls."""

from __future__ import annotations

from typing import ClassVar

from agentv.evaluators.base import Count, Evaluator, Limit, Share


class Latency(Evaluator, frozen=True, kw_only=True):
    """`threshold` is the longest duration in milliseconds."""

    aliases: ClassVar[dict[str, str]] = {"max_duration_ms": "threshold", "max_ms": "threshold"}

    threshold: Limit


class Cost(Evaluator, frozen=True, kw_only=True):
    """`budget` is the highest cost in USD."""

    aliases: ClassVar[dict[str, str]] = {"threshold": "budget", "budget_usd": "budget", "max_cost_usd": "budget"}

    budget: Limit


class TokenUsage(Evaluator, frozen=True, kw_only=True):
    """The most tokens in all, going in and coming out."""

    max_total: Count | None = None
    max_input: Count | None = None
    max_output: Count | None = None

    def complaints(self) -> list[str]:
        """No limit at all."""
        return _no_limit(self, ("max_total", "max_input", "max_output"))


class ExecutionMetrics(Evaluator, frozen=True, kw_only=True):
    """Several limits at once. `target_exploration_ratio` is the wanted share of tools that only look."""

    max_tool_calls: Count | None = None
    max_llm_calls: Count | None = None
    max_tokens: Count | None = None
    max_cost_usd: Limit | None = None
    max_duration_ms: Limit | None = None
    target_exploration_ratio: Share | None = None
    exploration_tolerance: Share = 0.2

    def complaints(self) -> list[str]:
        """No limit at all."""
        return _no_limit(self, tuple(name for name in self.__struct_fields__ if name != "exploration_tolerance"))


def _no_limit(evaluator: Evaluator, names: tuple[str, ...]) -> list[str]:
    if any(getattr(evaluator, name) is not None for name in names):
        return []
    return [f"At least one limit is needed: {', '.join(names)}"]
