"""Align the tool calls of two answers, and find the first step in which they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from agentv.model.message import StoredCall
from agentv.model.values import digest

StepKind = Literal["same", "arguments", "only in A", "only in B"]

_MOST_CALLS = 2_000
"""Calls of an answer that are aligned; the rest of a longer trajectory is ignored."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of two aligned trajectories: a call of both, with the same or other arguments, or of one of them."""

    kind: StepKind
    tool: str
    before: Any = None
    after: Any = None


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first step in which two trajectories differ, counted from 1.

    `before` and `after` are the tools that A and B call there; None if the trajectory has ended. `tool` is the one that
    A calls, or B if A has ended.
    """

    step: int
    kind: Literal["other arguments", "other tool", "stopped", "went on"]
    before: str | None
    after: str | None

    @property
    def tool(self) -> str:
        """The tool that names the divergence."""
        return self.before or self.after or ""


def align(before: Sequence[StoredCall], after: Sequence[StoredCall]) -> tuple[Step, ...]:
    """Align two sequences of tool calls.

    Calls that are equal are aligned first, by the longest common subsequence; the calls between them by tool.
    """
    first, second = before[:_MOST_CALLS], after[:_MOST_CALLS]
    steps: list[Step] = []
    for is_same, (a, b), (c, d) in _matches([_key(call) for call in first], [_key(call) for call in second]):
        if is_same:
            steps += (Step(kind="same", tool=call.tool, before=call.input, after=call.input) for call in first[a:b])
        else:
            steps += _aligned_by_tool(first[a:b], second[c:d])
    return tuple(steps)


def first_divergence(before: Sequence[StoredCall], after: Sequence[StoredCall]) -> Divergence | None:
    """Return the first step in which two sequences of tool calls differ; None if they are equal."""
    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if old.tool != new.tool:
            return Divergence(step=place + 1, kind="other tool", before=old.tool, after=new.tool)
        if _key(old) != _key(new):
            return Divergence(step=place + 1, kind="other arguments", before=old.tool, after=new.tool)
    if len(before) == len(after):
        return None
    place = min(len(before), len(after))
    if len(before) > place:
        return Divergence(step=place + 1, kind="stopped", before=before[place].tool, after=None)
    return Divergence(step=place + 1, kind="went on", before=None, after=after[place].tool)


def _aligned_by_tool(before: Sequence[StoredCall], after: Sequence[StoredCall]) -> Iterator[Step]:
    names = [call.tool for call in before], [call.tool for call in after]
    for is_same, (a, b), (c, d) in _matches(*names):
        if is_same:
            for old, new in zip(before[a:b], after[c:d], strict=True):
                yield Step(kind="arguments", tool=old.tool, before=old.input, after=new.input)
        else:
            yield from (Step(kind="only in A", tool=call.tool, before=call.input) for call in before[a:b])
            yield from (Step(kind="only in B", tool=call.tool, after=call.input) for call in after[c:d])


Range = tuple[int, int]


def _matches(before: list[str], after: list[str]) -> Iterator[tuple[bool, Range, Range]]:
    """Yield alternating blocks of equal and of other items, as ranges of both sequences."""
    from rapidfuzz.distance import LCSseq  # late: only answers with tool calls need it

    open_block = [0, 0, 0, 0]
    for code in LCSseq.opcodes(before, after):
        if code.tag == "equal":
            if open_block[1] > open_block[0] or open_block[3] > open_block[2]:
                yield False, (open_block[0], open_block[1]), (open_block[2], open_block[3])
            yield True, (code.src_start, code.src_end), (code.dest_start, code.dest_end)
            open_block = [code.src_end, code.src_end, code.dest_end, code.dest_end]
        else:
            open_block[1], open_block[3] = code.src_end, code.dest_end
    if open_block[1] > open_block[0] or open_block[3] > open_block[2]:
        yield False, (open_block[0], open_block[1]), (open_block[2], open_block[3])


def _key(call: StoredCall) -> str:
    """Return a text that is equal for calls of the same tool with the same input, whatever the order of its keys."""
    return f"{call.tool}\0{'' if call.input is None else digest(call.input)}"
