"""Runs as lines of a table, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from agentv.model.run import TargetSummary
from agentv.report.figures import NONE, aligned, interval, number, percent, usd
from agentv.report.text import one_line
from agentv.results.catalogue import RunEntry

_HEAD = ["run", "began", "state", "datasets", "target", "mean", "95 % interval", "passed", "scored", "errors", "cost"]
_LONGEST_NAME = 30


def run_list_lines(runs: Sequence[RunEntry]) -> list[str]:
    """A head, and a line for each run and target; what a run says once stands on its first line."""
    rows = [_HEAD]
    for run in runs:
        about = [one_line(run.run_id, _LONGEST_NAME), _began(run), _state(run), _datasets(run)]
        targets: list[tuple[str, TargetSummary | None]] = [*run.targets.items()] or [(NONE, None)]
        for number_, (name, target) in enumerate(targets):
            rows.append(
                [*(about if not number_ else [""] * len(about)), one_line(name, _LONGEST_NAME), *_figures(target)]
            )
    return aligned(rows)


def _began(run: RunEntry) -> str:
    return (run.started_at or NONE)[:16].replace("T", " ")


def _state(run: RunEntry) -> str:
    if run.state in ("unfinished", "running") and run.jobs:
        return f"{run.state}, {run.done or 0:,} of {run.jobs:,}"
    return run.state


def _datasets(run: RunEntry) -> str:
    if len(run.datasets) > 2:
        return f"{len(run.datasets):,} datasets"
    return one_line(", ".join(run.datasets), _LONGEST_NAME) or NONE


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
