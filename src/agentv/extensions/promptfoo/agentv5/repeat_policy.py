"""Repeated answers in a suite of AgentV (TypeScript) 5: how many there are, and how the gate combines their scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import first_of, object_at, text_of
from agentv.datasets.formats.dataset_format import SuiteGate
from agentv.model.evaluator import Verdicts

_STRATEGIES = ("pass_any", "pass_at_k", "mean", "pass_all", "confidence_interval")
"""From the most lenient to the strictest; the last can be stricter or more lenient than the one before."""

_KEYS = {"count", "strategy", "early_exit", "cost_limit_usd"}
_LOST = {
    "early_exit": "every trial runs, and those after the first pass do not count in the gate",
    "cost_limit_usd": "every trial runs. Limit the cost of the run with --budget-usd",
}


def trials_of(repeat: Any, lose: Lose) -> Any:
    """Return the number of trials of a repeat policy. Raises ValueError for one that AgentV does not have."""
    if not isinstance(repeat, dict):
        return repeat
    for key in sorted(repeat.keys() - _KEYS):
        raise ValueError(f"'repeat.{key}' is not supported")
    for key, why in _LOST.items():
        if repeat.get(key):
            lose(f"repeat.{key} '{text_of(repeat[key])}': {why}")
    return repeat.get("count", 1)


def own_repeat(test: dict[str, Any]) -> Any:
    """Return the repeat policy of a test, if it has one."""
    return first_of(object_at(test, "options"), "repeat") or first_of(object_at(test, "run"), "repeat")


def gate_of(suite: dict[str, Any], tests: Iterable[dict[str, Any]], lose: Lose) -> SuiteGate:
    """Return the gate of a suite. Its threshold, or a setting of the run of a test, has every test reach its own limit.

    Of several strategies, the strictest is that of all tests. Raises ValueError if none of them is the strictest.
    """
    shared = object_at(suite, "evaluate_options").get("repeat")
    strategies: dict[str, None] = {} if shared is None else {_strategy(shared): None}
    threshold = suite.get("threshold")
    for test in tests:
        repeat = own_repeat(test)
        if repeat is not None:
            strategies[_strategy(repeat)] = None
        if threshold is None and (repeat is not None or object_at(test, "run")):
            threshold = Verdicts().passing
    if len(strategies) > 1 and "confidence_interval" in strategies:
        raise ValueError(f"'repeat' has several strategies: {', '.join(strategies)}. Keep one in the whole suite")
    strategy = max(strategies, key=_STRATEGIES.index, default="mean")
    if len(strategies) > 1:
        lose(f"several strategies of 'repeat': '{strategy}', the strictest, decides for all tests")
    limit = float(threshold) if isinstance(threshold, int | float) else None
    return SuiteGate(limit, strategy, by_verdict=True)


def _strategy(repeat: Any) -> str:
    """Return how trials are combined: a number takes the best, as do policies, which stop at the first pass."""
    if not isinstance(repeat, dict):
        return "pass_any"
    strategy = text_of(repeat.get("strategy") or "pass_any")
    if strategy not in _STRATEGIES:
        raise ValueError(f"'repeat.strategy' must be one of {', '.join(_STRATEGIES)}, got '{strategy}'")
    if strategy in ("pass_any", "pass_at_k"):
        return "pass_any" if repeat.get("early_exit") is False else "pass_at_k"
    return strategy
