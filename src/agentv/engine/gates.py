"""How a run ends: which gates it missed, and the exit code that says so. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentv.engine.run_options import Gates
from agentv.errors import EXIT_BUDGET, EXIT_ERRORS, EXIT_FINDINGS, EXIT_INTERRUPTED
from agentv.model.manifest import RunSummary, TargetSummary

Stop = Literal["auth", "budget", "decided", "fail_fast", "interrupted"]


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
    if stopped == "auth":
        return Verdict(EXIT_ERRORS, ("Stopped: every job so far was refused for its key (auth)",))
    jobs = sum(target.scored + target.errors + target.unscored for target in summary.targets.values())
    errors = sum(target.errors for target in summary.targets.values())
    if jobs and errors == jobs:
        return Verdict(EXIT_ERRORS, ("Every job ended in an error",))
    if errors > gates.errors_allowed(jobs, other_gates=bool(thresholds)):
        return Verdict(EXIT_ERRORS, (f"{errors} of {jobs} jobs ended in errors, more than allowed",))
    missed = tuple(_missed(summary, gates, thresholds))
    if stopped == "fail_fast":
        return Verdict(EXIT_FINDINGS, ("Stopped at the first failure", *missed))
    return Verdict(EXIT_FINDINGS if missed else 0, missed)


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
        of_all = _of(target.scored, target)
        if gates.threshold is not None and (target.mean is None or round(target.mean, 12) < gates.threshold):
            missed.append(f"{name}: {_below('mean', target.mean, of_all, gates.threshold)}")
        if gates.min_pass_rate is not None and (target.pass_rate is None or target.pass_rate < gates.min_pass_rate):
            missed.append(f"{name}: {_below('pass rate', target.pass_rate, of_all, gates.min_pass_rate)}")
        for evaluator, minimum in thresholds.items():
            found = target.evaluators.get(evaluator)
            mean = None if found is None else found.mean
            if mean is None or round(mean, 12) < minimum:
                of_its = _of(0 if found is None else found.n, target)
                missed.append(f"{name}: {_below(f'{evaluator}: mean', mean, of_its, minimum)}")
    return missed


def _below(what: str, value: float | None, of: str, least: float) -> str:
    if value is None:
        return f"{what} is not known ({of}), so the threshold {least:g} is not reached"
    return f"{what} {_shown(value, least)} ({of}) is below the threshold {least:g}"


def _of(scored: int, target: TargetSummary) -> str:
    """What a figure is of: so many scored jobs, and why the others are not among them."""
    jobs = target.scored + target.errors + target.unscored
    others = (f"{target.errors} errors" if target.errors != 1 else "1 error") if target.errors else ""
    return f"{scored} of {jobs} jobs scored" + (f", {others}" if others else "")


def _shown(value: float, least: float) -> str:
    """With as many digits as it takes to look smaller than it should be."""
    return next((text for digits in range(3, 13) if float(text := f"{value:.{digits}f}") < least), f"{value!r}")
