"""The plan of a run: which jobs there are. Everything is read and checked once before the first call."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from agentv.datasets.formats.jsonl import sidecar_of
from agentv.datasets.loader import Stopping
from agentv.datasets.source import Source
from agentv.engine.job.conversation import turn_check
from agentv.engine.job.spec import Job
from agentv.engine.preflight import Checker
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.execution import Execution
from agentv.model.manifest import DatasetEntry
from agentv.support.file_hashes import add_file


def _nothing(_: str) -> None:
    return None


class Cases(Protocol):
    """Where cases come from, any number of times: files, or a list that a program gives."""

    @property
    def sources(self) -> tuple[Source, ...]: ...

    @property
    def sink(self) -> Stopping: ...

    def stream(self) -> Iterator[EvalCase]: ...

    def stream_again(self) -> Iterator[EvalCase]: ...


class _LastCounts:
    """What was counted last. The cases of a dataset mostly share their settings, and are many."""

    execution: Execution | None = None
    prompts = 0
    counts: dict[str, int] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Cases crossed with targets, prompts and trials. What the command says replaces what files say.

    `targets` are the command's; `known` are all that may be named; `default` answers for cases that name none. `judge`
    is the command's too; `judge_target` says whom a target names, `transform` how its answers are cleaned. `whole` is
    whether all cases of the files are there.
    """

    cases: Cases
    known: tuple[str, ...]
    targets: tuple[str, ...] = ()
    default: str | None = None
    trials: int | None = None
    default_trials: int = 1
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    judge: str | None = None
    judge_target: Callable[[str], str | None] = _nothing
    transform: Callable[[str], Any] = _nothing
    whole: bool = True
    _last: _LastCounts = msgspec.field(default_factory=lambda: _LastCounts())

    def jobs(self) -> Iterator[Job]:
        """Every job, in the order of the files; the jobs of one case stand together."""
        for case in self.cases.stream_again():
            yield from self.jobs_of(case)

    def jobs_of(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        """The jobs of one case."""
        trials = self.trials_of(case)
        prompts: list[str | None] = [prompt.id for prompt in case.prompts] or [None]
        return [
            Job(case, target, prompt, trial, fingerprint)
            for target in self.targets_of(case)
            for prompt in prompts
            for trial in range(1, trials + 1)
        ]

    def counts_of(self, case: EvalCase) -> dict[str, int]:
        """How many jobs of a case each target has: the same object for neighbours of which the same holds."""
        last = self._last
        if last.execution is not case.execution or last.prompts != len(case.prompts):
            last.execution, last.prompts = case.execution, len(case.prompts)
            last.counts = dict.fromkeys(self.targets_of(case), self.trials_of(case) * max(1, last.prompts))
        return last.counts

    @property
    def may_judge(self) -> tuple[str, ...]:
        """The targets that may be named as judges."""
        return self.known

    def prints_of(self, case: EvalCase) -> tuple[str, str]:
        """The hashes of what is asked, and of that with what the answer is held against."""
        return case.fingerprints

    def evaluators_of(self, case: EvalCase) -> tuple[EvaluatorSpec, ...]:
        """The evaluators that score a case: the command's, else its own, those of its turns behind them."""
        if self.evaluators is not None:
            return self.evaluators
        if not case.turns:
            return case.evaluators
        return (*case.evaluators, *(spec for turn in case.turns for spec in turn.evaluators))

    def checks_of(self, case: EvalCase) -> tuple[EvaluatorSpec, ...]:
        """The same under the names that results have, those of turns first and with the number of their turn."""
        if self.evaluators is not None:
            return self.evaluators
        if not any(turn.evaluators for turn in case.turns):
            return case.evaluators
        of_turns = [
            msgspec.structs.replace(spec, name=turn_check(number, spec))
            for number, turn in enumerate(case.turns, 1)
            for spec in turn.evaluators
        ]
        return (*of_turns, *case.evaluators)

    def trials_of(self, case: EvalCase) -> int:
        """How often a case is asked: the command's word, else its own, else the default."""
        return self.trials or case.execution.trials or self.default_trials

    def targets_of(self, case: EvalCase) -> tuple[str, ...]:
        """The targets that answer a case: the command's, else its own, else the default."""
        if self.targets:
            return self.targets
        if case.execution.targets:
            return tuple(dict.fromkeys(case.execution.targets))
        name = case.execution.target or self.default
        if name is None:
            raise UsageError(
                "No target was named, and none is called 'default'",
                hint=f"Name one with --target: {', '.join(self.known) or 'there is none yet'}",
            )
        return (name,)


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the first reading found: all in order, and so much of it.

    `jobs` are counted by target, and so are the cases that each is `asked`; `most_per_case` is how often one target is
    asked one case: trials times prompts.
    `without_jobs` are cases that nobody is asked; `judges` are the calls that evaluators make, by judge, and
    `judge_characters` what these show of the cases; `embedders` are targets that are asked for embeddings, `users`
    those that play simulated users.
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
        """Jobs over all targets."""
        return sum(self.jobs.values())


def check(plan: Plan) -> Checked:
    """Reads every case once. Raises at the first thing that would go wrong later: nothing has been called yet."""
    checker = Checker(plan)
    jobs: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    most, without = 1, 0
    found = {source.path: _Found(source.name) for source in plan.cases.sources}
    sources = {file: found[source.path] for source in plan.cases.sources for file in source.files}
    for case in plan.cases.stream():
        counts = plan.counts_of(case)
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
    skipped = _skipped_lines(plan.cases)
    if plan.whole and plan.evaluators is None and not skipped:
        checker.check_thresholds()
    datasets = tuple(
        DatasetEntry(
            path=source.path,
            name=found[source.path].name,
            digest=digest_of(source, found[source.path].contents.digest()),
            cases=found[source.path].cases,
            skipped_lines=tuple(line for file in source.files for line in skipped.get(file, ())),
        )
        for source in plan.cases.sources
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
    """What the first reading found in one dataset. `contents` stands for files that its cases name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cases = 0
        self.contents = hashlib.blake2b(digest_size=16)

    def add(self, case: EvalCase) -> None:
        self.cases += 1
        self.name = case.dataset
        if case.names_files or case.workspace is not None:
            self.contents.update(case.fingerprint.encode())


def _skipped_lines(cases: Cases) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for path, line in cases.sink.skipped_places:
        lines.setdefault(path, []).append(line)
    return lines


def files_of(source: Source) -> tuple[str, ...]:
    """The files of a dataset: its own, shards all of them, and the sidecar where there is one."""
    sidecar = sidecar_of(source.base) if source.kind == "jsonl" else None
    return (*source.files, *([sidecar] if sidecar else ()))


def digest_of(source: Source, contents: bytes = b"") -> str:
    """A hash of the bytes of a dataset, sidecar and shards included; `contents` stands for files that it names."""
    digest = hashlib.blake2b(contents, digest_size=16)
    for file in files_of(source):
        add_file(digest, file)
        digest.update(b"\0")
    return digest.hexdigest()
