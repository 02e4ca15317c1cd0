"""Decide the exit code of a run: why it stopped, and which gates failed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentv.engine.run_options import Gates
from agentv.errors import EXIT_BUDGET, EXIT_ERRORS, EXIT_FINDINGS, EXIT_INTERRUPTED, plural
from agentv.model.manifest import RunSummary, TargetSummary

Stop = Literal["auth", "budget", "decided", "fail_fast", "interrupted"]


class Verdict(msgspec.Struct, frozen=True):
    """The exit code of a run, and the reasons for it."""

    exit_code: int
    reasons: tuple[str, ...] = ()


_STOPPED: dict[str | None, Verdict] = {
    "interrupted": Verdict(EXIT_INTERRUPTED, ("Interrupted: completed jobs are kept",)),
    "budget": Verdict(EXIT_BUDGET, ("Stopped: the budget is used up",)),
    "auth": Verdict(EXIT_ERRORS, ("Stopped: every job so far failed authentication. Check the API key.",)),
}


def judge(summary: RunSummary, gates: Gates | None, stopped: Stop | None, thresholds: dict[str, float]) -> Verdict:
    """Return the exit code of a run. The reason it stopped comes first, then errors, then scores."""
    gates = gates or Gates()
    if stopped in _STOPPED:
        return _STOPPED[stopped]
    jobs = sum(target.scored + target.errors + target.unscored for target in summary.targets.values())
    errors = sum(target.errors for target in summary.targets.values())
    if jobs and errors == jobs:
        return Verdict(EXIT_ERRORS, ("Every job errored",))
    if errors > gates.errors_allowed(jobs, other_gates=bool(thresholds)):
        return Verdict(EXIT_ERRORS, (f"{errors} of {plural(jobs, 'job')} errored, more than allowed",))
    missed = tuple(_missed(summary, gates, thresholds))
    if stopped == "fail_fast":
        return Verdict(EXIT_FINDINGS, ("Stopped at the first failure", *missed))
    return Verdict(EXIT_FINDINGS if missed else 0, missed)


def with_missing(verdict: Verdict, missing: Sequence[str]) -> Verdict:
    """Add calls missing from a replay: they fail the run, whatever its gates."""
    if not missing or verdict.exit_code in (EXIT_INTERRUPTED, EXIT_BUDGET):
        return verdict
    calls = "1 call is" if len(missing) == 1 else f"{len(missing)} calls are"
    reason = f"{calls} missing from the replay, the first: {missing[0]}"
    return Verdict(EXIT_ERRORS, (reason, *verdict.reasons))


def _missed(summary: RunSummary, gates: Gates, thresholds: dict[str, float]) -> list[str]:
    missed = []
    for name, target in summary.targets.items():
        figures = [
            (name, "mean", target.mean, target.scored, gates.threshold),
            (name, "pass rate", target.pass_rate, target.scored, gates.min_pass_rate),
        ]
        for evaluator, minimum in thresholds.items():
            found = target.evaluators.get(evaluator)
            mean, scored = (None, 0) if found is None else (found.mean, found.n)
            figures.append((f"{name}: {evaluator}", "mean", mean, scored, minimum))
        for subject, what, value, scored, least in figures:
            if least is not None and (value is None or round(value, 12) < least):
                missed.append(f"{subject}: {_below(what, value, _of(scored, target), least)}")
    return missed


def _below(what: str, value: float | None, of: str, least: float) -> str:
    if value is None:
        return f"no {what} ({of}), required: {least:g}"
    return f"{what} {_shown(value, least)} ({of}) is below the threshold {least:g}"


def _of(scored: int, target: TargetSummary) -> str:
    """Describe the sample of a figure: how many jobs were scored, and how many errored."""
    jobs = target.scored + target.errors + target.unscored
    errors = f", {plural(target.errors, 'error')}" if target.errors else ""
    return f"{scored} of {plural(jobs, 'job')} scored{errors}"


def _shown(value: float, least: float) -> str:
    """Format a value with enough digits to show that it is below the minimum."""
    return next((text for digits in range(3, 13) if float(text := f"{value:.{digits}f}") < least), f"{value!r}")
