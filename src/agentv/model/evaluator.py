"""An evaluator as a dataset names it: type, name, weight and the type's own settings. Not the thing that scores."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.result import EvaluatorResult, TokenUsage, Verdict
from agentv.model.values import FrozenDict, digest

DEFAULT_TYPE = "llm_judge"


class EvaluatorSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Plain data from which an evaluator is built where it runs; equal by content, safe to pickle."""

    type: str
    name: str
    weight: float = 1.0
    required: bool | float = False
    negate: bool = False
    transform: FrozenDict | None = None
    target: str | tuple[str, ...] | None = None
    settings: FrozenDict = FrozenDict()

    def to_data(self) -> dict[str, Any]:
        """The entry as a dataset would write it: defaults left out, then the type's own settings."""
        data: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.weight != 1:
            data["weight"] = self.weight
        for key in ("required", "negate", "transform", "target"):
            value = getattr(self, key)
            if value is not None and value is not False:
                data[key] = value
        return data | self.settings

    @property
    def fingerprint(self) -> str:
        """A hash of everything that shapes its scores, as far as the entry itself says it."""
        return digest({key: value for key, value in self.to_data().items() if key not in ("name", "weight")})


DEFAULT_EVALUATOR = EvaluatorSpec(type=DEFAULT_TYPE, name=DEFAULT_TYPE)


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
