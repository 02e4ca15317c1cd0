"""Limits on what a job may use: time, money, tokens, calls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

from agentv.evaluators.base import Count, Evaluator, Limit, Share, at_most, cut
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement
from agentv.model.message import tool_calls_in
from agentv.model.result import TokenUsage

_LOOKING = frozenset({"read", "grep", "glob", "search", "list", "websearch", "webfetch"})
"""Tools that only look, in upper or lower case."""

LimitCheck = tuple[bool, str]
"""Whether a limit was kept, and the sentence that says so."""


class _Limits(Evaluator, frozen=True, kw_only=True):
    """Limits on what an answer took, whatever it says."""

    scores_content: ClassVar[bool] = False


class Latency(_Limits, frozen=True, kw_only=True):
    """The answer took at most `threshold` milliseconds.

    A duration that nobody knows is an error, not a zero.
    """

    aliases: ClassVar[dict[str, str]] = {"max_duration_ms": "threshold", "max_ms": "threshold"}

    threshold: Limit

    def score(self, judgement: Judgement) -> Score:
        """1 within the limit, else 0."""
        return _all_kept([_duration(judgement, self.threshold)])


class Cost(_Limits, frozen=True, kw_only=True):
    """The answer cost at most `budget` USD.

    A cost that nobody knows is an error, not a zero.
    """

    aliases: ClassVar[dict[str, str]] = {"threshold": "budget", "budget_usd": "budget", "max_cost_usd": "budget"}

    budget: Limit

    def score(self, judgement: Judgement) -> Score:
        """1 within the limit, else 0."""
        return _all_kept([_cost(judgement, self.budget)])


class TokenLimits(_Limits, frozen=True, kw_only=True):
    """Limits on tokens: in all, going in, coming out. All of them must be kept.

    Cached tokens are among those going in. Usage that the target does not tell is an error, not a zero.
    """

    max_total: Count | None = None
    max_input: Count | None = None
    max_output: Count | None = None

    def score(self, judgement: Judgement) -> Score:
        """1 when every limit is kept, else 0. Cached tokens are among those going in and count once."""
        usage = _tokens(judgement)
        names = ("tokens", "input tokens", "output tokens")
        used = (usage.input + usage.output, usage.input, usage.output)
        limits = zip(names, used, (self.max_total, self.max_input, self.max_output), strict=True)
        return _all_kept([_kept(name, value, limit) for name, value, limit in limits if limit is not None])

    def complaints(self) -> list[str]:
        """No limit at all."""
        return _no_limit(self, ("max_total", "max_input", "max_output"))


class ExecutionLimits(_Limits, frozen=True, kw_only=True):
    """Several limits at once; the score is the share of them that are kept.

    `target_exploration_ratio` is the wanted share of tool calls that only look (read, grep, glob, search, list,
    WebSearch, WebFetch), give or take `exploration_tolerance`. Figures that nobody knows are an error, not a zero.
    """

    max_tool_calls: Count | None = None
    max_llm_calls: Count | None = None
    max_tokens: Count | None = None
    max_cost_usd: Limit | None = None
    max_duration_ms: Limit | None = None
    target_exploration_ratio: Share | None = None
    exploration_tolerance: Share = 0.2

    def score(self, judgement: Judgement) -> Score:
        """The share of limits that are kept."""
        checks = list(self._checks(judgement))
        return _with_sentences(sum(holds for holds, _ in checks) / len(checks), checks)

    def complaints(self) -> list[str]:
        """No limit at all."""
        return _no_limit(self, tuple(name for name in self.__struct_fields__ if name != "exploration_tolerance"))

    def _checks(self, judgement: Judgement) -> Iterable[LimitCheck]:
        if self.max_tool_calls is not None:
            yield _kept("tool calls", len(_tool_names(judgement)), self.max_tool_calls)
        if self.max_llm_calls is not None:
            # A model is called once for each message that it writes.
            calls = sum(message.role == "assistant" for message in _messages(judgement))
            yield _kept("model calls", calls, self.max_llm_calls)
        if self.max_tokens is not None:
            usage = _tokens(judgement)
            yield _kept("tokens", usage.input + usage.output, self.max_tokens)
        if self.max_cost_usd is not None:
            yield _cost(judgement, self.max_cost_usd)
        if self.max_duration_ms is not None:
            yield _duration(judgement, self.max_duration_ms)
        if self.target_exploration_ratio is not None:
            yield self._exploration(_tool_names(judgement), self.target_exploration_ratio)

    def _exploration(self, tools: list[str], wanted: float) -> LimitCheck:
        if not tools:
            # Known and not missing: an agent that calls nothing has not looked.
            return False, f"no tool calls, so none that only look (wanted {wanted:.3g})"
        share = sum(tool.lower() in _LOOKING for tool in tools) / len(tools)
        holds = at_most(abs(share - wanted), self.exploration_tolerance)
        return holds, f"{share:.3g} of tool calls only look (wanted {wanted:.3g} ± {self.exploration_tolerance:.3g})"


def _duration(judgement: Judgement, limit: float) -> LimitCheck:
    return _kept("ms", _known(judgement, "duration_ms", "How long the answer took"), limit)


def _cost(judgement: Judgement, limit: float) -> LimitCheck:
    return _kept("USD", _known(judgement, "cost_usd", "What the answer cost"), limit)


def _known(judgement: Judgement, name: str, what: str) -> float:
    """A figure of the job: as the run measured it, else as the target gave it."""
    figures = (getattr(source, name, None) for source in (judgement.execution_metrics, judgement.response))
    value = next((figure for figure in figures if figure is not None), None)
    if value is None or not math.isfinite(value):
        raise EvaluatorFailure(f"{what} is not known: the target did not say ('{name}')")
    return float(value)


def _tokens(judgement: Judgement) -> TokenUsage:
    usage = getattr(judgement.execution_metrics, "token_usage", None) or judgement.response.usage
    if usage is None:
        raise EvaluatorFailure("How many tokens the answer took is not known: the target did not say ('token_usage')")
    return usage


def _messages(judgement: Judgement) -> tuple[Any, ...]:
    if not judgement.response.messages:
        raise EvaluatorFailure("What the target did is not known: it gave no messages ('output_messages')")
    return judgement.response.messages


def _tool_names(judgement: Judgement) -> list[str]:
    return [call.tool for call in tool_calls_in(_messages(judgement))]


def _kept(name: str, value: float, limit: float) -> LimitCheck:
    holds = at_most(value, limit)
    return holds, f"{_figure(value)} {name}, {'within' if holds else 'over'} the limit of {_figure(limit)}"


def _figure(value: float) -> str:
    """A whole number as it is, another with the digits that people read."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"


def _all_kept(checks: list[LimitCheck]) -> Score:
    return _with_sentences(float(all(holds for holds, _ in checks)), checks)


def _with_sentences(score: float, checks: list[LimitCheck]) -> Score:
    hits, misses = (tuple(cut(text) for holds, text in checks if holds is kind) for kind in (True, False))
    return Score(score, hits, misses)


def _no_limit(evaluator: Evaluator, names: tuple[str, ...]) -> list[str]:
    if any(getattr(evaluator, name) is not None for name in names):
        return []
    return [f"At least one limit is needed: {', '.join(names)}"]
