"""The plan of a run: its inputs, its jobs, and the result of checking the cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.loader import StrictSink
from agentv.engine.cases.dependencies import Dependencies, has_dependencies, read_dependencies
from agentv.engine.checks.preflight import Preflight, known_targets
from agentv.engine.checks.project_facts import ProjectFacts
from agentv.engine.gates.case_gates import CaseGates, case_gates
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_project import Project
from agentv.errors import DatasetWarning, InvalidCaseError, InvalidDatasetError, RefusedCaseWarning, UsageError
from agentv.model.case import NO_DETAILS, USER_TARGET, EvalCase, Texts, refused_case, stored_input, text_fingerprints
from agentv.model.diagnostics import Problem
from agentv.model.evaluator import EvaluatorSpec, Execution, turn_evaluator_name
from agentv.model.job import AnswerSource, Job
from agentv.model.manifest import DatasetEntry, TargetEntry, merged_contents
from agentv.model.response import content_text
from agentv.stats.shared_texts import HINT, LENGTH, SharedTexts
from agentv.targets.target import Target
from agentv.trust.inventory import Inventory

if TYPE_CHECKING:
    from agentv.engine.answers.rescored_answers import RescoredAnswers
    from agentv.engine.cases.case_budget import DrawProbabilities
    from agentv.engine.early_stop import EarlyStopping

Fingerprints = tuple[str, str]
"""The hash of a case's input, and of the input together with everything the answer is checked against."""


class Cases(Protocol):
    """A source of cases that can be read any number of times: files, or a list from a program."""

    @property
    def sources(self) -> tuple[Source, ...]: ...

    @property
    def sink(self) -> StrictSink: ...

    def stream(self) -> Iterator[EvalCase]: ...

    def stream_again(self) -> Iterator[EvalCase]: ...


class ChangedCases:
    """Cases that `change` returns for others; those for which it returns None are left out.

    With `is_read`, the others were read before, and their problems reported.
    """

    def __init__(self, cases: Cases, change: Callable[[EvalCase], EvalCase | None], *, is_read: bool = False) -> None:
        self._first, self._again = cases.stream_again if is_read else cases.stream, cases.stream_again
        self._change = change
        self.sources, self.sink = cases.sources, cases.sink

    def stream(self) -> Iterator[EvalCase]:
        """Yield the cases, and report problems."""
        return filter(None, map(self._change, self._first()))

    def stream_again(self) -> Iterator[EvalCase]:
        """Yield the cases again."""
        return filter(None, map(self._change, self._again()))


class JobSource(Protocol):
    """Turns cases into jobs."""

    def counts(self, case: EvalCase) -> dict[str, int]:
        """Return the number of jobs per target; the same object for consecutive cases with the same settings."""
        ...

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]: ...

    def fingerprints(self, case: EvalCase, texts: Texts | None = None) -> Fingerprints:
        return case.fingerprints if texts is None else text_fingerprints(texts)


class LiveJobs(JobSource):
    """Cases × targets × prompts × trials; every job calls a target. Options of the command override the files."""

    def __init__(self, options: EvalOptions, project: Project) -> None:
        self._targets = options.targets or project.given
        self._project = project
        self._known = project.names
        self._trials = options.trials
        self._default_trials = project.defaults.trials or 1
        self._last: tuple[Execution | None, int, dict[str, int], str | None] = (None, 0, {}, None)

    def counts(self, case: EvalCase) -> dict[str, int]:
        last = self._last
        if last[0] is not case.execution or last[1] != len(case.details.prompts):
            prompts, trials = len(case.details.prompts), self._trials_of(case)
            counts = dict.fromkeys(self._targets_of(case), trials * max(1, prompts))
            only = next(iter(counts)) if trials == len(counts) == 1 and not prompts else None
            last = self._last = (case.execution, prompts, counts, only)
        return last[2]

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        counts = self.counts(case)
        if (only := self._last[3]) is not None:  # the common case
            return [Job(case, only, None, 1, fingerprint)]
        trials = self._trials_of(case)
        prompts: list[str | None] = [prompt.id for prompt in case.prompts] or [None]
        return [
            Job(case, target, prompt, trial, fingerprint)
            for target in counts
            for prompt in prompts
            for trial in range(1, trials + 1)
        ]

    def _trials_of(self, case: EvalCase) -> int:
        return self._trials or case.execution.trials or self._default_trials

    def _targets_of(self, case: EvalCase) -> tuple[str, ...]:
        if self._targets:
            return self._targets
        if case.execution.targets:
            return tuple(dict.fromkeys(case.execution.targets))
        name = case.execution.target or self._project.default_target
        if name is None:
            raise UsageError(
                "No target is named, and there is no target named 'default'",
                hint=f"Pass --target NAME. Known targets: {', '.join(self._known) or 'none'}",
            )
        return (name,)


class CheckResult(msgspec.Struct, kw_only=True):
    """What reading and checking every case once found.

    `jobs` and `cases_by_target` are counted per target; `most_per_case` is the largest number of jobs one target has
    for one case. `without_jobs` counts cases that no target answers, `refused` those that cannot be run. `refusals` has
    the reasons why evaluators cannot run, by file and id of the case. `judges` counts judge calls by judge, and
    `judge_characters` the characters of the cases in these calls. `embedders` are the targets that return embeddings,
    `users` those that play simulated users. `workers` is the lowest limit of concurrent calls of a dataset.
    `dependencies` are the cases that wait for others.
    """

    cases: int = 0
    jobs: Counter[str] = msgspec.field(default_factory=Counter)
    cases_by_target: Counter[str] = msgspec.field(default_factory=Counter)
    most_per_case: int = 1
    without_jobs: int = 0
    refused: int = 0
    refusals: dict[tuple[str, str], str] = {}
    thresholds: dict[str, float] = {}
    datasets: tuple[DatasetEntry, ...] = ()
    evaluators: dict[str, str] = {}
    judges: Counter[str] = msgspec.field(default_factory=Counter)
    judge_characters: Counter[str] = msgspec.field(default_factory=Counter)
    embedders: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    workers: int | None = None
    dependencies: Dependencies = Dependencies()

    @property
    def total(self) -> int:
        """Return the number of jobs over all targets."""
        return sum(self.jobs.values())

    def add(self, case: EvalCase, counts: dict[str, int], preflight: Preflight) -> None:
        """Count a case that was checked; `counts` is its number of jobs per target."""
        self.repeat(counts, 1)
        self.refused += case.case_error is not None
        self.most_per_case = max(self.most_per_case, *counts.values(), 1)
        if case.execution.thresholds:
            self.thresholds.update(case.execution.thresholds)
        if case.execution.workers is not None:
            self.workers = min(case.execution.workers, self.workers or case.execution.workers)
        if case.user is not None:
            self.users = tuple(dict.fromkeys((*self.users, case.user.target or USER_TARGET)))
        characters = _characters_for_judges(case) if preflight.judge_needs else 0
        for need in preflight.judge_needs if case.case_error is None else ():
            for target, times in counts.items():
                for judge in preflight.judges(need, target):
                    self.judges[judge] += need.calls * times
                    self.judge_characters[judge] += need.calls * times * characters

    def refuse(self, case: EvalCase, problem: Problem, sink: StrictSink) -> EvalCase:
        """Return a case that is refused for a problem, and warn about it."""
        reason = f"{problem.message}. {problem.hint}".rstrip(". ")
        self.refusals[case.path, case.id] = reason
        message = f"{case.path}, line {case.line}: refused case '{case.id}': {reason}"
        sink.warning(RefusedCaseWarning(message, path=case.path, line=case.line, field=problem.field))
        return refused_case(case, reason)

    def with_refusal(self, case: EvalCase) -> EvalCase:
        """Return a case, refused if it was refused when it was checked."""
        reason = self.refusals.get((case.path, case.id))
        return case if reason is None else refused_case(case, reason)

    def repeat(self, counts: dict[str, int], times: int) -> None:
        """Count the jobs of cases that share everything with one that was added."""
        self.cases += times
        self.without_jobs += 0 if counts else times
        for target, count in counts.items():
            self.jobs[target] += count * times
            self.cases_by_target[target] += times


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared run: inputs are resolved and checked, nothing has been called yet.

    `called` are the targets that answer jobs, `targets` the settings of all targets that may be called; `entry` returns
    a target's manifest entry. `answers` provides answers and records that need no call; in a rescore it is `rescored`.
    `uses` is the inventory of a plan that is only checked; otherwise it has no use of trusted files. `evaluators`
    replace those of the cases; `early_stop` decides when the run has enough results; `draw` are the cases
    that a budget leaves. `most_given` limits how many provided answers are scored concurrently.
    """

    options: EvalOptions
    project: Project
    cases: Cases
    source: JobSource
    checked: CheckResult
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    called: tuple[str, ...] = ()
    targets: tuple[Target, ...]
    entry: Callable[[str], TargetEntry]
    answers: AnswerSource | None = None
    rescored: RescoredAnswers | None = None
    early_stop: EarlyStopping | None = None
    draw: DrawProbabilities | None = None
    most_given: int | None = None
    uses: Inventory

    @property
    def gate_thresholds(self) -> dict[str, float]:
        """The thresholds of evaluators that the datasets set, unless the gates of files are off."""
        return {} if self.options.gates is not None and self.options.gates.no_gate else self.checked.thresholds

    @property
    def case_gates(self) -> CaseGates:
        """The gates that look at single cases."""
        return case_gates(self.options.gates, self.cases.sources, self.project.file.environment.variables.get)

    @property
    def is_gated(self) -> bool:
        """Whether scores decide the exit code: by a gate of the command, or by one written in a file."""
        by_command = self.options.gates is not None and self.options.gates.is_set
        return by_command or bool(self.gate_thresholds or self.case_gates.tolerances or self.case_gates.floors)

    @property
    def live_early_stop(self) -> EarlyStopping | None:
        """The early stopping that decides which cases run; None in a rescore, where it is applied at the end."""
        return self.early_stop if self.rescored is None else None

    def jobs(self) -> Iterator[Job]:
        """Yield every job in file order; the jobs of one case stay together."""
        for case in self.cases.stream_again():
            yield from self.source.jobs(case)


def evaluators_of(case: EvalCase, evaluators: tuple[EvaluatorSpec, ...] | None) -> tuple[EvaluatorSpec, ...]:
    """Return the evaluators of a case: the command's, else its own followed by those of its turns."""
    if evaluators is not None:
        return evaluators
    if not case.turns:
        return case.evaluators
    return (*case.evaluators, *(spec for turn in case.turns for spec in turn.evaluators))


def named_evaluators(case: EvalCase, evaluators: tuple[EvaluatorSpec, ...] | None) -> tuple[EvaluatorSpec, ...]:
    """Return the evaluators under their names in results: first those of turns, prefixed with the turn number."""
    if evaluators is not None or not any(turn.evaluators for turn in case.turns):
        return case.evaluators if evaluators is None else evaluators
    of_turns = [
        msgspec.structs.replace(spec, name=turn_evaluator_name(number, spec))
        for number, turn in enumerate(case.turns, 1)
        for spec in turn.evaluators
    ]
    return (*of_turns, *case.evaluators)


def check(cases: Cases, source: JobSource, facts: ProjectFacts, *, whole: bool) -> CheckResult:
    """Read every case once and raise the first problem. `whole` means that no case was left out by a selection."""
    preflight, checked = Preflight(facts), CheckResult()
    datasets = {dataset.path: _DatasetTotals(dataset.name) for dataset in cases.sources}
    totals = {file: datasets[dataset.path] for dataset in cases.sources for file in dataset.files}
    counts: dict[str, int] = {}
    repeats = 0
    dependents: list[EvalCase] = []
    for case in cases.stream():
        if case.details is not NO_DETAILS and has_dependencies(case):
            dependents.append(case)
        last, counts = counts, source.counts(case)
        if preflight.is_checked(case, counts):
            repeats += 1
        else:
            checked.repeat(last, repeats)
            repeats = 0
            for problem in preflight.problems(case, counts):
                _raise_or_warn(problem, case, facts, cases)
            if preflight.refusals:
                case = checked.refuse(case, preflight.refusals[0], cases.sink)
            checked.add(case, counts, preflight)
            if facts.survey is not None:
                facts.survey.add(case)
        if (dataset_totals := totals.get(case.place.origin.path)) is not None:
            dataset_totals.add(case)
    checked.repeat(counts, repeats)
    _check_refusals(checked, datasets, cases, whole=whole)
    _warn_about_shared_texts(datasets, cases.sink)
    if facts.judge is not None and facts.judge not in facts.may_judge:
        raise UsageError(f"Unknown judge '{facts.judge}'", hint=known_targets(facts.judge, facts.may_judge))
    if dependents:
        files = {file: dataset.path for dataset in cases.sources for file in dataset.files}
        checked.dependencies = read_dependencies(dependents, cases.stream_again, source.counts, files, whole=whole)
    skipped: dict[str, list[int]] = {}
    for path, line in cases.sink.skipped_places:
        skipped.setdefault(path, []).append(line)
    for case, problem in preflight.threshold_problems() if whole and facts.evaluators is None and not skipped else ():
        raise UsageError(problem.message, f"Set in {case.path}; no case has an evaluator with this name", problem.hint)
    checked.datasets = tuple(
        DatasetEntry(
            path=dataset.path,
            name=datasets[dataset.path].name,
            digest=cases.sink.stamps.digest(dataset),
            contents=datasets[dataset.path].contents,
            cases=datasets[dataset.path].cases,
            skipped_lines=tuple(line for file in dataset.files for line in skipped.get(file, ())),
            weight=datasets[dataset.path].weight,
        )
        for dataset in cases.sources
    )
    checked.evaluators, checked.embedders = preflight.fingerprints, tuple(preflight.embedders)
    return checked


def _check_refusals(checked: CheckResult, datasets: dict[str, _DatasetTotals], cases: Cases, *, whole: bool) -> None:
    """Raise InvalidDatasetError if all cases of a dataset are refused: then the file is wrong."""
    for path, totals in datasets.items() if checked.refusals and whole else ():
        if totals.cases == totals.refused:
            files = {file for source in cases.sources if source.path == path for file in source.files}
            reason = next(reason for (file, _), reason in checked.refusals.items() if file in files)
            raise InvalidDatasetError(f"All cases of {path} are refused", reason, path=path)


def _raise_or_warn(problem: Problem, case: EvalCase, facts: ProjectFacts, cases: Cases) -> None:
    from agentv.engine.checks.findings import sidecar_line  # late: few runs have problems

    in_sidecar = sidecar_line(problem, case, cases.sources)
    path, line = in_sidecar or (case.path, case.line)
    place: dict[str, Any] = {"path": path, "line": line, "field": problem.field}
    if problem.severity == "warning":
        cases.sink.warning(DatasetWarning(f"{path}, line {line}: {problem.message}", hint=problem.hint, **place))
    elif not problem.path or (problem.path[0] == "evaluators" and facts.evaluators is not None):
        # The problem is in the command, the program or the targets file, not in this case.
        headline, _, detail = problem.message.partition("\n")
        raise UsageError(headline, detail, problem.hint)
    else:
        what = "dataset" if in_sidecar else "eval case"
        raise InvalidCaseError(f"Invalid {what} at line {line} in {path}", problem.message, problem.hint, **place)


def _characters_for_judges(case: EvalCase) -> int:
    """Return the number of characters of a case that a judge reads, without the answer."""
    messages = case.prompts[0].input if case.prompts else case.input
    contents = (message.content for message in (*messages, *case.expected_output[-1:]) if message.content is not None)
    return len(case.expected_outcome) + sum(map(len, case.context)) + sum(map(len, map(content_text, contents)))


def _warn_about_shared_texts(datasets: dict[str, _DatasetTotals], sink: StrictSink) -> None:
    for path, totals in datasets.items():
        totals.texts.cases = totals.cases
        if warning := totals.texts.warning():
            sink.warning(DatasetWarning(warning, hint=HINT, path=path))


class _DatasetTotals:
    """Totals of one dataset. `contents` is a hash of the cases that name files."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cases = 0
        self.contents = ""
        self.weight = 1.0
        self.refused = 0
        self.texts = SharedTexts()

    def add(self, case: EvalCase) -> None:
        self.cases += 1
        self.name = case.place.origin.dataset
        if case.execution.weight is not None:
            self.weight = case.execution.weight
        if case.names_files:
            self.contents = merged_contents(self.contents, case.fingerprint)
            self.refused += case.details.case_error is not None
        is_short = type(text := stored_input(case)) is str and len(text) < LENGTH
        if not is_short and case.details.cluster is None and case.conversation_id is None:
            self.texts.cases = self.cases - 1
            self.texts.add(message.text or "" for message in case.input)
