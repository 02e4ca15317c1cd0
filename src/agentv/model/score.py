"""What an evaluator says of an answer: a score, or a failure beside it that cannot be mistaken for one."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.result import TokenUsage


class Score(msgspec.Struct, frozen=True, gc=False):
    """How good an answer is, from 0 to 1, and why. A number outside that range is no score."""

    score: float
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    reasoning: str | None = None
    details: Any = None
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    request: dict[str, Any] | None = None
    members: tuple[Any, ...] = ()
    gate_failed: bool = False


class EvaluatorFailure(Exception):
    """An evaluator that could not score. The job becomes an error; nothing is counted as a zero."""
