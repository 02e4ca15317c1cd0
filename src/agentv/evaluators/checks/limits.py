"""Limits on the time, cost, tokens and calls of an answer."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from agentv.evaluators.base import CALLS_UNKNOWN, Count, Evaluator, Limit, Share, cut, within
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement
from agentv.model.message import tool_calls_in
from agentv.model.result import TokenUsage

_EXPLORATION_TOOLS = frozenset({"read", "grep", "glob", "search", "list", "websearch", "webfetch"})
"""Tools that only read, in lower case."""

LimitCheck = tuple[bool, str]
"""Whether the limit holds, and a sentence about it."""


class _Limits(Evaluator, frozen=True, kw_only=True):
    """Limits that do not depend on the content of an answer."""

    scores_content: ClassVar[bool] = False


class Latency(_Limits, frozen=True, kw_only=True):
    """The answer took at most `threshold` milliseconds.

    An unknown duration is an error, not zero.
    """

    aliases: ClassVar[dict[str, str]] = {"max_duration_ms": "threshold", "max_ms": "threshold"}

    threshold: Limit

    def score(self, judgement: Judgement) -> Score:
        """Score 1 within the limit, otherwise 0."""
        return _score(_checks(judgement, {"ms": self.threshold}))


class Cost(_Limits, frozen=True, kw_only=True):
    """The answer cost at most `budget` USD.

    An unknown cost is an error, not zero.
    """

    aliases: ClassVar[dict[str, str]] = {"threshold": "budget", "budget_usd": "budget", "max_cost_usd": "budget"}

    budget: Limit

    def score(self, judgement: Judgement) -> Score:
        """Score 1 within the limit, otherwise 0."""
        return _score(_checks(judgement, {"USD": self.budget}))


class TokenLimits(_Limits, frozen=True, kw_only=True):
    """Limits on total, input and output tokens. All of them must hold.

    Cached tokens count as input. With `counts_cached`, the default in files of AgentV (TypeScript), they are added to
    the total. Unknown usage is an error, not zero.
    """

    max_total: Count | None = None
    max_input: Count | None = None
    max_output: Count | None = None
    counts_cached: bool = False

    def score(self, judgement: Judgement) -> Score:
        """Score 1 if every limit holds, otherwise 0."""
        total = "tokens, cached ones too" if self.counts_cached else "tokens"
        limits = {total: self.max_total, "input tokens": self.max_input, "output tokens": self.max_output}
        return _score(_checks(judgement, limits))

    def complaints(self) -> list[str]:
        """No limits."""
        return _no_limit(self, ("max_total", "max_input", "max_output"))


class ExecutionLimits(_Limits, frozen=True, kw_only=True):
    """Several limits; the score is the fraction of them that hold.

    `target_exploration_ratio` is the desired fraction of tool calls that only read (read, grep, glob, search, list,
    WebSearch, WebFetch), give or take `exploration_tolerance`. Unknown figures are an error, not zero.
    """

    max_tool_calls: Count | None = None
    max_llm_calls: Count | None = None
    max_tokens: Count | None = None
    max_cost_usd: Limit | None = None
    max_duration_ms: Limit | None = None
    target_exploration_ratio: Share | None = None
    exploration_tolerance: Share = 0.2

    def score(self, judgement: Judgement) -> Score:
        """Score the fraction of limits that hold."""
        limits = {
            "tool calls": self.max_tool_calls,
            "model calls": self.max_llm_calls,
            "tokens": self.max_tokens,
            "USD": self.max_cost_usd,
            "ms": self.max_duration_ms,
        }
        checks = _checks(judgement, limits)
        if self.target_exploration_ratio is not None:
            tools = [call.tool for call in tool_calls_in(_messages(judgement))]
            checks.append(self._exploration(tools, self.target_exploration_ratio))
        return _score(checks, partial=True)

    def complaints(self) -> list[str]:
        """No limits."""
        return _no_limit(self, tuple(name for name in self.__struct_fields__ if name != "exploration_tolerance"))

    def _exploration(self, tools: list[str], target: float) -> LimitCheck:
        if not tools:
            # Not an unknown figure: an agent that calls no tools has not explored.
            return False, f"no tool calls, so no exploration (target {target:.3g})"
        ratio = sum(tool.lower() in _EXPLORATION_TOOLS for tool in tools) / len(tools)
        holds = within(abs(ratio - target), self.exploration_tolerance)
        return holds, f"exploration ratio {ratio:.3g} (target {target:.3g} ± {self.exploration_tolerance:.3g})"


def _figure(judgement: Judgement, name: str) -> float:
    """Return a figure measured by the run or, failing that, reported by the target."""
    figures = (getattr(source, name, None) for source in (judgement.execution_metrics, judgement.response))
    value = next((figure for figure in figures if figure is not None), None)
    if value is None or not math.isfinite(value):
        what = name.partition("_")[0]
        raise EvaluatorFailure(f"The {what} of the answer is unknown: the target did not report '{name}'")
    return float(value)


def _tokens(judgement: Judgement) -> TokenUsage:
    usage = getattr(judgement.execution_metrics, "token_usage", None) or judgement.response.usage
    if usage is None:
        raise EvaluatorFailure("The token usage of the answer is unknown: the target did not report 'token_usage'")
    return usage


def _messages(judgement: Judgement) -> tuple[Any, ...]:
    if not judgement.response.messages or judgement.response.calls_unknown:
        raise EvaluatorFailure(CALLS_UNKNOWN)
    return judgement.response.messages


_MEASURES: dict[str, Callable[[Judgement], float]] = {
    "tool calls": lambda judgement: len(tool_calls_in(_messages(judgement))),
    # Each assistant message is one model call.
    "model calls": lambda judgement: sum(message.role == "assistant" for message in _messages(judgement)),
    "tokens": lambda judgement: _tokens(judgement).input + _tokens(judgement).output,
    "tokens, cached ones too": lambda judgement: _tokens(judgement).total_with_cached,
    "input tokens": lambda judgement: _tokens(judgement).input,
    "output tokens": lambda judgement: _tokens(judgement).output,
    "USD": lambda judgement: _figure(judgement, "cost_usd"),
    "ms": lambda judgement: _figure(judgement, "duration_ms"),
}


def _checks(judgement: Judgement, limits: Mapping[str, float | None]) -> list[LimitCheck]:
    """Check the limits that are set, each named by its unit."""
    checks = []
    for unit, limit in limits.items():
        if limit is not None:
            value = _MEASURES[unit](judgement)
            holds = within(value, limit)
            actual, most = (f"{item:.0f}" if float(item).is_integer() else f"{item:.6g}" for item in (value, limit))
            checks.append((holds, f"{actual} {unit}, {'within' if holds else 'over'} the limit of {most}"))
    return checks


def _score(checks: list[LimitCheck], *, partial: bool = False) -> Score:
    hits, misses = (tuple(cut(text) for holds, text in checks if holds is kind) for kind in (True, False))
    return Score(len(hits) / len(checks) if partial else float(not misses), hits, misses)


def _no_limit(evaluator: Evaluator, names: tuple[str, ...]) -> list[str]:
    if any(getattr(evaluator, name) is not None for name in names):
        return []
    return [f"At least one limit is needed: {', '.join(names)}"]
