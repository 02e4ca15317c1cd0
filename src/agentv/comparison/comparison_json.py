"""Comparisons as JSON, as written by `agentv compare --json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentv.comparison.comparison import Comparison, Matrix, Side
from agentv.comparison.error_bounds import ErrorBounds
from agentv.comparison.part_comparison import PartComparison, UsageChange
from agentv.stats.paired_comparison import Paired


def comparison_data(comparison: Comparison, exit_code: int, *, as_list: bool = True) -> dict[str, Any]:
    """Return a comparison of two runs as JSON, with the names that AgentV (TypeScript) uses, and further fields."""
    matched = map(msgspec.to_builtins, comparison.pairs)  # there can be millions
    first, second = comparison.unmatched
    margin, paired = comparison.non_inferiority, comparison.paired
    summary = {
        "total": comparison.common + first + second + len(comparison.other_inputs),
        "matched": len(comparison.pairs),
        "wins": comparison.wins,
        "losses": comparison.losses,
        "ties": comparison.ties,
        "threshold": comparison.threshold,
        **(_paired(paired) if paired else {**dict.fromkeys((*Paired._fields, "answer")), "n": 0, "clusters": 0}),
        "non_inferiority": None if margin is None else margin._asdict(),
        "probability_better": comparison.probability_better,
        "errors": _errors(comparison.errors, comparison.is_comparable),
        **({"answer": comparison.answer} if paired else {}),
        **_measure(comparison),
        "exit_code": exit_code,
    }
    return {
        "matched": list(matched) if as_list else matched,
        "unmatched": {"file1": first, "file2": second},
        "unscored": dict(zip(("file1", "file2"), comparison.unscored, strict=True)),
        "summary": summary,
        "runs": _sides(comparison.sides),
        "pass_rate": comparison.pass_rate and _paired(comparison.pass_rate, is_comparable=comparison.is_comparable),
        "datasets": _parts(comparison.datasets, comparison.is_comparable),
        "weighted": msgspec.to_builtins(comparison.weighted),
        "evaluators": _parts(comparison.evaluators, comparison.is_comparable),
        "tags": _parts(comparison.tags, comparison.is_comparable),
        "cost_usd": _use(comparison.cost),
        "duration_ms": _use(comparison.duration),
        "changes": [
            {"eval_id": each.pair.eval_id, "dataset": each.pair.dataset, "delta": each.pair.delta,
             "answer1": each.answer1, "answer2": each.answer2, "reason": each.reason,
             "trajectory": msgspec.to_builtins(each.behaviour)}
            for each in comparison.changes
        ],
        "regressions": msgspec.to_builtins(comparison.regressions),
        "other_inputs": msgspec.to_builtins(comparison.other_inputs),
        "what_changed": msgspec.to_builtins(comparison.what_changed),
        "notes": list(comparison.notes),
    }  # fmt: skip


def matrix_data(matrix: Matrix, exit_code: int) -> dict[str, Any]:
    """Return a matrix as JSON. A difference is the second run of its pair minus the first."""
    size = range(len(matrix.sides))
    differences = [
        {
            "run1": i,
            "run2": j,
            **_paired(found),
            "p_adjusted": matrix.p_adjusted[i][j],
            "errors": _errors(matrix.errors.get((i, j)), matrix.is_comparable),
            "answer": matrix.conclusion(i, j) if matrix.is_comparable else None,
        }
        for i in size
        for j in size
        if (found := matrix.differences[i][j]) is not None
    ]
    return {
        "runs": _sides(matrix.sides),
        "matched": matrix.n,
        "clusters": matrix.clusters,
        "left_out": list(matrix.left_out),
        "means": [mean._asdict() for mean in matrix.means],
        "differences": differences,
        "ranking": [
            {"run": ranked.side, "mean": ranked.mean, "places": list(ranked.places)} for ranked in matrix.ranking
        ],
        "other_inputs": msgspec.to_builtins(matrix.other_inputs),
        "what_changed": [
            {"run1": 0, "run2": place, "changes": msgspec.to_builtins(changes)}
            for place, changes in enumerate(matrix.what_changed, 1)
        ],
        "notes": list(matrix.notes),
        "summary": {**_measure(matrix), "exit_code": exit_code},
    }


def _measure(found: Comparison | Matrix) -> dict[str, Any]:
    """Return whether the measure changed and, without a verdict, the commands that make the runs comparable."""
    data = {"measure_changed": any(found.measure_changes), "remedy": list(found.remedy)}
    hidden = () if found.is_comparable else ("answer", "non_inferiority", "probability_better")
    return {**data, **dict.fromkeys(hidden)}


def _paired(paired: Paired, *, is_comparable: bool = True) -> dict[str, Any]:
    return {**paired._asdict(), "answer": paired.answer if is_comparable else None}


def _errors(errors: ErrorBounds | None, is_comparable: bool) -> dict[str, Any] | None:
    """Return the cases that errored in one run only, the error rates, and the difference if they count as 0 and 1."""
    if errors is None:
        return None
    only = dict(zip(("file1", "file2"), errors.only, strict=True))
    bounds = {"against": errors.against, "in_favour": errors.in_favour}
    shown = {name: _paired(paired, is_comparable=is_comparable) for name, paired in bounds.items()}
    return {"only": only, "rates": _paired(errors.rates), **shown}


def _sides(sides: Sequence[Side]) -> list[dict[str, Any]]:
    return [{**msgspec.structs.asdict(side), "mean": side.mean and side.mean._asdict()} for side in sides]


def _parts(parts: Sequence[PartComparison], is_comparable: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": part.name,
            **_paired(part.paired, is_comparable=is_comparable),
            **({} if part.pooled is None else {"pooled": part.pooled}),
            "p_adjusted": part.p_adjusted,
        }
        for part in parts
    ]


def _use(use: UsageChange | None) -> dict[str, Any] | None:
    return None if use is None else {**msgspec.to_builtins(use), "difference": use.difference._asdict()}
