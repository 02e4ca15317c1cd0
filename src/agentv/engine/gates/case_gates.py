"""Gates that look at single cases: `--min-score`, those of promptfoo configurations, and drops against a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from agentv.datasets.formats.dataset_format import Source, SuiteGate
from agentv.engine.gates.gate_options import Gates
from agentv.engine.named_runs import open_baseline
from agentv.errors import EXIT_FINDINGS, UsageError, plural
from agentv.model.evaluator import Verdicts
from agentv.model.result import JobKey, Result
from agentv.runs.trials import BEST, combined_score
from agentv.support.hash_table import NumberTable

PROMPTFOO = "promptfoo"
PASS_RATE = "PROMPTFOO_PASS_RATE_THRESHOLD"
EXIT_CODE = "PROMPTFOO_FAILED_TEST_EXIT_CODE"
_MOST_NAMED = 5
_MISSED = "failed a required evaluator or a higher limit"
_IGNORE = ". Use --no-gate to ignore this."


class CaseGates(msgspec.Struct, frozen=True):
    """What the gates of single cases require. Means are over the trials of a case.

    `min_score` is for every case. `pass_rates` are those of promptfoo configurations, by path; a job that errors does
    not pass. `suites` are the gates of suites of AgentV (TypeScript), by path, for every case; without thresholds if
    the command has gates. `tolerances` are the largest drops of a case of a prompt file against the `baseline` runs,
    by path. `failed_exit_code` is that of a configuration below its pass rate.
    """

    min_score: float | None = None
    pass_rates: Mapping[str, float] = {}
    suites: Mapping[str, SuiteGate] = {}
    tolerances: Mapping[str, float] = {}
    baseline: tuple[str, ...] = ()
    failed_exit_code: int = EXIT_FINDINGS

    @property
    def floors(self) -> dict[str, float]:
        """The thresholds of suites, by path."""
        return {path: suite.threshold for path, suite in self.suites.items() if suite.threshold is not None}

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
    rates, suites = {}, suite_gates(sources)
    if gates.is_set or gates.no_gate:
        suites = {path: msgspec.structs.replace(suite, threshold=None) for path, suite in suites.items()}
    else:
        rates = {source.path: _pass_rate(variable(PASS_RATE)) for source in sources if source.kind == PROMPTFOO}
    code = variable(EXIT_CODE) or ""
    return CaseGates(
        gates.min_score,
        rates,
        suites,
        {} if gates.no_gate else _tolerances(sources),
        gates.baseline,
        int(code) if code.isdecimal() and int(code) <= 255 else EXIT_FINDINGS,
    )


def suite_gates(sources: Sequence[Source]) -> dict[str, SuiteGate]:
    """Return the gates of suites of AgentV (TypeScript), by path. One with a threshold is a gate for all of a run.

    Of several thresholds, AgentV 4 takes the first for all cases. Here it only raises those of later suites.
    """
    gates = {source.path: gate for source in sources if (gate := source.format.suite_gate(source)) is not None}
    owner, first = next(((path, gate.threshold) for path, gate in gates.items() if gate.threshold is not None), ("", 0))
    for path, gate in gates.items() if owner else ():
        if gate.threshold is None and gate.by_verdict:
            gates[path] = msgspec.structs.replace(gate, threshold=Verdicts().passing)
        elif gate.threshold is None or (gate.threshold < first and not gate.by_verdict):
            gates[path] = msgspec.structs.replace(gate, threshold=first, owner=owner)
    return gates


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
    counts = {path: [0, 0] for path in (*gates.pass_rates, *gates.floors)}
    scores = CaseScores()
    for result in results:
        path = dataset_of.get(result.dataset_path or "")
        suite = gates.suites.get(path or "")
        score = result.score if suite is None else _score_in_suite(result, suite)
        scores.add(result, score, "mean" if suite is None else suite.strategy)
        if path in counts and result.status != "unscored":
            counts[path][0] += result.verdict == "pass" if path in gates.pass_rates else score is not None
            counts[path][1] += 1
    reasons = [*_low_cases(gates, scores), *_low_suites(gates, scores, counts, dataset_of)]
    rated = [*_low_rates(gates, counts)]
    drops, notes = _drops(gates, scores, dataset_of)
    code = gates.failed_exit_code if rated and not reasons and not drops else EXIT_FINDINGS
    return CaseVerdict((*reasons, *rated, *drops), code, notes)


def _score_in_suite(result: Result, suite: SuiteGate) -> float | None:
    """Return the score of a trial as AgentV (TypeScript) counts it: 0 if a requirement was missed.

    It is also 0 if no evaluator has a weight, and for an error if the best trial decides. If cases have limits of their
    own, a verdict moves the score to its side of the threshold.
    """
    if result.score is None:
        if result.status == "unscored":
            return 0.0 if result.evaluator_results and not suite.by_verdict else None
        return 0.0 if suite.strategy in BEST and result.status == "error" else None
    score, least = round(result.score, 12), suite.threshold
    if suite.by_verdict and least is not None:
        return max(score, least) if result.verdict == "pass" else score if score < least else 0.0
    limit = Verdicts().borderline if least is None else least
    return 0.0 if result.verdict == "fail" and score >= limit else score


def _low_cases(gates: CaseGates, scores: CaseScores) -> Iterator[str]:
    if gates.min_score is None:
        return
    if values := dict(scores):
        yield from _below(values, gates.min_score, f"--min-score {gates.min_score:g}", scores.missed)
    else:
        yield f"No case was scored, required: {gates.min_score:g} for each of them (--min-score)"


def _low_suites(
    gates: CaseGates, scores: CaseScores, counts: Mapping[str, list[int]], dataset_of: Mapping[str, str]
) -> Iterator[str]:
    for path, least in gates.floors.items():
        owner = gates.suites[path].owner or "the suite"
        scored, total = counts[path]
        if scored < total:
            errors = f"{total - scored} of {plural(total, 'job')} errored"
            yield f"{path}: {errors}, and every case has to reach {least:g}, the threshold of {owner}{_IGNORE}"
        values = {name: score for name, score in scores if dataset_of.get(name.dataset_path) == path}
        for reason in _below(values, least, f"{least:g}, the threshold of {owner}", scores.missed):
            yield f"{path}: {reason}{_IGNORE}"


def _below(scores: Mapping[JobKey, float], least: float, limit: str, missed: Mapping[JobKey, str]) -> Iterator[str]:
    low = [name for name, score in scores.items() if round(score, 12) < least]
    why = {name: missed.get(name, f"{scores[name]:.3f}") for name in low[:_MOST_NAMED]}
    if low:
        some = ", ".join(f"{name.eval_id} ({name.target}: {reason})" for name, reason in why.items())
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
    gates: CaseGates, means: CaseScores, dataset_of: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the cases of prompt files that scored lower than in the baseline by more than allowed, and notes."""
    if not gates.tolerances:
        return (), ()
    if not gates.baseline:
        return (), tuple(
            f"{path}: regression_tolerance {tolerance:g} was not checked: there is no baseline. Pass --baseline RUN."
            for path, tolerance in gates.tolerances.items()
        )
    earlier = CaseScores()
    baseline = open_baseline(gates.baseline)
    for result in baseline.store.records():
        if baseline.picked in (None, result.target, result.prompt):
            earlier.add(result, result.score)
    before = {(name.dataset_path, name.eval_id, name.prompt): mean for name, mean in earlier}
    reasons, paired = [], dict.fromkeys(gates.tolerances, 0)
    for name, mean in means:
        path = dataset_of.get(name.dataset_path, name.dataset_path)
        old = before.get((name.dataset_path, name.eval_id, name.prompt))
        if path not in gates.tolerances or old is None:
            continue
        paired[path] += 1
        if round(old - mean, 12) > gates.tolerances[path]:
            limit = f"regression_tolerance {gates.tolerances[path]:g}"
            reasons.append(f"{name.eval_id} ({name.target}) fell from {old:.3f} to {mean:.3f}, more than {limit}")
    notes = (f"{path}: regression_tolerance was not checked: no case is in the baseline" for path in paired)
    return tuple(reasons), tuple(note for note, count in zip(notes, paired.values(), strict=True) if not count)


class CaseScores:
    """The score of each case and target over its trials, in order of their first record, by keys with the trial 0.

    `missed` has the reasons of those with an answer that counts 0 whatever its score.
    """

    def __init__(self) -> None:
        self._numbers = NumberTable()
        self._names: list[JobKey] = []
        self._sums: list[float] = []
        self._counts: list[int] = []
        self._trials: dict[int, tuple[str, list[tuple[int, float]]]] = {}
        self.missed: dict[JobKey, str] = {}

    def add(self, result: Result, score: float | None, strategy: str = "mean") -> None:
        """Add the score that a record counts with, if it has one."""
        if score is None:
            return
        name = result.key._replace(trial=0)
        if (number := self._numbers.number(hash(name))) == len(self._names):
            self._names.append(name)
            self._sums.append(0.0)
            self._counts.append(0)
        if score == 0 and (result.score or result.status == "unscored"):
            self.missed[name] = _MISSED if result.score else "not scored"
        self._sums[number] += score
        self._counts[number] += 1
        if strategy != "mean":
            self._trials.setdefault(number, (strategy, []))[1].append((result.trial, score))

    def __iter__(self) -> Iterator[tuple[JobKey, float]]:
        for number, (name, total, count) in enumerate(zip(self._names, self._sums, self._counts, strict=True)):
            strategy, trials = self._trials.get(number, ("mean", []))
            yield name, combined_score(trials, strategy) if trials else total / count
