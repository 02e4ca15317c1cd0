"""The data of the page of a comparison: the verdict, what changed, tables, and the list of cases."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.comparison.behaviour.case_pairs import KINDS, CasePair, CasePairs, CaseSide
from agentv.comparison.behaviour.regressions import Regressions
from agentv.comparison.comparison import Comparison, Matrix
from agentv.comparison.comparison_json import comparison_data, matrix_data
from agentv.comparison.joined_cases import JoinedCases
from agentv.report.comparisons.behaviour_text import divergence_lines, divergence_text, regression_title
from agentv.report.comparisons.change_text import change_data, no_verdict_lines
from agentv.report.comparisons.comparison_text import (
    left_out,
    matrix_basis,
    matrix_sentence,
    matrix_tables,
    outcomes,
    side_rows,
    tables,
)
from agentv.report.comparisons.frontier_text import frontier_data, letters
from agentv.report.comparisons.verdict_text import margin_sentence, matrix_notes, method, notes, verdict
from agentv.report.row_blocks import HASHES, equal_as_one
from agentv.report.summary_text import failure_headline, group_cause

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS_A_BLOCK = 16_384


class ComparedRuns:
    """Two compared runs, with all their cases."""

    def __init__(self, comparison: Comparison, joined: JoinedCases) -> None:
        self.comparison = comparison
        self.pairs = CasePairs(joined, comparison.threshold)

    def head(self, exit_code: int) -> dict[str, Any]:
        """Return everything but the cases."""
        return {
            "kind": "comparison",
            **_comparison_head(self.comparison, exit_code),
            "total": len(self.pairs),
            "changed": self.pairs.changed,
            "counts": self.pairs.counts(),
        }

    def block(self, first: int, most: int = ROWS_A_BLOCK) -> dict[str, Any]:
        """Return some cases as columns; a column with equal values as one value."""
        rows = range(first, min(first + most, len(self.pairs)))
        names = self.pairs.names(rows)
        part = slice(rows.start, rows.stop)
        columns: dict[str, list[Any]] = {
            **{key: [name[place] for name in names] for place, key in enumerate(("dataset", "id", "target", "prompt"))},
            "kind": self.pairs.kinds[part].tolist(),
            "before": _or_none(self.pairs.before[part]),
            "after": _or_none(self.pairs.after[part]),
            "change": _or_none(self.pairs.deltas[part]),
            "errors": self.pairs.errors[part].tolist(),
        }
        return {"first": first, "n": len(rows), "total": len(self.pairs), **equal_as_one(columns)}

    def case(self, row: int) -> dict[str, Any]:
        """Return the records of a case in both runs, and how they differ."""
        return pair_data(self.pairs.pair(row))


def _or_none(values: NDArray[Any]) -> list[float | None]:
    return [None if isnan(value) else value for value in values.tolist()]


def _comparison_head(comparison: Comparison, exit_code: int) -> dict[str, Any]:
    data = comparison_data(comparison, exit_code, as_list=False)
    del data["matched"], data["changes"]  # the cases are separate
    methods = [] if comparison.paired is None else [f"Method: {method(comparison.paired)}"]
    return {
        "kinds": KINDS,
        "verdict": _verdict(comparison, verdict(comparison)),
        "margin": margin_sentence(comparison),
        "notes": list(notes(comparison)),
        "outcomes": outcomes(comparison),
        "left_out": list(left_out(comparison)),
        "method": methods,
        "runs": _table("Runs", side_rows(comparison.sides)),
        "tables": [_table(title, rows) for title, rows in tables(comparison)],
        "what_changed": change_data(comparison),
        "regressions": None if comparison.regressions is None else _regressions(comparison.regressions),
        "data": data,
    }


def matrix_head(matrix: Matrix, exit_code: int) -> dict[str, Any]:
    """Return the page of three or more runs, which is a list of tables."""
    return {
        "kind": "matrix",
        "verdict": _verdict(matrix, matrix_sentence(matrix)),
        "notes": list(matrix_notes(matrix)),
        "basis": matrix_basis(matrix),
        "tables": [_table(title, rows) for title, rows in (("Runs", side_rows(matrix.sides)), *matrix_tables(matrix))],
        "frontier": frontier_data(matrix.frontier, letters(matrix.frontier)),
        "what_changed": change_data(matrix),
        "data": matrix_data(matrix, exit_code),
    }


def _verdict(comparison: Comparison | Matrix, text: str) -> dict[str, Any]:
    """Return the conclusion; without one, the reason and the commands that make the runs comparable."""
    if comparison.is_comparable:
        return {"text": text, "answer": comparison.answer if isinstance(comparison, Comparison) else None}
    headline, first, *rest = (line for line, _ in no_verdict_lines(comparison))
    advice = [first, *rest[len(comparison.remedy) :]]
    return {"text": headline, "answer": None, "commands": list(comparison.remedy), "advice": advice}


def _regressions(summary: Regressions) -> dict[str, Any]:
    groups = summary.failures.groups
    return {
        "title": regression_title(summary),
        "divergences": list(divergence_lines(summary)),
        "headline": f"{failure_headline(summary.failures, 'regression')} in B" if summary.failures.failures else None,
        "groups": [{"count": group.count, "cause": group_cause(group), "examples": group.examples} for group in groups],
    }


def _table(title: str, rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    head, *body = rows
    return {"title": title, "head": head, "rows": body}


def pair_data(pair: CasePair) -> dict[str, Any]:
    """Return a case in both runs as JSON."""
    behaviour = pair.behaviour
    return {
        "sides": [None if side is None else _side(side) for side in pair.sides],
        "reason": pair.reason,
        "trajectory": msgspec.to_builtins(behaviour),
        "divergence": None if behaviour is None else divergence_text(behaviour.divergence),
    }


def _side(side: CaseSide) -> dict[str, Any]:
    record = msgspec.to_builtins(side.record)
    return {
        "record": {key: value for key, value in record.items() if key not in HASHES},
        "row": side.row,
        "trials": [dict(zip(("row", "trial", "score", "verdict"), trial, strict=True)) for trial in side.trials],
        "more": side.more,
    }
