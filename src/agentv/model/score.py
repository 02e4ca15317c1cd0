"""What an evaluator says of an answer: a score, or a failure beside it that cannot be mistaken for one."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.result import EvaluatorResult, TokenUsage, Verdict


class Score(msgspec.Struct, frozen=True, gc=False):
    """How good an answer is, from 0 to 1, and why. A number outside that range is no score.

    `verdict` is for types that decide it themselves, by a gate of their own; else the score does.
    """

    score: float
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    reasoning: str | None = None
    details: Any = None
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    request: dict[str, Any] | None = None
    members: tuple[EvaluatorResult, ...] = ()
    verdict: Verdict | None = None


class EvaluatorFailure(Exception):
    """An evaluator that could not score. The job becomes an error; nothing is counted as a zero.

    `members` are what the members of a composite found before one of them failed.
    """

    def __init__(self, message: str = "", members: tuple[EvaluatorResult, ...] = ()) -> None:
        super().__init__(message)
        self.members = members
