"""What a judge's own calls to models took, added up: calls, tokens, cost."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agentv.model.response import Response
from agentv.model.result import TokenUsage
from agentv.model.score import Score


class Spending:
    """Counts responses. A cost that one of them does not say is left out of the sum, as it is not known."""

    def __init__(self) -> None:
        self.calls = 0
        self.usage: TokenUsage | None = None
        self.cost_usd: float | None = None

    def count(self, response: Response) -> None:
        """One more call that was answered."""
        self.calls += 1
        if response.usage is not None:
            self.usage = _together(self.usage, response.usage)
        if response.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + response.cost_usd

    def added_to(self, score: Score) -> Score:
        """The score with what it took besides what it says itself."""
        if not self.calls:
            return score
        usage = score.token_usage if self.usage is None else _together(score.token_usage, self.usage)
        cost = score.cost_usd if self.cost_usd is None else (score.cost_usd or 0.0) + self.cost_usd
        return msgspec.structs.replace(score, token_usage=usage, cost_usd=cost)


def _together(one: TokenUsage | None, other: TokenUsage) -> TokenUsage:
    if one is None:
        return other
    both = msgspec.structs.asdict(other)
    return msgspec.structs.replace(one, **{name: _sum(value, both[name]) for name, value in _said(one, both)})


def _said(one: TokenUsage, both: dict[str, int | None]) -> Iterator[tuple[str, int | None]]:
    """Figures that either of the two says."""
    return ((name, value) for name, value in msgspec.structs.asdict(one).items() if (value, both[name]) != (None, None))


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
