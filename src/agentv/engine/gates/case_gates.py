"""Gates that look at single cases: `--min-score`, those of promptfoo configurations, and drops against a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.formats.yaml_dataset import agentv_suite, suite_threshold
from agentv.engine.gates.gate_options import Gates
from agentv.engine.named_runs import open_baseline
from agentv.errors import EXIT_FINDINGS, UsageError, plural
from agentv.model.evaluator import Verdicts
from agentv.model.result import Result
from agentv.support.hash_table import NumberTable

PROMPTFOO = "promptfoo"
PASS_RATE = "PROMPTFOO_PASS_RATE_THRESHOLD"
EXIT_CODE = "PROMPTFOO_FAILED_TEST_EXIT_CODE"
_MOST_NAMED = 5
_IGNORE = ". Use --no-gate to ignore this."


class CaseGates(msgspec.Struct, frozen=True):
    """What the gates of single cases require. Means are over the trials of a case.

    `min_score` is for every case. `pass_rates` are those of promptfoo configurations, by path; a job that errors does
    not pass. `floors` are the thresholds of suites of AgentV (TypeScript), by path, for every case. A
    case of such a suite that fails from the score in `failure_limits` on misses a requirement, and scores 0 in AgentV.
    `tolerances` are the largest drops of a case of a prompt file against the `baseline` runs, by path.
    `failed_exit_code` is that of a configuration below its pass rate.
    """

    min_score: float | None = None
    pass_rates: Mapping[str, float] = {}
    floors: Mapping[str, float] = {}
    failure_limits: Mapping[str, float] = {}
    tolerances: Mapping[str, float] = {}
    baseline: tuple[str, ...] = ()
    failed_exit_code: int = EXIT_FINDINGS

    @property
    def decides_something(self) -> bool:
        """Whether there is a gate that needs the records."""
        return self.min_score is not None or bool(self.pass_rates or self.floors or self.tolerances)


class CaseVerdict(msgspec.Struct, frozen=True):
    """Why the gates of single cases failed, the exit code of that, and what was not checked."""

    reasons: tuple[str, ...] = ()
    exit_code: int = EXIT_FINDINGS
    notes: tuple[str, ...] = ()


def case_gates(gates: Gates | None, sources: Sequence[Source], variable: Callable[[str], str | None]) -> CaseGates:
    """Return the gates of single cases: those of the command, or of the files if the command has none."""
    gates = gates or Gates()
    if gates.no_gate:
        return CaseGates()
    rates, floors = {}, {}
    if not gates.is_set:
        rates = {source.path: _pass_rate(variable(PASS_RATE)) for source in sources if source.kind == PROMPTFOO}
        limits = {source.path: suite_threshold(source) for source in sources}
        floors = {path: limit for path, limit in limits.items() if limit is not None}
    failure_limits = floors
    if gates.min_score is not None:
        failure_limits = {source.path: Verdicts().borderline for source in sources if agentv_suite(source) is not None}
    code = variable(EXIT_CODE) or ""
    return CaseGates(
        gates.min_score,
        rates,
        floors,
        failure_limits,
        _tolerances(sources),
        gates.baseline,
        int(code) if code.isdecimal() and int(code) <= 255 else EXIT_FINDINGS,
    )


def _pass_rate(text: str | None) -> float:
    """Return the required pass rate from a percentage; 1 if it is not a number, as in promptfoo."""
    try:
        percentage = float(text) if text else 100.0
    except ValueError:
        percentage = 100.0
    return min(1.0, max(0.0, percentage / 100)) if math.isfinite(percentage) else 1.0


def _tolerances(sources: Sequence[Source]) -> dict[str, float]:
    limits = ((source.path, source.format.regression_tolerance(source)) for source in sources)
    return {path: limit for path, limit in limits if limit is not None}


def check_baseline(gates: Gates, sources: Sequence[Source]) -> None:
    """Raise UsageError if no file of a run uses its baseline, or if the baseline cannot be opened."""
    if not gates.baseline or gates.no_gate:
        return
    if not _tolerances(sources):
        hint = "To gate a run on an earlier one, run `agentv eval`, then `agentv compare NEW --baseline RUN`"
        message = "--baseline decides nothing: no file sets `regression_tolerance`, and --cases-budget is not given"
        raise UsageError(message, hint=hint)
    open_baseline(gates.baseline)


def judge_cases(gates: CaseGates, sources: Sequence[Source], results: Iterable[Result]) -> CaseVerdict:
    """Read the records once and return which gates of single cases failed."""
    dataset_of = {file: source.path for source in sources for file in (*source.files, source.path)}
    means, counts = CaseMeans(), {path: [0, 0] for path in (*gates.pass_rates, *gates.floors)}
    failures: dict[str, dict[str, None]] = {path: {} for path in gates.failure_limits}
    for result in results:
        means.add(result)
        path = dataset_of.get(result.dataset_path or "")
        if (
            path in failures
            and result.verdict == "fail"
            and round(result.score or 0.0, 12) >= gates.failure_limits[path]
        ):
            failures[path][result.eval_id] = None
        if path in counts and result.status != "unscored":
            counts[path][0] += result.verdict == "pass" if path in gates.pass_rates else result.status != "error"
            counts[path][1] += 1
    reasons = [*_low_cases(gates, means), *_low_suites(gates, means, counts, dataset_of), *_failed_suites(failures)]
    rated = [*_low_rates(gates, counts)]
    drops, notes = _drops(gates, means, dataset_of)
    code = gates.failed_exit_code if rated and not reasons and not drops else EXIT_FINDINGS
    return CaseVerdict((*reasons, *rated, *drops), code, notes)


def _low_cases(gates: CaseGates, means: CaseMeans) -> Iterator[str]:
    if gates.min_score is None:
        return
    if scores := dict(means):
        yield from _below(scores, gates.min_score, f"--min-score {gates.min_score:g}")
    else:
        yield f"No case was scored, required: {gates.min_score:g} for each of them (--min-score)"


def _low_suites(
    gates: CaseGates, means: CaseMeans, counts: Mapping[str, list[int]], dataset_of: Mapping[str, str]
) -> Iterator[str]:
    for path, least in gates.floors.items():
        scored, total = counts[path]
        if scored < total:
            errors = f"{total - scored} of {plural(total, 'job')} errored"
            yield f"{path}: {errors}, and every case has to reach {least:g}, the threshold of the suite{_IGNORE}"
        scores = {name: mean for name, mean in means if dataset_of.get(name.dataset) == path}
        for reason in _below(scores, least, f"{least:g}, the threshold of the suite"):
            yield f"{path}: {reason}{_IGNORE}"


def _failed_suites(failures: Mapping[str, Mapping[str, None]]) -> Iterator[str]:
    """Yield the suites with cases that failed at a higher score: AgentV gives 0 if a required evaluator fails."""
    for path, names in failures.items():
        if names:
            some = ", ".join(list(names)[:_MOST_NAMED])
            yield f"{path}: {plural(len(names), 'case')} failed a required evaluator or a higher limit: {some}{_IGNORE}"


def _below(scores: Mapping[CaseName, float], least: float, limit: str) -> Iterator[str]:
    if low := [name for name, mean in scores.items() if round(mean, 12) < least]:
        some = ", ".join(f"{name.eval_id} ({name.target}: {scores[name]:.3f})" for name in low[:_MOST_NAMED])
        more = f" and {len(low) - _MOST_NAMED} more" if len(low) > _MOST_NAMED else ""
        yield f"{len(low)} of {plural(len(scores), 'case')} scored below {limit}: {some}{more}"


def _low_rates(gates: CaseGates, counts: Mapping[str, list[int]]) -> Iterator[str]:
    for path, least in gates.pass_rates.items():
        passed, total = counts[path]
        if total and round(passed / total, 12) < least:
            failed = total - passed
            need = "every test has to pass" if least == 1 else f"{PASS_RATE} is {least * 100:g}"
            yield f"{path}: {failed} of {plural(total, 'test')} did not pass, and {need}{_IGNORE}"


def _drops(
    gates: CaseGates, means: CaseMeans, dataset_of: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the cases of prompt files that scored lower than in the baseline by more than allowed, and notes."""
    if not gates.tolerances:
        return (), ()
    if not gates.baseline:
        return (), tuple(
            f"{path}: regression_tolerance {tolerance:g} was not checked: there is no baseline. Pass --baseline RUN."
            for path, tolerance in gates.tolerances.items()
        )
    earlier = CaseMeans()
    baseline = open_baseline(gates.baseline)
    for result in baseline.store.records():
        if baseline.picked in (None, result.target, result.prompt):
            earlier.add(result)
    before = {(name.dataset, name.eval_id, name.prompt): mean for name, mean in earlier}
    reasons, paired = [], dict.fromkeys(gates.tolerances, 0)
    for name, mean in means:
        path = dataset_of.get(name.dataset, name.dataset)
        old = before.get((name.dataset, name.eval_id, name.prompt))
        if path not in gates.tolerances or old is None:
            continue
        paired[path] += 1
        if round(old - mean, 12) > gates.tolerances[path]:
            limit = f"regression_tolerance {gates.tolerances[path]:g}"
            reasons.append(f"{name.eval_id} ({name.target}) fell from {old:.3f} to {mean:.3f}, more than {limit}")
    notes = (f"{path}: regression_tolerance was not checked: no case is in the baseline" for path in paired)
    return tuple(reasons), tuple(note for note, count in zip(notes, paired.values(), strict=True) if not count)


class CaseName(msgspec.Struct, frozen=True):
    """What identifies a case in a run, without its trials."""

    target: str
    dataset: str
    eval_id: str
    prompt: str | None


class CaseMeans:
    """The mean score of each case and target, in order of their first record."""

    def __init__(self) -> None:
        self._numbers = NumberTable()
        self._names: list[CaseName] = []
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, result: Result) -> None:
        """Add the score of a record; errors have none."""
        if result.score is None:
            return
        name = CaseName(result.target, result.dataset_path or "", result.eval_id, result.prompt)
        if (number := self._numbers.number(hash(name))) == len(self._names):
            self._names.append(name)
            self._sums.append(0.0)
            self._counts.append(0)
        self._sums[number] += result.score
        self._counts[number] += 1

    def __iter__(self) -> Iterator[tuple[CaseName, float]]:
        for name, total, count in zip(self._names, self._sums, self._counts, strict=True):
            yield name, total / count
