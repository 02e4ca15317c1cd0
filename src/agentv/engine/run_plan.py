"""The plan of a run: its inputs, its jobs, and what the first reading of the cases found."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.loader import Stopping
from agentv.engine.preflight import Checker, ProjectFacts
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_project import Project
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec, Execution, turn_evaluator_name
from agentv.model.job import AnswerSource, Job
from agentv.model.manifest import DatasetEntry, TargetEntry, merged_contents
from agentv.support.hashes import add_file
from agentv.targets.target import Target

if TYPE_CHECKING:
    from agentv.engine.answers.rescored import RescoredAnswers
    from agentv.engine.early_stop import EarlyStopping

Fingerprints = tuple[str, str]
"""The hash of what is asked, and of that together with what the answer is checked against."""


class Cases(Protocol):
    """Where cases come from, any number of times: files, or a list that a program gives."""

    @property
    def sources(self) -> tuple[Source, ...]: ...

    @property
    def sink(self) -> Stopping: ...

    def stream(self) -> Iterator[EvalCase]: ...

    def stream_again(self) -> Iterator[EvalCase]: ...


class JobSource(Protocol):
    """Which jobs a case has."""

    def counts(self, case: EvalCase) -> dict[str, int]:
        """Return how many jobs of a case each target has: the same object for neighbours with the same settings."""
        ...

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]: ...

    def fingerprints(self, case: EvalCase) -> Fingerprints: ...


class LiveJobs:
    """Cases crossed with targets, prompts and trials; every answer is a call. The command overrides the files."""

    def __init__(self, options: EvalOptions, project: Project) -> None:
        self._targets = options.targets or project.given
        self._default = project.default_target
        self._known = project.names
        self._trials = options.trials
        self._default_trials = project.defaults.trials or 1
        self._last: tuple[Execution, int, dict[str, int]] | None = None

    def counts(self, case: EvalCase) -> dict[str, int]:
        last = self._last
        if last is None or last[0] is not case.execution or last[1] != len(case.prompts):
            jobs = self._trials_of(case) * max(1, len(case.prompts))
            counts = dict.fromkeys(self._targets_of(case), jobs)
            last = self._last = (case.execution, len(case.prompts), counts)
        return last[2]

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        trials, counts = self._trials_of(case), self.counts(case)
        if trials == 1 and not case.prompts:  # the common case
            return [Job(case, target, None, 1, fingerprint) for target in counts]
        prompts: list[str | None] = [prompt.id for prompt in case.prompts] or [None]
        return [
            Job(case, target, prompt, trial, fingerprint)
            for target in counts
            for prompt in prompts
            for trial in range(1, trials + 1)
        ]

    def fingerprints(self, case: EvalCase) -> Fingerprints:
        return case.fingerprints

    def _trials_of(self, case: EvalCase) -> int:
        return self._trials or case.execution.trials or self._default_trials

    def _targets_of(self, case: EvalCase) -> tuple[str, ...]:
        if self._targets:
            return self._targets
        if case.execution.targets:
            return tuple(dict.fromkeys(case.execution.targets))
        name = case.execution.target or self._default
        if name is None:
            raise UsageError(
                "No target was named, and none is called 'default'",
                hint=f"Name one with --target: {', '.join(self._known) or 'there is none yet'}",
            )
        return (name,)


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the first reading found.

    `jobs` are counted by target, and so are the cases that each target is `asked`; `most_per_case` is the largest
    number of jobs that one target has for one case. `without_jobs` are cases that no target answers; `judges` are the
    calls that evaluators make, by judge, and `judge_characters` what these show of the cases; `embedders` make
    embeddings, `users` play simulated users.
    """

    cases: int
    jobs: dict[str, int]
    asked: dict[str, int]
    most_per_case: int = 1
    without_jobs: int = 0
    thresholds: dict[str, float] = {}
    datasets: tuple[DatasetEntry, ...]
    evaluators: dict[str, str]
    judges: dict[str, int] = {}
    judge_characters: dict[str, int] = {}
    embedders: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Return the number of jobs over all targets."""
        return sum(self.jobs.values())


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared run: inputs are resolved and checked, nothing has been called yet.

    `called` are the targets that answer jobs, `targets` the settings of all that may be called, `entry` returns one as
    the manifest describes it. `answers` decides about each job where its answer need not come from a target; in a
    rescoring that is `rescored`. `evaluators` replace those of the cases; `early_stop` decides whether enough is known.
    """

    options: EvalOptions
    project: Project
    cases: Cases
    source: JobSource
    checked: Checked
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    called: tuple[str, ...] = ()
    targets: tuple[Target, ...]
    entry: Callable[[str], TargetEntry]
    answers: AnswerSource | None = None
    rescored: RescoredAnswers | None = None
    early_stop: EarlyStopping | None = None
    most_given: int | None = None

    def jobs(self) -> Iterator[Job]:
        """Return every job, in the order of the files; the jobs of one case stay together."""
        for case in self.cases.stream_again():
            yield from self.source.jobs(case)


def evaluators_of(case: EvalCase, given: tuple[EvaluatorSpec, ...] | None) -> tuple[EvaluatorSpec, ...]:
    """Return the evaluators that score a case: the command's, else its own and then those of its turns."""
    if given is not None:
        return given
    if not case.turns:
        return case.evaluators
    return (*case.evaluators, *(spec for turn in case.turns for spec in turn.evaluators))


def named_evaluators(case: EvalCase, given: tuple[EvaluatorSpec, ...] | None) -> tuple[EvaluatorSpec, ...]:
    """Return the same under their names in results: those of turns first, with the number of their turn."""
    if given is not None or not any(turn.evaluators for turn in case.turns):
        return case.evaluators if given is None else given
    of_turns = [
        msgspec.structs.replace(spec, name=turn_evaluator_name(number, spec))
        for number, turn in enumerate(case.turns, 1)
        for spec in turn.evaluators
    ]
    return (*of_turns, *case.evaluators)


def check(cases: Cases, source: JobSource, facts: ProjectFacts, *, whole: bool) -> Checked:
    """Read every case once, and raise at the first problem; `whole` when no case was left out by a selection."""
    checker = Checker(facts, cases.sink.warning)
    jobs: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    most, without = 1, 0
    found = {each.path: _Found(each.name) for each in cases.sources}
    sources = {file: found[each.path] for each in cases.sources for file in each.files}
    for case in cases.stream():
        counts = source.counts(case)
        checker.check(case, counts)
        without += not counts
        for target, count in counts.items():
            most = max(most, count)
            jobs[target] += count
            asked[target] += 1
        dataset = sources.get(case.path)
        if dataset is None:
            dataset = sources[case.path] = _Found(case.dataset)
        dataset.add(case)
    checker.check_named_judge()
    skipped: dict[str, list[int]] = {}
    for path, line in cases.sink.skipped_places:
        skipped.setdefault(path, []).append(line)
    if whole and facts.evaluators is None and not skipped:
        checker.check_thresholds()
    datasets = tuple(
        DatasetEntry(
            path=each.path,
            name=found[each.path].name,
            digest=digest_of(each),
            contents=found[each.path].contents,
            cases=found[each.path].cases,
            skipped_lines=tuple(line for file in each.files for line in skipped.get(file, ())),
        )
        for each in cases.sources
    )
    return Checked(
        thresholds=checker.thresholds,
        cases=sum({id(each): each.cases for each in sources.values()}.values()),
        jobs=dict(jobs),
        asked=dict(asked),
        most_per_case=most,
        without_jobs=without,
        datasets=datasets,
        evaluators=checker.fingerprints,
        judges=dict(checker.judges),
        judge_characters=dict(checker.judge_characters),
        embedders=tuple(checker.embedders),
        users=tuple(checker.users),
    )


class _Found:
    """What was found in one dataset. `contents` is a hash of the cases that name files."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cases = 0
        self.contents = ""

    def add(self, case: EvalCase) -> None:
        self.cases += 1
        self.name = case.dataset
        if case.names_files or case.workspace is not None:
            self.contents = merged_contents(self.contents, case.fingerprint)


def files_of(source: Source) -> tuple[str, ...]:
    """Return the files of a dataset: its own, every shard, and the sidecar where there is one."""
    return (*source.files, *([source.sidecar] if source.sidecar else ()))


def digest_of(source: Source) -> str:
    """Return a hash of the bytes of a dataset, sidecar and shards included."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files_of(source):
        add_file(digest, file)
        digest.update(b"\0")
    return digest.hexdigest()
