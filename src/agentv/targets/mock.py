"""The mock target: answers made up from settings, for trying things out without a model."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from agentv.model.message import ToolCall
from agentv.model.result import TokenUsage
from agentv.targets.base import NonNegative, Target


class Mock(Target, frozen=True, kw_only=True):
    """`response` for every case (unset: the last user message again), or `responses` by globs over case ids.

    `delay_ms` is a number or the least and the most; `fault_rate` is the share of calls that fail.
    """

    response: str | None = None
    responses: dict[str, str] = {}
    # A list, not a tuple of two: msgspec 0.22 crashes on a fixed tuple in a union with a bounded number.
    delay_ms: NonNegative | list[NonNegative] = 0.0
    fault_rate: Annotated[float, Meta(ge=0, le=1)] = 0.0
    tool_calls: tuple[ToolCall, ...] = ()
    token_usage: TokenUsage | None = None

    def complaints(self) -> list[str]:
        """A range of delays that is none."""
        if isinstance(self.delay_ms, list) and (len(self.delay_ms) != 2 or self.delay_ms[0] > self.delay_ms[1]):
            return ["'delay_ms' must be a number, or the least and the most: [100, 500]"]
        return []
