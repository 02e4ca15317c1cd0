"""Why cases became worse: groups of their failures, and where their tool calls diverge. Reads only changed cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.behaviour.trajectory import Divergence, Step, align, first_divergence
from agentv.comparison.scores import GroupedCases
from agentv.errors import UsageError
from agentv.model.diagnostics import did_you_mean
from agentv.model.message import stored_tool_calls
from agentv.model.result import Result
from agentv.runs.failure_groups import FailureGroups, TagCounts, group_failures
from agentv.runs.record import ScoreRecord

if TYPE_CHECKING:
    from agentv.comparison.joined_cases import JoinedCases

MOST_EXAMINED = 2_000
"""Regressions whose records are read, the largest first."""

_EXAMPLES = 3


class DivergenceCount(msgspec.Struct, frozen=True, kw_only=True):
    """The regressions whose tool calls first differ at the same tool: their number, by kind, and ids of cases."""

    tool: str
    count: int
    kinds: dict[str, int]
    examples: tuple[str, ...]


class Regressions(msgspec.Struct, frozen=True, kw_only=True):
    """The cases that the second run lost. `examined` of `total` were read, the largest first.

    `with_calls` of the examined cases have tool calls in A or in B; `diverged` of these differ in a call. `still_pass`
    are the cases that lost score but still pass; all others are in `failures`. Their tags are compared with all cases.
    """

    total: int
    examined: int
    with_calls: int
    diverged: int
    divergences: tuple[DivergenceCount, ...]
    still_pass: int
    failures: FailureGroups


class CaseBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The tool calls of one case in both runs, aligned; `divergence` is None if they are equal."""

    dataset: str
    eval_id: str
    steps: tuple[Step, ...]
    divergence: Divergence | None


def find_regressions(joined: JoinedCases, deltas: NDArray[Any], threshold: float) -> Regressions | None:
    """Return why cases became worse; None if none did."""
    lost = np.flatnonzero((deltas <= -threshold) & (deltas < 0))
    if not len(lost):
        return None
    rows = lost[np.argsort(deltas[lost], kind="stable")][:MOST_EXAMINED]
    before, after = changed_records(joined, rows)
    divergences: dict[str, list[tuple[str, Divergence]]] = {}
    with_calls = 0
    for row in rows.tolist():
        first, second = (stored_tool_calls(records[row].output_messages) for records in (before, after))
        with_calls += bool(first or second)
        if (divergence := first_divergence(first, second)) is not None:
            divergences.setdefault(divergence.tool, []).append((after[row].eval_id, divergence))
    tags = {tag: len(cases) for tag, cases in joined.tags().items()}
    return Regressions(
        total=len(lost),
        examined=len(rows),
        with_calls=with_calls,
        diverged=sum(map(len, divergences.values())),
        divergences=_counted(divergences),
        still_pass=sum(1 for result in after.values() if result.verdict == "pass"),
        failures=group_failures(after.values(), TagCounts(len(joined.index), tags)),
    )


def _counted(divergences: Mapping[str, Sequence[tuple[str, Divergence]]]) -> tuple[DivergenceCount, ...]:
    counts = (
        DivergenceCount(
            tool=tool,
            count=len(members),
            kinds=dict(Counter(divergence.kind for _, divergence in members).most_common()),
            examples=tuple(id for id, _ in members[:_EXAMPLES]),
        )
        for tool, members in divergences.items()
    )
    return tuple(sorted(counts, key=lambda each: (-each.count, each.tool)))


def behaviour_of(before: Result, after: Result) -> CaseBehaviour | None:
    """Return the aligned tool calls of a case; None if it has none in either run."""
    first, second = (stored_tool_calls(result.output_messages) for result in (before, after))
    if not first and not second:
        return None
    divergence = first_divergence(first, second)
    return CaseBehaviour(
        dataset=after.dataset, eval_id=after.eval_id, steps=align(first, second), divergence=divergence
    )


def changed_records(joined: JoinedCases, rows: Iterable[int]) -> tuple[dict[int, Result], dict[int, Result]]:
    """Return the records of some rows of the scores of both runs.

    With several trials, they are those that show the change: of a case that lost, the best trial before and the worst
    after; of a case that won, the other way round.
    """
    indices = [int(row) for row in rows]
    deltas = joined.scores[1] - joined.scores[0]
    results = []
    for place, side in enumerate(joined.sides):
        signs = {int(joined.index[row][place]): float(deltas[row]) * (1 if place else -1) for row in indices}
        records = _records(side, signs)
        results.append({row: records[int(joined.index[row][place])] for row in indices})
    return results[0], results[1]


def _records(side: GroupedCases, signs: Mapping[int, float]) -> dict[int, Result]:
    """Return a scored record of each group: the one with the highest score if its sign is positive, else the lowest."""
    run = side.run
    if run.records == len(side):
        offsets = {group: run.starts[int(side.first[group])] for group in signs}
    else:
        names = {side.name(group): group for group in signs}
        best: dict[int, tuple[float, int]] = {}
        for offset, record in run.run.entries(ScoreRecord):
            key = (record.dataset, record.eval_id, record.target, record.prompt)
            group = names.get(tuple(key[part] for part in side.parts))
            if group is None or record.score is None or run.picked not in (None, record.target, record.prompt):
                continue
            ranked = (-record.score if signs[group] > 0 else record.score, offset)
            best[group] = min(best.get(group, ranked), ranked)
        offsets = {group: offset for group, (_, offset) in best.items()}
    return {group: run.run.read(offset) for group, offset in offsets.items()}


def rows_of(joined: JoinedCases, ids: Sequence[str]) -> list[int]:
    """Return the rows of the scores with these ids. Raises UsageError for an id that both runs do not have."""
    place = joined.parts.index(1)
    rows_by_id: dict[str, list[int]] = {id: [] for id in ids}
    all_ids: set[str] = set()
    for row in range(len(joined.index)):
        id = str(joined.name(row)[place])
        all_ids.add(id)
        if id in rows_by_id:
            rows_by_id[id].append(row)
    for id, rows in rows_by_id.items():
        if not rows:
            hint = did_you_mean(id, all_ids) or "Cases are compared if both runs scored them"
            raise UsageError(f"No shared case has the id '{id}'", hint=hint)
    return [row for rows in rows_by_id.values() for row in rows]
