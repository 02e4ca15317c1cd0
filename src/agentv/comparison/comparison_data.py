"""Comparisons as JSON: the names of AgentV's own comparisons, and everything else beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentv.comparison.comparison import Comparison, Matrix, Part, Use
from agentv.stats.means import Estimate
from agentv.stats.paired_comparison import Paired


def comparison_data(comparison: Comparison, exit_code: int) -> dict[str, Any]:
    """Two runs."""
    first, second = comparison.unmatched
    asked = comparison.non_inferiority
    paired = comparison.paired
    summary = {
        "total": comparison.common + first + second,
        "matched": len(comparison.pairs),
        "wins": comparison.wins,
        "losses": comparison.losses,
        "ties": comparison.ties,
        "threshold": comparison.threshold,
        **(_paired(paired) if paired else {**dict.fromkeys((*Paired._fields, "answer")), "n": 0, "clusters": 0}),
        "non_inferiority": None if asked is None else dict(asked._asdict()),
        "exit_code": exit_code,
    }
    return {
        "matched": [msgspec.to_builtins(pair) for pair in comparison.pairs],
        "unmatched": {"file1": first, "file2": second},
        "unscored": dict(zip(("file1", "file2"), comparison.unscored, strict=True)),
        "summary": summary,
        "runs": _sides(comparison.sides),
        "evaluators": _parts(comparison.evaluators),
        "tags": _parts(comparison.tags),
        "cost_usd": _use(comparison.cost),
        "duration_ms": _use(comparison.duration),
        "changes": [
            {"eval_id": each.pair.eval_id, "dataset": each.pair.dataset, "delta": each.pair.delta,
             "answer1": each.answer1, "answer2": each.answer2, "reason": each.reason}
            for each in comparison.changes
        ],
        "notes": list(comparison.notes),
    }  # fmt: skip


def matrix_data(matrix: Matrix, exit_code: int) -> dict[str, Any]:
    """Many runs. A difference is of the second run of its pair against the first."""
    size = range(len(matrix.sides))
    differences = [
        {"run1": i, "run2": j, **_paired(found), "p_adjusted": matrix.p_adjusted[i][j]}
        for i in size
        for j in size
        if (found := matrix.differences[i][j]) is not None
    ]
    return {
        "runs": _sides(matrix.sides),
        "matched": matrix.n,
        "clusters": matrix.clusters,
        "left_out": list(matrix.left_out),
        "means": [_estimate(mean) for mean in matrix.means],
        "differences": differences,
        "ranking": [
            {"run": ranked.side, "strength": ranked.value, "ci95": ranked.ci95, "share": ranked.share}
            for ranked in matrix.ranking
        ],
        "notes": list(matrix.notes),
        "summary": {"exit_code": exit_code},
    }


def _paired(paired: Paired) -> dict[str, Any]:
    return {**paired._asdict(), "answer": paired.answer}


def _sides(sides: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {**msgspec.structs.asdict(side), "mean": None if side.mean is None else _estimate(side.mean)} for side in sides
    ]


def _parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [{"name": part.name, **_paired(part.paired), "p_adjusted": part.p_adjusted} for part in parts]


def _use(use: Use | None) -> dict[str, Any] | None:
    if use is None:
        return None
    return {"n": use.n, "before": use.before, "after": use.after, "difference": _estimate(use.difference)}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return dict(estimate._asdict())
