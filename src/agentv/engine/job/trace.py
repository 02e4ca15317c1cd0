"""What an answer did: its tool calls, counted and timed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agentv.model.message import Message, tool_calls_in
from agentv.model.result import TraceSummary


def summarise_trace(messages: Sequence[Message], errors: int = 0) -> TraceSummary | None:
    """The tool calls of an answer by name, `errors` of which failed; None when it made none."""
    if _is_one_text(messages) or not any(message.tool_calls for message in messages):
        return None
    counts = Counter(call.tool for call in tool_calls_in(messages))
    names = tuple(sorted(counts))
    return TraceSummary(sum(counts.values()), names, {name: counts[name] for name in names}, errors)


def tool_durations(messages: Sequence[Message]) -> dict[str, list[float]]:
    """How long each call of each tool took, as far as the target said so, in milliseconds."""
    durations: dict[str, list[float]] = {}
    if _is_one_text(messages):
        return durations
    for call in tool_calls_in(messages):
        if call.duration_ms is not None:
            durations.setdefault(call.tool, []).append(call.duration_ms)
    return durations


def _is_one_text(messages: Sequence[Message]) -> bool:
    """As most answers are; they need no second look."""
    return len(messages) == 1 and not messages[0].tool_calls
