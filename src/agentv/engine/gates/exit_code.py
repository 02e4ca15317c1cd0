"""Decide the exit code of a run: why it stopped, and which gates failed. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from agentv.engine.gates.case_gates import CaseVerdict
from agentv.engine.gates.gate_options import Gates
from agentv.errors import EXIT_BUDGET, EXIT_ERRORS, EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_UNDECIDED, plural
from agentv.model.manifest import Interval
from agentv.model.result import ErrorInfo, EvaluatorResult, Result
from agentv.runs.summary import RunSummary
from agentv.runs.target_summary import PartSummary, TargetSummary
from agentv.stats.intervals import proportion_interval
from agentv.stats.power import cases_for_gate

Stop = Literal[
    "auth",
    "budget",
    "deadline",
    "decided",
    "errors",
    "fail_fast",
    "interrupted",
    "judge_auth",
    "judge_network",
    "judge_outage",
    "judge_server",
    "judge_verdict",
    "network",
    "outage",
]

MAX_FIRST_ERRORS = 20
"""Stop if this many jobs fail authentication or find no server before any other job ends; the rest would fail too."""


class Verdict(msgspec.Struct, frozen=True):
    """The exit code of a run, and the reasons for it."""

    exit_code: int
    reasons: tuple[str, ...] = ()


_STOPPED: dict[str | None, Verdict] = {
    "interrupted": Verdict(EXIT_INTERRUPTED, ("Interrupted: completed jobs are kept",)),
    "deadline": Verdict(EXIT_INTERRUPTED, ("Stopped: the deadline has passed. Completed jobs are kept.",)),
    "budget": Verdict(EXIT_BUDGET, ("Stopped: the budget is used up",)),
    "auth": Verdict(EXIT_ERRORS, ("Stopped: every job so far failed authentication. Check the API key.",)),
    "network": Verdict(EXIT_ERRORS, ("Stopped: no job so far reached its server. Check the address and the server.",)),
    "judge_auth": Verdict(
        EXIT_ERRORS, ("Stopped: the judge of every job so far failed authentication. Check the judge's API key.",)
    ),
    "judge_network": Verdict(
        EXIT_ERRORS, ("Stopped: no job so far reached its judge. Check the address and the server of the judge.",)
    ),
    "judge_server": Verdict(
        EXIT_ERRORS, ("Stopped: the judge of every job so far failed with a server error. Check the judge's model.",)
    ),
    "judge_verdict": Verdict(
        EXIT_ERRORS,
        (
            "Stopped: the judges have answered, but none of their replies so far is a usable verdict. Check the "
            "judge's model and prompt. Use --keep-going to run the other jobs.",
        ),
    ),
    "outage": Verdict(EXIT_ERRORS, ("Jobs without an answer are unfinished. Resume the run when it answers again.",)),
    "judge_outage": Verdict(
        EXIT_ERRORS, ("Answers without a score are stored. Resume the run when the judge is back.",)
    ),
}


_NO_CASE_GATES = CaseVerdict()
_RECURRING: tuple[Stop, ...] = ("auth", "network", "judge_auth", "judge_network", "judge_server")


class ErrorWatch:
    """Decides when the errors of a run are a reason to stop it, one record at a time.

    Once a job of this run `has_ended` without an error, only errors matter.
    """

    def __init__(self, gates: Gates | None, jobs: int, *, keep_going: bool) -> None:
        is_gated = gates is not None and gates.max_errors is not None and not keep_going
        self._most = gates.errors_allowed(jobs) if gates is not None and is_gated else math.inf
        self._errors = 0
        self._first: Counter[str] = Counter()
        self.has_ended = False
        self._unusable = 0
        self._awaits_verdict = not keep_going

    def add(self, result: Result, *, is_earlier: bool = False) -> Stop | None:
        """Count a record; return the reason to stop the run, if there is one.

        Records from before the run was resumed do not show whether a server can be reached now.
        """
        if (error := result.error) is None:
            self.has_ended = self.has_ended or not is_earlier
            return None
        self._errors += 1
        if not self.has_ended and not is_earlier:
            self._first[_cause(result, error)] += 1
            for kind in _RECURRING:
                if self._first[kind] == self._first.total() == MAX_FIRST_ERRORS:
                    return kind
        return "errors" if self._errors > self._most else None

    def add_verdicts(self, result: Result) -> Stop | None:
        """Count the record of a job with judges; return a reason to stop if none has given a usable verdict yet."""
        if not self._awaits_verdict:
            return None
        verdicts = set(_verdicts(result.evaluator_results))
        if True in verdicts:
            self._awaits_verdict = False
        self._unusable += False in verdicts
        return "judge_verdict" if self._awaits_verdict and self._unusable == MAX_FIRST_ERRORS else None


def _cause(result: Result, error: ErrorInfo) -> str:
    """Return the class of an error; of an evaluator's error, the class of its failed judge calls if it is the same."""
    if error.error_class != "evaluator":
        return error.error_class
    classes = set(_failed_calls(result.evaluator_results))
    return f"judge_{classes.pop()}" if len(classes) == 1 else error.error_class


def _failed_calls(results: Sequence[EvaluatorResult]) -> Iterator[str]:
    """Yield the error classes of the failed judge calls of evaluators and their members that have no score."""
    for result in results:
        if result.error is not None:
            calls = (result.evaluator_provider_request or {}).get("calls", ())
            yield from (call["error"]["class"] for call in calls if "error" in call)
            yield from _failed_calls(result.evaluator_results)


def _verdicts(results: Sequence[EvaluatorResult]) -> Iterator[bool]:
    """Yield whether the replies of judges are usable, for each evaluator and member whose calls were all answered."""
    for result in results:
        calls = (result.evaluator_provider_request or {}).get("calls", ())
        if calls and not any("error" in call for call in calls):
            yield result.error is None
        yield from _verdicts(result.evaluator_results)


def judge(
    summary: RunSummary,
    gates: Gates | None,
    stopped: Stop | None,
    thresholds: dict[str, float],
    cases: CaseVerdict = _NO_CASE_GATES,
) -> Verdict:
    """Return the exit code of a run. The reason it stopped comes first, then errors, then scores, then single cases.

    By interval, a gate passes if the whole 95 % interval is at or above its minimum, fails if all of it is below, and
    is undecided otherwise. Errors count against either answer: as 0 for the lower bound, as 1 for the upper.
    """
    gates = gates or Gates()
    if stopped in _STOPPED:
        return _STOPPED[stopped]
    jobs = sum(target.scored + target.errors + target.unscored for target in summary.targets.values())
    errors = sum(target.errors for target in summary.targets.values())
    if jobs and errors == jobs and stopped != "errors":
        return Verdict(EXIT_ERRORS, ("Every job errored",))
    if errors > gates.errors_allowed(jobs, other_gates=bool(thresholds)):
        reason = f"{errors} of {plural(jobs, 'job')} errored, more than allowed"
        if stopped == "errors":
            reason = f"Stopped: {reason}, so the gate --max-errors fails. Use --keep-going to run the other jobs."
        return Verdict(EXIT_ERRORS, (reason,))
    missed, undecided = _failures(summary, gates, thresholds)
    if stopped == "fail_fast":
        return Verdict(EXIT_FINDINGS, ("Stopped at the first failure", *missed))
    if missed:
        return Verdict(EXIT_FINDINGS, (*missed, *cases.reasons, *(f"can't tell: {reason}" for reason in undecided)))
    if cases.reasons:
        return Verdict(cases.exit_code, (*cases.reasons, *(f"can't tell: {reason}" for reason in undecided)))
    return Verdict(EXIT_UNDECIDED if undecided else 0, undecided)


def with_missing(verdict: Verdict, missing: Sequence[str]) -> Verdict:
    """Add calls missing from a replay: they fail the run, whatever its gates."""
    if not missing or verdict.exit_code in (EXIT_INTERRUPTED, EXIT_BUDGET):
        return verdict
    calls = "1 call is" if len(missing) == 1 else f"{len(missing)} calls are"
    reason = f"{calls} missing from the replay, the first: {missing[0]}"
    return Verdict(EXIT_ERRORS, (reason, *verdict.reasons))


class _Gated(msgspec.Struct, frozen=True):
    """A figure with a minimum. `interval` also covers the jobs that errored; `scored_only` does not."""

    subject: str
    what: str
    value: float | None
    scored_only: Interval | None
    interval: Interval | None
    scored: int
    least: float

    @property
    def is_above(self) -> bool:
        # Rounded, because 0.1 + 0.7 is slightly less than 0.8 in floating point.
        return self.value is not None and round(self.value, 12) >= self.least

    @property
    def answer(self) -> bool | None:
        """Whether the whole interval is above the minimum; None if it includes it."""
        if self.value is None or self.interval is None:
            return None
        low, high = self.interval
        return True if round(low, 12) >= self.least else False if high < self.least else None


def _failures(
    summary: RunSummary, gates: Gates, thresholds: dict[str, float]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return why gates failed, and why others could not be decided."""
    missed, undecided = [], []
    for name, target in summary.targets.items():
        for gated in _gated(name, target, gates, thresholds):
            by_point = gates.gate_on == "point" or gated.value is None
            answer = gated.is_above if by_point else gated.answer
            if answer is False:
                missed.append(_below(gated, target, gates))
            elif answer is None:
                undecided.append(_undecided(gated, target))
    return tuple(missed), tuple(undecided)


def _gated(name: str, target: TargetSummary, gates: Gates, thresholds: dict[str, float]) -> Iterator[_Gated]:
    """Yield the figures of a target that have a minimum."""
    mean = (target.mean, target.ci95, target.ci95_with_errors or target.ci95)
    share = (target.pass_rate, target.pass_rate_ci95, target.pass_rate_ci95_with_errors or target.pass_rate_ci95)
    if gates.threshold is not None:
        yield _Gated(name, "mean", *mean, target.scored, gates.threshold)
    if gates.min_pass_rate is not None:
        yield _Gated(name, "pass rate", *share, target.scored, gates.min_pass_rate)
    for evaluator, least in thresholds.items():
        part = target.evaluators.get(evaluator, PartSummary(n=0))
        figures = (part.mean, part.ci95, part.ci95_with_errors or part.ci95)
        yield _Gated(f"{name}: {evaluator}", "mean", *figures, part.n, least)


def _below(gated: _Gated, target: TargetSummary, gates: Gates) -> str:
    of = _of(gated.scored, target)
    if gated.value is None:
        return f"{gated.subject}: no {gated.what} ({of}), required: {gated.least:g}"
    measurement = f"{gated.subject}: {gated.what} {_shown(gated.value, gated.least)}"
    if gates.gate_on == "point":
        return f"{measurement} ({of}) is below the threshold {gated.least:g}"
    return f"{measurement} ({_range(gated, target)}; {of}) is below the threshold {gated.least:g}"


def _undecided(gated: _Gated, target: TargetSummary) -> str:
    what = f"{gated.subject}: {gated.what} {gated.value:.3f} ({_range(gated, target)})"
    return f"{what} with {_of(gated.scored, target)}; the gate is {gated.least:g}. {_advice(gated, target)}"


def _range(gated: _Gated, target: TargetSummary) -> str:
    if gated.interval is None:
        return "no interval"
    low, high = gated.interval
    errors = f" with {plural(target.errors, 'error')} counted as 0 and as 1" if target.errors else ""
    return f"95 % interval {low:.3f} to {high:.3f}{errors}"


_MOST_CASES = 10_000_000


def _advice(gated: _Gated, target: TargetSummary) -> str:
    """Return what would probably decide the gate: fewer errors, or more cases."""
    if gated.value is None or gated.scored_only is None:
        return "More cases are needed."
    low, high = gated.scored_only
    if not low < gated.least <= high:
        return "Fix the errors: without them the gate would be decided."
    cases = max(1.0, target.cases * gated.scored / target.jobs)
    independent = proportion_interval(gated.value, cases) or (0.0, 1.0)
    # Scores that vary less than passes, and trials and conversations, change the width of the interval.
    relative_variance = ((high - low) / (independent[1] - independent[0])) ** 2
    needed = (cases_for_gate(gated.value, gated.least) or math.inf) * relative_variance
    if needed > _MOST_CASES:
        return f"The {gated.what} is too close to the gate for more cases to decide."
    return f"About {_rounded_up(needed):,} cases would probably decide."


def _rounded_up(count: float) -> int:
    """Round up to two digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return math.ceil(count / unit) * unit


def _of(scored: int, target: TargetSummary) -> str:
    """Describe the sample of a figure: how many jobs were scored, and how many errored."""
    jobs = target.scored + target.errors + target.unscored
    errors = f", {plural(target.errors, 'error')}" if target.errors else ""
    return f"{scored} of {plural(jobs, 'job')} scored{errors}"


def _shown(value: float, least: float) -> str:
    """Format a value with enough digits to show that it is below the minimum."""
    return next((text for digits in range(3, 13) if float(text := f"{value:.{digits}f}") < least), f"{value!r}")
