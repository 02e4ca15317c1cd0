"""Runs over time, for people: one row a run, its mean on the line from 0 to 1, and where the level changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from agentv.model.run import TargetSummary
from agentv.report.figures import interval, number
from agentv.report.text import one_line, visible
from agentv.results.catalogue import RunEntry
from agentv.stats.changes import Change, Point, change_points

_WIDTH = 25
_LONGEST_NAME = 60
_DRAWN, _PLAIN = ("·", "─", "●"), (".", "-", "*")


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of the same datasets and the same target, the oldest first, and where their level changed."""

    datasets: tuple[str, ...]
    target: str
    runs: tuple[tuple[RunEntry, TargetSummary], ...]
    changes: tuple[Change, ...] = ()


def series_of(runs: Sequence[RunEntry]) -> list[Series]:
    """Runs by what they ran. A run without scores has no place in a trend."""
    found: dict[tuple[tuple[str, ...], str], list[tuple[RunEntry, TargetSummary]]] = {}
    for run in sorted(runs, key=lambda run: (run.started_at or "", run.run_id)):
        for name, target in run.targets.items():
            if target.mean is not None:
                found.setdefault((tuple(sorted(run.datasets)), name), []).append((run, target))
    return [
        Series(datasets=datasets, target=target, runs=tuple(members), changes=tuple(_changes(members)))
        for (datasets, target), members in found.items()
    ]


def _changes(members: Sequence[tuple[RunEntry, TargetSummary]]) -> list[Change]:
    """Changes among the runs that have an interval; one without tells nothing of how sure it is."""
    known = [
        (position, Point(target.mean, *target.ci95))
        for position, (_, target) in enumerate(members)
        if target.mean is not None and target.ci95 is not None
    ]
    changes = change_points([point for _, point in known])
    return [change._replace(position=known[change.position][0]) for change in changes]


def trend_lines(series: Series, drawn: bool) -> Iterator[str]:
    """A series as lines of text."""
    yield f"{one_line(', '.join(series.datasets) or 'no dataset', _LONGEST_NAME)} · {one_line(series.target, 40)}"
    changes = {change.position: change for change in series.changes}
    for position, (run, target) in enumerate(series.runs):
        if position in changes:
            change = changes[position]
            direction = "up" if change.after > change.before else "down"
            levels = f"from {number(change.before)} to {number(change.after)}"
            yield f"  went {direction} here: {levels} ({_p_value(change.p_value)})"
        yield (
            f"  {(run.started_at or '')[:16].replace('T', ' '):16}  {number(target.mean)}  "
            f"{_line(target, drawn)}  {interval(target.ci95):14}  n = {target.scored:<6} "
            f"{visible(run.name)}{_commit(run)}"
        ).rstrip()
    if len(series.runs) > 1 and not changes:
        yield f"  no change shown in {len(series.runs)} runs"


def _line(target: TargetSummary, drawn: bool) -> str:
    blank, range_, point = _DRAWN if drawn else _PLAIN
    cells = [blank] * _WIDTH
    if target.ci95 is not None:
        for cell in range(_cell(target.ci95[0]), _cell(target.ci95[1]) + 1):
            cells[cell] = range_
    cells[_cell(target.mean or 0.0)] = point
    return "".join(cells)


def _cell(value: float) -> int:
    return min(_WIDTH - 1, int(value * _WIDTH))


def _p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _commit(run: RunEntry) -> str:
    return f"  {run.git_commit[:10]}" if run.git_commit else ""
