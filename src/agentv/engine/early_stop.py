"""Early stopping: run cases in random order, test the rule after each, and stop as soon as it is decided.

Results count in the order in which their cases were drawn, not in the order of completion: fast cases are not a random
sample. Dependent results (a conversation, the trials of a case) form one unit, which is one bet and is always finished.
`agentv.stats.sequential` explains why the test may be repeated after every unit.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from agentv.engine.named_runs import baseline_names, open_baseline
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import Cases, JobSource
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.job import Job
from agentv.model.manifest import EarlyStop
from agentv.model.result import JobKey, Result
from agentv.model.values import cluster_of, draw_rank, sampling_unit
from agentv.runs.anytime_intervals import DrawnMeasures
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore
from agentv.runs.summary import RunSummary
from agentv.runs.target_summary import TargetSummary
from agentv.stats.sequential import BettingMean, NarrowingMean, Side

if TYPE_CHECKING:
    from agentv.engine.answers.rescored_answers import RescoredAnswers

Measure = Literal["mean", "pass_rate", "difference"]

_SHUFFLED = 50_000
"""Cases held in memory to be shuffled; a larger dataset is read several times."""


class StopRule(msgspec.Struct, frozen=True):
    """Stop when a measure is known to be above or below `value`. A difference is relative to the `baseline` runs.

    By default, a mean or a pass rate is that of all cases of the run: the question is what the complete run would show.
    Differences, as in `agentv compare`, and gates by interval are about the `population` that the cases are a sample
    of, which takes more cases. A `narrow` rule stops when the interval of the measure is at most ± `value`.
    """

    text: str
    measure: Measure
    value: float
    baseline: tuple[str, ...] = ()
    population: bool = False
    narrow: bool = False

    @property
    def claim(self) -> float:
        """The value on the scale of bets, 0 to 1."""
        return (1 + self.value) / 2 if self.measure == "difference" else self.value


def parse_rule(argument: str | float) -> StopRule:
    """Parse `0.8` or `mean=0.8`, `pass-rate=0.9`, or a run, or several, to compare with; `±0.03` is a width."""
    text = str(argument).strip()
    name, equals, number = text.rpartition("=")
    is_width, number = number.startswith("±"), number.removeprefix("±")
    measures: dict[str, Measure] = {"": "mean", "mean": "mean", "pass-rate": "pass_rate", "pass_rate": "pass_rate"}
    try:
        value = float(number)
    except ValueError:
        value = None
    if value is not None and name.strip() in measures and (equals or not name):
        if not 0 < value < 1:
            option = "--until" if is_width else "--stop-when"
            raise UsageError(f"{option} takes a value between 0 and 1, got {number}")
        return StopRule(text, measures[name.strip()], value, narrow=is_width)
    if is_width:
        raise UsageError(f"Invalid width: --until {text}", hint="Use 0.03 or ±0.03, or pass-rate=0.03")
    try:
        names = baseline_names(text)
    except UsageError as error:
        hint = "Use 0.8 or mean=0.8, pass-rate=0.9, or a run to compare with: its folder, id or file, or RUN,RUN"
        raise UsageError(f"Invalid rule: --stop-when {text}", error.headline, hint) from None
    return StopRule(text, "difference", 0.0, names, population=True)


def rule_of(options: EvalOptions) -> StopRule:
    """Return the rule of a run. With gates by interval, it is about the population, as they are."""
    if options.until is None:
        assert options.stop_when is not None
        rule = parse_rule(options.stop_when)
    else:
        if options.stop_when is not None:
            raise UsageError("--until and --stop-when cannot be combined", "Both decide when to stop", "Pass one")
        name, equals, number = str(options.until).rpartition("=")
        rule = parse_rule(f"{name}{equals}±{number.strip().removeprefix('±')}")
    by_interval = options.gates is not None and options.gates.gate_on == "interval"
    return msgspec.structs.replace(rule, population=rule.population or by_interval)


def draw_seed(rule: StopRule, seed: int | None) -> int:
    """Return the seed of the random order: the given one, that of a baseline that stopped early, or a fresh one.

    With the order of the baseline, the same cases are drawn first.
    """
    if seed is not None:
        return seed
    manifest = open_baseline(rule.baseline).store.manifest if len(rule.baseline) == 1 else None
    if manifest is not None and manifest.stopped_early and manifest.seed is not None:
        return manifest.seed
    return secrets.randbits(32)


class BaselineScores:
    """The mean score of each case in earlier runs. Raises UsageError if they do not match the targets."""

    def __init__(self, rule: StopRule, targets: list[str]) -> None:
        self._scores: dict[tuple[str, str, str], _Unit] = {}
        baseline = open_baseline(rule.baseline)
        for record in baseline.store.records(ScoreRecord):
            if record.score is not None and baseline.picked in (None, record.target):
                key = (record.target, record.dataset, record.eval_id)
                self._scores.setdefault(key, _Unit(record.eval_id)).add(record.score)
        self._targets = {target for target, _, _ in self._scores}
        if not self._targets:
            raise UsageError(f"--stop-when {rule.text}: that run has no scores")
        if len(self._targets) > 1 and (missing := [name for name in targets if name not in self._targets]):
            message = f"--stop-when {rule.text}: that run has several targets, but no '{missing[0]}'"
            raise UsageError(message, hint=f"Pass {rule.text}:TARGET with one of: {', '.join(sorted(self._targets))}")

    def score(self, target: str, dataset: str, id: str) -> float | None:
        """Return the mean score of a case; None if it has none."""
        other = target if len(self._targets) > 1 else next(iter(self._targets))
        mean = self._scores.get((other, dataset, id))
        return None if mean is None else mean.total / mean.count


class EarlyStopping:
    """Decides for each target of a run whether its rule is settled. `open` are the targets still undecided."""

    def __init__(self, rule: StopRule, seed: int, cases: Cases, source: JobSource, shuffled: int = _SHUFFLED) -> None:
        self.rule = rule
        self._shuffled = shuffled
        self.seed = seed
        self._cases, self.largest, units = _counted(cases, source)
        targets = list(units)
        self._baseline = BaselineScores(rule, targets) if rule.measure == "difference" else None
        self.units_of: dict[str, int | None] = dict.fromkeys(targets) if rule.population else {**units}
        self.bets = {name: self._new_bet(name) for name in targets}
        self._started: dict[tuple[str, str], _Unit] = {}
        self._order: dict[str, deque[_Unit]] = {name: deque() for name in targets}
        self._known: dict[JobKey, float | None] = {}
        self._spared: Mapping[str, int] | None = None
        self.open = frozenset(targets)

    def _new_bet(self, target: str) -> BettingMean:
        if self.rule.narrow:
            return NarrowingMean(self.rule.value, largest=self.largest, population=self.units_of[target])
        return BettingMean(self.rule.claim, largest=self.largest, population=self.units_of[target])

    @property
    def decided(self) -> bool:
        """Whether every target is decided and all earlier results of a resumed run are counted."""
        return not self.open and not self._known

    def side(self, target: str) -> Side | None:
        """Return whether a target is above or below, or its interval narrow enough; None if undecided."""
        return self.bets[target].decided

    def not_needed(self, target: str, skipped: int) -> int:
        """Return how many of the skipped jobs were not needed."""
        if self._spared is not None:
            return self._spared.get(target, 0)
        return skipped if self.bets[target].decided else 0

    def units(self, cases: Cases) -> Iterator[list[EvalCase]]:
        """Yield the cases in random order, those of a conversation together; a resumed run has the same order."""
        passes = -(-self._cases // self._shuffled)
        for number in range(passes):
            units: dict[tuple[int, str], list[EvalCase]] = {}
            for case in cases.stream_again():
                name = sampling_unit(cluster_of(case), case.path, case.id)
                place = draw_rank(self.seed, name)
                if place * passes >> 64 == number:
                    units.setdefault((place, name), []).append(case)
            for key in sorted(units):
                yield units.pop(key)

    def chunks(self, cases: Cases, source: JobSource) -> Iterator[list[EvalCase]]:
        """Yield units of cases in random order until every target is decided."""
        for unit in self.units(cases):
            self.begin([job for case in unit for job in source.jobs(case)])
            if self.decided:
                return
            yield unit

    def begin(self, jobs: list[Job]) -> None:
        """Register the jobs of a unit before they run, for the targets that are still `open`.

        A unit that was started before the run was resumed is always finished and counted.
        """
        self.open = frozenset(name for name, bet in self.bets.items() if bet.decided is None)
        self.open |= {job.target for job in jobs if job.key in self._known}
        for job in jobs:
            if job.target not in self.open:
                continue
            name = sampling_unit(cluster_of(job.case), job.case.path, job.case.id)
            unit = self._started.get((job.target, name))
            if unit is None:
                unit = self._started[job.target, name] = _Unit(name)
                self._order[job.target].append(unit)
            if job.key in self._known:
                unit.add(self._known.pop(job.key))
            else:
                unit.missing += 1
        for target in self.open:
            self._bet(target)

    def known(self, result: Result) -> None:
        """Add a result from before the run was resumed."""
        self._known[result.key] = self._value(result)

    def result(self, result: Result) -> None:
        """Add the result of a registered job."""
        unit = self._started[result.target, sampling_unit(cluster_of(result), result.dataset_path, result.eval_id)]
        unit.missing -= 1
        unit.add(self._value(result))
        self._bet(result.target)

    def rescored(
        self, records: Iterable[ScoreRecord | Result], spared: Mapping[str, int], units_of: Mapping[str, int | None]
    ) -> None:
        """Add all results of a rescored run in the order in which they were drawn.

        The bets stay valid although the original scores decided when to stop. `spared` counts the jobs of each target
        that were not needed, `units_of` the units that they were drawn from; None if that is unknown.
        """
        self._spared = spared
        self.units_of = {name: units_of.get(name) for name in self.units_of}
        self.bets = {name: self._new_bet(name) for name in self.bets}
        units: dict[tuple[str, int, str], _Unit] = {}
        for record in records:
            name = sampling_unit(cluster_of(record), record.dataset_path, record.eval_id)
            key = record.target, draw_rank(self.seed, name), name
            units.setdefault(key, _Unit(name)).add(self._value(record))
        for key in sorted(units):
            self.bets[key[0]].add(units[key].total, units[key].count)

    def _value(self, result: Result | ScoreRecord) -> float | None:
        """Return the value of a result on the scale of bets, 0 to 1; None if it does not count."""
        if result.score is None or result.status == "error":
            return None
        if self.rule.measure == "mean":
            return result.score
        if self._baseline is None:
            return float(result.verdict == "pass")
        before = self._baseline.score(result.target, result.dataset, result.eval_id)
        return None if before is None else (1 + result.score - before) / 2

    def _bet(self, target: str) -> None:
        """Bet on complete units in the order in which they were drawn."""
        units = self._order[target]
        while units and units[0].missing == 0:
            unit = units.popleft()
            del self._started[target, unit.name]
            self.bets[target].add(unit.total, unit.count)


class _Unit:
    """Dependent results of one target: their sum and count so far, and the number of missing ones."""

    __slots__ = ("count", "missing", "name", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.total, self.count, self.missing = 0.0, 0, 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.count += 1


def _counted(cases: Cases, source: JobSource) -> tuple[int, int, Counter[str]]:
    """Return the number of cases, the largest number of jobs per target and unit, and the units of each target."""
    together: Counter[tuple[str, str]] = Counter()
    units: Counter[str] = Counter()
    count, largest = 0, 1
    for case in cases.stream_again():
        count += 1
        counts = source.counts(case)
        largest = max(largest, *counts.values(), 1)
        for target, jobs in counts.items():
            if cluster_of(case) is None:
                units[target] += 1
                continue
            talk = target, sampling_unit(cluster_of(case), case.path, case.id)
            units[target] += talk not in together
            together[talk] += jobs
    return count, max([largest, *together.values()]), units


def catch_up(summary: RunSummary, stopping: EarlyStopping, rescored: RescoredAnswers, folder: Path) -> RunSummary:
    """Bet on the scores of a rescored run, and count the jobs the original run did not need."""
    targets = dict(summary.targets)
    whole = sum(target.jobs for target in targets.values()) == rescored.stored.records.jobs
    then = rescored.early_stopped
    spared = {name: target.early_stop.not_needed for name, target in then.items() if whole and target.early_stop}
    units_of = {name: target.early_stop.population for name, target in then.items() if whole and target.early_stop}
    stopping.rescored(RunStore.open(folder).records(ScoreRecord), spared, units_of)
    for name, count in spared.items():
        target_summary = targets[name]
        jobs, skipped = target_summary.jobs + count, target_summary.skipped + count
        targets[name] = msgspec.structs.replace(target_summary, cases=then[name].cases, jobs=jobs, skipped=skipped)
    return msgspec.structs.replace(summary, targets=targets)


def label(summary: RunSummary, stopping: EarlyStopping, folder: Path) -> RunSummary:
    """Add the outcome for each target. Targets that stopped early get intervals that are valid at any stopping time.

    A target that ran all its jobs keeps its ordinary intervals, which are narrower.
    """
    stopped = {
        name: DrawnMeasures(stopping.units_of.get(name), stopping.largest)
        for name, target in summary.targets.items()
        if target.skipped
    }
    for record in RunStore.open(folder).records(ScoreRecord) if stopped else ():
        if record.target in stopped:
            stopped[record.target].add(record, stopping.seed)
    targets = {}
    for name, target in summary.targets.items():
        target_summary = target if name not in stopped else stopped[name].applied_to(target)
        targets[name] = msgspec.structs.replace(target_summary, early_stop=_early_stop(stopping, name, target_summary))
    return msgspec.structs.replace(summary, targets=targets)


_LARGEST_E_VALUE = 1e12
"""The e-value of a claim that is impossible, whatever the scores that are missing: JSON has no infinity."""


def _early_stop(stopping: EarlyStopping, name: str, target: TargetSummary) -> EarlyStop | None:
    bet, rule = stopping.bets.get(name), stopping.rule
    if bet is None:
        return None
    scaled = rule.measure == "difference"
    if target.skipped:
        bounds = bet.interval
    else:
        complete = {"mean": target.ci95, "pass_rate": target.pass_rate_ci95, "difference": bet.fixed_interval}
        bounds = complete[rule.measure] or (0.0, 1.0)
    not_needed = stopping.not_needed(name, target.skipped)

    def shown(value: float) -> float:
        return 2 * value - 1 if scaled else value

    return EarlyStop(
        rule=rule.text,
        measure=rule.measure,
        value=rule.value,
        answer=bet.decided,
        n=bet.n,
        units=bet.groups,
        estimate=None if bet.mean is None else shown(bet.mean),
        population=stopping.units_of.get(name),
        ci95=(shown(bounds[0]), shown(bounds[1])),
        e_value=None if rule.narrow else round(min(bet.e_value, _LARGEST_E_VALUE), 6),
        not_needed=not_needed,
        biased=bet.decided is not None and not_needed > 0 and not rule.narrow,
    )
