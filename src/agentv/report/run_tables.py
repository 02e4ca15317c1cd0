"""Tables for a terminal: the list of runs, trends, and the changes of a rescore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from agentv.errors import plural
from agentv.report.figures import NONE, Table, fitted, interval, number, one_line, p_equals, visible
from agentv.report.target_facts import TABLES, column_labels, columns
from agentv.runs.catalogue import RunEntry
from agentv.runs.run_figures import Delta, MeanChange
from agentv.runs.target_summary import TargetSummary

if TYPE_CHECKING:
    from agentv.comparison.trend import Series  # its module imports numpy

_HEAD = ["run", "began", "state", "datasets"]
_SPARE = ("cost", "began", "passed", "errors", "datasets", "state", "experiment", "tags", "95 % interval")
"""The columns to drop first on a narrow terminal."""

_NAME_LENGTHS = (30, 14)
_OPEN = ("unfinished", "running")


def run_list(runs: Sequence[RunEntry], width: int | None = None) -> Table:
    """Return a table with a line for each run and target that fits the width; None means any width."""
    for longest in _NAME_LENGTHS:
        table = fitted(_rows(runs, longest), width, _SPARE)
        if not table.left_out:
            break
    return table


def _rows(runs: Sequence[RunEntry], longest: int) -> list[list[str]]:
    """Return the rows. Values of the whole run are on its first line; its name is never cut."""
    optional = [name for name in ("experiment", "tags") if any(getattr(run, name) for run in runs)]
    rows = [[*_HEAD, *optional, "target", *column_labels("list")]]
    for run in runs:
        names = {"experiment": run.experiment or NONE, "tags": ", ".join(run.tags) or NONE}
        state = f"{run.state}, {run.done or 0:,} of {run.jobs:,}" if run.jobs and run.state in _OPEN else run.state
        datasets = one_line(", ".join(run.datasets), longest) or NONE
        if len(run.datasets) > 2:
            datasets = f"{len(run.datasets):,} datasets"
        about = [visible(run.name), (run.started_at or NONE)[:16].replace("T", " "), state, datasets]
        about += [one_line(names[name], longest) for name in optional]
        targets: list[tuple[str, TargetSummary | None]] = [*run.targets.items()] or [(NONE, None)]
        for number_, (name, target) in enumerate(targets):
            texts = [NONE] * len(TABLES["list"]) if target is None else columns("list", target).values()
            rows.append([*(about if not number_ else [""] * len(about)), one_line(name, longest), *texts])
    return rows


_WIDTH = 25
_LONGEST_TITLE = 60
_DRAWN, _PLAIN = ("·", "─", "●"), (".", "-", "*")


def trend_lines(series: Series, can_draw: bool) -> Iterator[str]:
    """Yield the lines of a series."""
    yield f"{one_line(', '.join(series.datasets) or 'no dataset', _LONGEST_TITLE)} · {one_line(series.target, 40)}"
    changes = {change.position: change for change in series.changes}
    for position, (run, target) in enumerate(series.runs):
        if position in changes:
            change = changes[position]
            direction = "up" if change.after > change.before else "down"
            levels = f"from {number(change.before)} to {number(change.after)}"
            cases = plural(change.cases, "shared case")
            yield f"  went {direction} here: {levels} on {cases} ({p_equals(change.p_value)})"
        if others := series.other_measures.get(position):
            yield f"  measure changed here: {plural(others, 'case')} asked or scored differently than before"
        commit = f"  {run.git_commit[:10]}" if run.git_commit else ""
        yield (
            f"  {(run.started_at or '')[:16].replace('T', ' '):16}  {number(target.mean)}  "
            f"{_line(target, can_draw)}  {interval(target.ci95):14}  n = {target.scored:<6} "
            f"{visible(run.name)}{commit}"
        ).rstrip()
    if len(series.runs) > 1 and not changes:
        cases = plural(series.shared, "case") if series.shared else "no case"
        yield f"  no change shown in {plural(len(series.runs), 'run')}; the last one shares {cases} with earlier ones"
    for position in series.unread:
        yield f"  not compared, because its results cannot be read: {visible(series.runs[position][0].name)}"


def _line(target: TargetSummary, can_draw: bool) -> str:
    blank, range_, point = _DRAWN if can_draw else _PLAIN
    cells = [blank] * _WIDTH
    if target.ci95 is not None:
        for cell in range(_cell(target.ci95[0]), _cell(target.ci95[1]) + 1):
            cells[cell] = range_
    cells[_cell(target.mean or 0.0)] = point
    return "".join(cells)


def _cell(value: float) -> int:
    return min(_WIDTH - 1, int(value * _WIDTH))


_LONGEST_NAME = 40


def delta_lines(deltas: Mapping[str, Delta], source: str) -> list[str]:
    """Return the changes compared with the source run."""
    lines = [f"Compared with {source}"]
    for target, delta in deltas.items():
        lines += ["", one_line(target, _LONGEST_NAME), *(f"  {line}" for line in _target(delta))]
    return lines


def _target(delta: Delta) -> Iterator[str]:
    scored = delta.scores
    yield f"mean        {_change(scored)}, over {scored.n:,} of {plural(delta.jobs, 'job')} scored in both runs"
    if scored.n:
        yield f"passed      {delta.passed[0]} → {delta.passed[1]} of {scored.n}"
    errors = f"errors      {delta.errors[0]} → {delta.errors[1]} of {delta.jobs}"
    yield errors + (f" ({delta.mended} fixed, {delta.broken} new)" if delta.mended or delta.broken else "")
    if delta.carried:
        yield f"carried     {delta.carried:,} of {plural(delta.jobs, 'record')} carried over unchanged"
    flips = ", ".join(f"{count} {kind}" for kind, count in delta.flips.items())
    yield f"changed     {sum(delta.flips.values()):,} of {plural(scored.n, 'verdict')}" + (
        f": {flips}" if flips else ""
    )
    for flip in delta.flipped:
        name = one_line(flip.eval_id, _LONGEST_NAME) + (f" (trial {flip.trial})" if flip.trial > 1 else "")
        yield f"  {name}: {flip.before} {number(flip.score_before)} → {flip.after} {number(flip.score_after)}"
    hidden = sum(delta.flips.values()) - len(delta.flipped)
    if hidden > 0:
        yield f"  and {hidden} more"
    width = max(map(len, delta.evaluators), default=0)
    if delta.evaluators:
        yield "evaluators"
    for name, change in delta.evaluators.items():
        yield f"  {one_line(name, _LONGEST_NAME):<{min(width, _LONGEST_NAME)}}  {_change(change)}, n = {change.n}"


def _change(change: MeanChange) -> str:
    if change.before is None or change.after is None:
        return "unknown"
    return f"{number(change.before)} → {number(change.after)} ({change.after - change.before:+.3f})"
