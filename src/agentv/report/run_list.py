"""Runs as lines of a table, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from agentv.model.run import TargetSummary
from agentv.report.figures import NONE, Table, fitted, interval, number, percent, usd
from agentv.report.text import one_line, visible
from agentv.results.catalogue import RunEntry

_HEAD = ["run", "began", "state", "datasets", "target", "mean", "95 % interval", "passed", "scored", "errors", "cost"]
_SPARE = ("cost", "began", "passed", "errors", "datasets", "state", "95 % interval")
"""What goes first where there is no room: `began` is in most runs' ids, and a mean keeps what it stands on."""

_LONGEST_NAME, _SHORT_NAME = 30, 14


def run_list(runs: Sequence[RunEntry], width: int | None = None) -> Table:
    """A head, and a line for each run and target, as wide as there is room; None: as they are."""
    for longest in (_LONGEST_NAME, _SHORT_NAME):
        table = fitted(_rows(runs, longest), width, _SPARE)
        if not table.left_out:
            break
    return table


def _rows(runs: Sequence[RunEntry], longest: int) -> list[list[str]]:
    """What a run says once stands on its first line. Its name is never cut: it is there to be typed."""
    rows = [_HEAD]
    for run in runs:
        about = [visible(run.name), _began(run), _state(run), _datasets(run, longest)]
        targets: list[tuple[str, TargetSummary | None]] = [*run.targets.items()] or [(NONE, None)]
        for number_, (name, target) in enumerate(targets):
            rows.append([*(about if not number_ else [""] * len(about)), one_line(name, longest), *_figures(target)])
    return rows


def _began(run: RunEntry) -> str:
    return (run.started_at or NONE)[:16].replace("T", " ")


def _state(run: RunEntry) -> str:
    if run.state in ("unfinished", "running") and run.jobs:
        return f"{run.state}, {run.done or 0:,} of {run.jobs:,}"
    return run.state


def _datasets(run: RunEntry, longest: int) -> str:
    if len(run.datasets) > 2:
        return f"{len(run.datasets):,} datasets"
    return one_line(", ".join(run.datasets), longest) or NONE


def _figures(target: TargetSummary | None) -> list[str]:
    if target is None:
        return [NONE] * 6
    return [
        number(target.mean),
        interval(target.ci95),
        percent(target.pass_rate),
        f"{target.scored:,} of {target.jobs:,}",
        f"{target.errors:,}",
        usd(target.cost_usd),
    ]
