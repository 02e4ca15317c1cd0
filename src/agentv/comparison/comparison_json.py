"""Comparisons as JSON, as written by `agentv compare --json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentv.comparison.comparison import Comparison, Matrix, Side
from agentv.comparison.error_bounds import ErrorBounds
from agentv.comparison.judge_evidence import JudgeEvidence
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
        "mean_normalized_gain": comparison.mean_normalized_gain,
        "threshold": comparison.threshold,
        **(_paired(paired) if paired else {**dict.fromkeys((*Paired._fields, "answer")), "n": 0, "clusters": 0}),
        "non_inferiority": None if margin is None else margin._asdict(),
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
        "pass_rate": paired_data(comparison.pass_rate, is_comparable=comparison.is_comparable),
        "datasets": _parts(comparison.datasets, comparison.is_comparable),
        "weighted": msgspec.to_builtins(comparison.weighted),
        "evaluators": _parts(comparison.evaluators, comparison.is_comparable),
        "tags": _parts(comparison.tags, comparison.is_comparable),
        "cost_usd": _use(comparison.cost),
        "duration_ms": _use(comparison.duration),
        "changes": [
            {"eval_id": change.pair.eval_id, "dataset": change.pair.dataset, "delta": change.pair.delta,
             "answer1": change.answer1, "answer2": change.answer2, "reason": change.reason,
             "trajectory": msgspec.to_builtins(change.behaviour)}
            for change in comparison.changes
        ],
        "judge": _judge(comparison.judge),
        "regressions": msgspec.to_builtins(comparison.regressions),
        "other_inputs": msgspec.to_builtins(comparison.other_inputs),
        "what_changed": msgspec.to_builtins(comparison.what_changed),
        "notes": list(comparison.notes),
        **({} if comparison.selected is None else {"selected": comparison.selected}),
    }  # fmt: skip


def matrix_data(matrix: Matrix, exit_code: int) -> dict[str, Any]:
    """Return a matrix as JSON. A difference is the second run of its pair minus the first."""
    size = range(len(matrix.sides))
    differences = [
        {
            "run1": i,
            "run2": j,
            **_paired(paired),
            "p_adjusted": matrix.p_adjusted[i][j],
            "errors": _errors(matrix.errors.get((i, j)), matrix.is_comparable),
            "answer": matrix.conclusion(i, j) if matrix.is_comparable else None,
        }
        for i in size
        for j in size
        if (paired := matrix.differences[i][j]) is not None
    ]
    return {
        "runs": _sides(matrix.sides),
        "matched": matrix.n,
        "clusters": matrix.clusters,
        "left_out": list(matrix.left_out),
        "means": [mean._asdict() for mean in matrix.means],
        "differences": differences,
        "all_pairs": matrix.all_pairs,
        "ranking": [
            {"run": ranked.side, "mean": ranked.mean, "places": list(ranked.places)} for ranked in matrix.ranking
        ],
        "other_inputs": msgspec.to_builtins(matrix.other_inputs),
        "what_changed": [
            {"run1": 0, "run2": place, "changes": msgspec.to_builtins(changes)}
            for place, changes in enumerate(matrix.what_changed, 1)
        ],
        "judge": _judge(matrix.judge),
        "cost_and_quality": msgspec.to_builtins(matrix.frontier),
        "notes": list(matrix.notes),
        "summary": {**_measure(matrix), "exit_code": exit_code},
    }


def _judge(evidence: JudgeEvidence | None) -> dict[str, Any] | None:
    """Return what labels say about the judges."""
    if evidence is None:
        return None
    data: dict[str, Any] = msgspec.to_builtins(evidence)
    return {**data, "is_calibrated": evidence.is_calibrated}


def _measure(comparison: Comparison | Matrix) -> dict[str, Any]:
    """Return whether the measure changed and, without a verdict, the commands that make the runs comparable."""
    data = {"measure_changed": any(comparison.measure_changes), "remedy": list(comparison.remedy)}
    hidden = () if comparison.is_comparable else ("answer", "non_inferiority")
    return {**data, **dict.fromkeys(hidden)}


def paired_data(paired: Paired | None, *, is_comparable: bool = True) -> dict[str, Any] | None:
    """Return the comparison of two columns with its answer, which is null if the measure changed."""
    return None if paired is None else _paired(paired, is_comparable=is_comparable)


def _paired(paired: Paired, *, is_comparable: bool = True) -> dict[str, Any]:
    return {**paired._asdict(), "answer": paired.answer if is_comparable else None}


def _errors(errors: ErrorBounds | None, is_comparable: bool) -> dict[str, Any] | None:
    """Return the errors of one run only, their rates, and the difference if the excess counts as 0 and as 1."""
    if errors is None:
        return None
    return {
        "only": dict(zip(("file1", "file2"), errors.only, strict=True)),
        "excess": errors.excess,
        "rates": _paired(errors.rates),
        "against": _paired(errors.against, is_comparable=is_comparable),
        "in_favour": _paired(errors.in_favour, is_comparable=is_comparable),
        "tipping_point": msgspec.to_builtins(errors.tipping_point),
    }


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
