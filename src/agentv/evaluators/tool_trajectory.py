"""The tool trajectory: which tools were called, how often, in which order and with which arguments."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from agentv.evaluators.base import OTHER_TOOLS, Count, Evaluator, Limit

ArgumentMatch = Literal["exact", "superset", "subset", "ignore"] | list[str]
"""`superset`: listed arguments are there and equal, others may be; a list: only these arguments are compared."""


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One expected call. `args` unset or `any` means any arguments; `args_match` replaces the evaluator's."""

    aliases: ClassVar[dict[str, str]] = {"name": "tool", "arguments": "args", "input": "args"}

    tool: str
    args: dict[str, Any] | Literal["any"] | None = None
    args_match: ArgumentMatch | None = None
    max_duration_ms: Limit | None = None


class ToolTrajectory(Evaluator, frozen=True, kw_only=True):
    """`any_order` counts calls by `minimums`; the other modes hold the calls against `expected`."""

    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "steps": "List the calls in `expected`: `expected: [{tool: search}]`",
    }

    mode: Literal["any_order", "in_order", "exact", "subset", "superset"]
    minimums: dict[str, Count] | None = None
    expected: list[ExpectedCall] | None = None
    args_match: ArgumentMatch = "superset"

    def complaints(self) -> list[str]:
        """The list that the mode needs is missing or blank, or the one of another mode is there."""
        needed, other = ("minimums", "expected") if self.mode == "any_order" else ("expected", "minimums")
        complaints = []
        if not getattr(self, needed):
            complaints.append(f"Mode '{self.mode}' needs '{needed}'")
        if getattr(self, other):
            complaints.append(f"Mode '{self.mode}' takes '{needed}', not '{other}'")
        if any(not call.tool.strip() for call in self.expected or ()):
            complaints.append("A call in 'expected' has a blank 'tool'")
        return complaints
