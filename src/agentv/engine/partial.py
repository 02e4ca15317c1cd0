"""The figures of a run that looks all the time whether it may stop: intervals that hold whenever it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agentv.engine.stopping import Stopping
from agentv.model.run import EarlyStop, Interval, PartSummary, RunSummary, TargetSummary
from agentv.results.brief import brief_records
from agentv.results.drawing import rank, unit_of
from agentv.results.summary import TargetDetails
from agentv.stats.sequential import BettingMean

Sums = dict[tuple[int, str], tuple[float, int]]
_Intervals = dict[tuple[str, str], Interval]


def label(
    summary: RunSummary, details: dict[str, TargetDetails], stopping: Stopping, folder: Path
) -> tuple[RunSummary, dict[str, TargetDetails]]:
    """The same figures, with intervals that hold at every moment and what was found out about each target."""
    found = _intervals(stopping, folder)
    targets, further = {}, dict(details)
    for name, target in summary.targets.items():
        targets[name] = msgspec.structs.replace(
            target,
            ci95=found.get((name, "score")),
            evaluators=_parts(found, name, "evaluator", target.evaluators),
            prompts=_parts(found, name, "prompt", target.prompts),
            trials=tuple(
                msgspec.structs.replace(each, pass_at_k_ci95=None, pass_hat_k_ci95=None) for each in target.trials
            ),
            early_stop=_early_stop(stopping, name, target),
        )
        if name in further:
            further[name] = msgspec.structs.replace(further[name], pass_ci95=found.get((name, "pass")))
    return msgspec.structs.replace(summary, targets=targets), further


def _parts(found: _Intervals, target: str, what: str, parts: Mapping[str, PartSummary]) -> dict[str, PartSummary]:
    return {
        name: msgspec.structs.replace(part, ci95=found.get((target, f"{what} {name}"))) for name, part in parts.items()
    }


def _early_stop(stopping: Stopping, name: str, target: TargetSummary) -> EarlyStop | None:
    bet, rule = stopping.bets.get(name), stopping.rule
    if bet is None:
        return None
    low, high = bet.interval
    scaled = rule.measure == "difference"

    def shown(value: float) -> float:
        return 2 * value - 1 if scaled else value

    return EarlyStop(
        rule=rule.said,
        measure=rule.measure,
        value=rule.value,
        answer=bet.decided,
        n=bet.n,
        units=bet.groups,
        estimate=None if bet.mean is None else shown(bet.mean),
        ci95=(shown(low), shown(high)),
        e_value=round(bet.e_value, 6) if math.isfinite(bet.e_value) else bet.e_value,
        not_needed=stopping.not_needed(name, target.skipped),
    )


def _intervals(stopping: Stopping, folder: Path) -> _Intervals:
    """Of scores, passes, evaluators and prompts of each target, from the records in the order of the draw."""
    sums: dict[tuple[str, str], Sums] = {}

    def add(target: str, measure: str, unit: tuple[int, str], value: float) -> None:
        known = sums.setdefault((target, measure), {})
        total, count = known.get(unit, (0.0, 0))
        known[unit] = total + value, count + 1

    for _, record in brief_records(folder):
        if record.status == "error":
            continue
        name = unit_of(record.conversation_id, record.dataset_path, record.eval_id)
        unit = rank(stopping.seed, name), name
        if record.score is not None:
            add(record.target, "score", unit, record.score)
            add(record.target, "pass", unit, float(record.verdict == "pass"))
            if record.prompt is not None:
                add(record.target, f"prompt {record.prompt}", unit, record.score)
        for each in record.evaluator_results:
            if each.score is not None:
                add(record.target, f"evaluator {each.name}", unit, each.score)
    return {key: _interval(known, stopping.largest) for key, known in sums.items()}


def _interval(sums: Sums, largest: int) -> Interval:
    # A case may have several evaluators of one name, and then more scores than jobs.
    mean = BettingMean(largest=max(largest, *(count for _, count in sums.values())))
    for unit in sorted(sums):
        mean.add(*sums[unit])
    return mean.interval
