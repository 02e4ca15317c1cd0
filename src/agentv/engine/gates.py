"""How a run ends: which gates it missed, and the exit code that says so. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentv.engine.options import Gates
from agentv.model.run import RunSummary

Stop = Literal["budget", "decided", "fail_fast", "interrupted"]

EXIT_GATE, EXIT_ERRORS, EXIT_BUDGET, EXIT_INTERRUPTED = 1, 3, 4, 130


class Verdict(msgspec.Struct, frozen=True):
    """The exit code, and a line for each thing that decided it."""

    exit_code: int
    reasons: tuple[str, ...] = ()


def judge(summary: RunSummary, gates: Gates | None, stopped: Stop | None, thresholds: dict[str, float]) -> Verdict:
    """The end of a run. What stopped it comes before what it reached; errors come before scores."""
    gates = gates or Gates()
    if stopped == "interrupted":
        return Verdict(EXIT_INTERRUPTED, ("Interrupted: what is done is kept",))
    if stopped == "budget":
        return Verdict(EXIT_BUDGET, ("Stopped: the budget is used up",))
    jobs = sum(target.scored + target.errors + target.unscored for target in summary.targets.values())
    errors = sum(target.errors for target in summary.targets.values())
    if jobs and errors == jobs:
        return Verdict(EXIT_ERRORS, ("Every job ended in an error",))
    if errors > gates.errors_allowed(jobs, other_gates=bool(thresholds)):
        return Verdict(EXIT_ERRORS, (f"{errors} of {jobs} jobs ended in errors, more than allowed",))
    missed = tuple(_missed(summary, gates, thresholds))
    if stopped == "fail_fast":
        return Verdict(EXIT_GATE, ("Stopped at the first failure", *missed))
    return Verdict(EXIT_GATE if missed else 0, missed)


def with_missing(verdict: Verdict, missing: Sequence[str]) -> Verdict:
    """The end of a replay: what a recording does not have is an error of the run, whatever gates it has."""
    if not missing or verdict.exit_code in (EXIT_INTERRUPTED, EXIT_BUDGET):
        return verdict
    calls = "1 call is" if len(missing) == 1 else f"{len(missing)} calls are"
    reason = f"{calls} not in what is replayed, the first: {missing[0]}"
    return Verdict(EXIT_ERRORS, (reason, *verdict.reasons))


def _missed(summary: RunSummary, gates: Gates, thresholds: dict[str, float]) -> list[str]:
    missed = []
    for name, target in summary.targets.items():
        if gates.threshold is not None and (target.mean is None or round(target.mean, 12) < gates.threshold):
            missed.append(f"{name}: mean {_shown(target.mean)} is below the threshold {gates.threshold}")
        if gates.min_pass_rate is not None and (target.pass_rate is None or target.pass_rate < gates.min_pass_rate):
            missed.append(f"{name}: pass rate {_shown(target.pass_rate)} is below {gates.min_pass_rate}")
        for evaluator, minimum in thresholds.items():
            found = target.evaluators.get(evaluator)
            if found is None or found.mean is None or round(found.mean, 12) < minimum:
                mean = _shown(found.mean if found else None)
                missed.append(f"{name}: {evaluator} has mean {mean}, below its threshold {minimum}")
    return missed


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
