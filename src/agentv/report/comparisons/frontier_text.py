"""Cost and quality of several runs or targets, as a table and as data for the picture on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentv.errors import AgentvError
from agentv.report.figures import bounds_text, letter, number, one_line, usd
from agentv.report.terminal import Line, table_lines
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

if TYPE_CHECKING:
    from agentv.comparison.frontier import CostPoint  # its module imports numpy

TITLE = "Cost and quality"
_LONGEST_NAME = 40
HEAD = ["", "mean", "cost per case", "cost per passed case", "95 % interval", "frontier"]


def letters(points: Sequence[CostPoint]) -> list[str]:
    """Return the letters of compared runs."""
    return [letter(place) for place in range(len(points))]


def frontier_sentence(points: Sequence[CostPoint], names: Sequence[str] | None = None) -> str:
    """State which runs are on the frontier: no other one costs less and scores more. The names are letters if None."""
    names = names or letters(points)
    leaders = [place for place, point in enumerate(points) if point.dominated_by is None]
    best = sorted(leaders, key=lambda place: points[place].cost)
    verb = "is" if len(best) == 1 else "are"
    rest = len(points) - len(best)
    others = f"; {rest} {'is' if rest == 1 else 'are'} dominated" if rest else ""
    doubts = any(point.dominated_by is not None and not point.is_shown for point in points)
    caveat = ". Not shown: the difference in cost or score could be chance" if doubts else ""
    return f"{', '.join(names[place] for place in best)} {verb} on the frontier of cost and quality{others}{caveat}."


def frontier_rows(points: Sequence[CostPoint], names: Sequence[str] | None = None) -> list[list[str]]:
    """Return the table, header first."""
    names = names or letters(points)
    rows = [HEAD]
    for name, point in zip(names, points, strict=True):
        bounds = bounds_text(point.cost_per_pass_ci95, usd, "unbounded")
        figures = number(point.mean), usd(point.cost), usd(point.cost_per_pass)
        rows.append([name, *figures, "none passed" if point.cost_per_pass is None else bounds, _status(point, names)])
    return rows


def frontier_data(points: Sequence[CostPoint], names: Sequence[str]) -> dict[str, Any] | None:
    """Return the sentence, the table and the points of the picture; None without points."""
    if not points:
        return None
    head, *rows = frontier_rows(points, names)
    return {
        "text": frontier_sentence(points, names),
        "table": {"title": TITLE, "head": head, "rows": rows},
        "points": [
            {
                "name": names[place],
                "mean": point.mean,
                "ci95": point.mean_ci95,
                "cost": point.cost,
                "cost_text": usd(point.cost),
                "status": _status(point, names),
                "is_dominated": point.dominated_by is not None,
            }
            for place, point in enumerate(points)
        ],
    }


def run_frontier(run: RunStore, figures: Figures) -> tuple[CostPoint, ...]:
    """Return the cost and quality of the targets of a run; empty with fewer than three, or without costs."""
    targets = figures.summary.targets
    if len(targets) < 3 or any(target.cost_usd is None for target in targets.values()):
        return ()
    from agentv.comparison import frontier, scores  # late: they import numpy

    try:
        return frontier.cost_frontier([scores.RunScores(run.path, name, name) for name in targets])
    except AgentvError:
        return ()  # damaged records, which the report names elsewhere


def frontier_lines(run: RunStore, figures: Figures) -> list[Line]:
    """Return the table of a run's targets as lines for a terminal; empty with fewer than three, or without costs."""
    if not (points := run_frontier(run, figures)):
        return []
    names = [one_line(name, _LONGEST_NAME) for name in figures.summary.targets]
    lines = [("", ""), (TITLE, "bold"), *table_lines(frontier_rows(points, names))]
    return [*lines, (frontier_sentence(points, names), "")]


def _status(point: CostPoint, names: Sequence[str]) -> str:
    if point.dominated_by is None:
        return "on it"
    return f"dominated by {names[point.dominated_by]}" + ("" if point.is_shown else " (not shown)")
