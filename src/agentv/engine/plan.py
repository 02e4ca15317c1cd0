"""The plan of a run: which jobs there are. Everything is read and checked once before the first call."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from agentv.datasets.files import FileError
from agentv.datasets.jsonl import sidecar_of
from agentv.datasets.loading import Stopping
from agentv.datasets.source import Source
from agentv.engine.conversation import turn_check, user_target
from agentv.engine.evaluator_files import EvaluatorFiles
from agentv.engine.job import Job
from agentv.engine.judging import FALLBACK, judges_of
from agentv.errors import DatasetWarning, InvalidCaseError, UsageError
from agentv.evaluators.base import Evaluator
from agentv.evaluators.build import build
from agentv.model.case import USER_TARGET, EvalCase, SimulatedUser
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.response import content_text
from agentv.model.run import DatasetEntry
from agentv.suggest import did_you_mean

_REMEMBERED = 1024


def _no_judge(_: str) -> str | None:
    return None


class Cases(Protocol):
    """Where cases come from, any number of times: files, or a list that a program gives."""

    @property
    def sources(self) -> tuple[Source, ...]: ...

    @property
    def sink(self) -> Stopping: ...

    def stream(self) -> Iterator[EvalCase]: ...

    def stream_again(self) -> Iterator[EvalCase]: ...


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Cases crossed with targets, prompts and trials. What the command says replaces what files say.

    `targets` are the command's; `known` are all that may be named; `default` answers for cases that name none. `judge`
    is the command's too; `judge_target` says whom a target names.
    """

    cases: Cases
    known: tuple[str, ...]
    targets: tuple[str, ...] = ()
    default: str | None = None
    trials: int | None = None
    default_trials: int = 1
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    judge: str | None = None
    judge_target: Callable[[str], str | None] = _no_judge

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
        """How many jobs of a case each target has."""
        per_target = self.trials_of(case) * max(1, len(case.prompts))
        return dict.fromkeys(self.targets_of(case), per_target)

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

    `jobs` are counted by target; `most_per_case` is how often one target is asked one case: trials times prompts.
    `without_jobs` are cases that nobody is asked; `judges` are the calls that evaluators make, by judge, and
    `judge_characters` what these show of the cases; `embedders` are targets that are asked for embeddings, `users`
    those that play simulated users.
    """

    cases: int
    jobs: dict[str, int]
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
    checker = _Checker(plan)
    jobs: Counter[str] = Counter()
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
        dataset = sources.get(case.path)
        if dataset is None:
            dataset = sources[case.path] = _Found(case.dataset)
        dataset.add(case)
    skipped = _skipped_lines(plan.cases)
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


def digest_of(source: Source, contents: bytes = b"") -> str:
    """A hash of the bytes of a dataset, sidecar and shards included; `contents` stands for files that it names."""
    digest = hashlib.blake2b(contents, digest_size=16)
    sidecar = sidecar_of(source.base) if source.kind == "jsonl" else None
    for file in (*source.files, *([sidecar] if sidecar else ())):
        with Path(file).open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
        digest.update(b"\0")
    return digest.hexdigest()


class _Need(msgspec.Struct, frozen=True):
    """An evaluator that asks judges: whom its entry names, and how often each of them is asked about an answer."""

    evaluator: str
    own: str | tuple[str, ...] | None
    calls: int


class _Checker:
    """Checks cases against what can be run; what many cases share is checked once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._good: dict[EvaluatorSpec, tuple[_Need, ...]] = {}
        self._last: tuple[EvaluatorSpec, ...] | None = None
        self._needs: list[_Need] = []
        self._files = EvaluatorFiles()
        self._known = frozenset(plan.known)
        self.fingerprints: dict[str, str] = {}
        self.embedders: dict[str, None] = {}
        self.users: dict[str, None] = {}
        self.judges: Counter[str] = Counter()
        self.judge_characters: Counter[str] = Counter()
        self.thresholds: dict[str, float] = {}

    def check(self, case: EvalCase, counts: Mapping[str, int]) -> None:
        """Checks a case that its targets are asked so many times."""
        for target in counts:
            self._check_target(target, case, "execution.target")
        self.thresholds.update(case.execution.thresholds or {})
        if case.user is not None:
            self._add_user(case, case.user)
        specs = case.evaluators if self._plan.evaluators is None else self._plan.evaluators
        if specs is not self._last:
            self._last = specs
            self._needs = [need for spec in specs for need in self._checked(spec, case)]
        for need in (*self._needs, *self._needs_of_turns(case)):
            for target, times in counts.items():
                for judge in self._judges(need, target, case):
                    self.judges[judge] += need.calls * times
                    self.judge_characters[judge] += need.calls * times * _shown_to_judges(case)

    def _needs_of_turns(self, case: EvalCase) -> list[_Need]:
        if self._plan.evaluators is not None:
            return []
        needs: list[_Need] = []
        for number, turn in enumerate(case.turns, 1):
            for spec in turn.evaluators:
                self.fingerprints[turn_check(number, spec)] = spec.fingerprint
                needs += self._checked(spec, case, named=False)
        return needs

    def _add_user(self, case: EvalCase, user: SimulatedUser) -> None:
        if user.target is None and USER_TARGET not in self._known:
            hint = f"Name it in `user.target`, or call a target '{USER_TARGET}'; known: {', '.join(self._plan.known)}"
            raise _case_error(case, "No target plays the simulated user", hint, "user.target")
        name = user_target(user)
        self._check_target(name, case, "user.target")
        self.users[name] = None

    def _checked(self, spec: EvaluatorSpec, case: EvalCase, *, named: bool = True) -> tuple[_Need, ...]:
        """Whom an entry asks, its members included; it is checked when it has not been yet."""
        if named:
            self.fingerprints[spec.name] = spec.fingerprint
        needs = self._good.get(spec)
        if needs is None:
            needs = tuple(self._check_evaluator(spec, case))
            if len(self._good) >= _REMEMBERED:
                self._good.clear()  # cases may have evaluators of their own, and memory must not grow with them
            self._good[spec] = needs
        return needs

    def _check_evaluator(
        self, spec: EvaluatorSpec, case: EvalCase, inherited: str | tuple[str, ...] | None = None
    ) -> Iterator[_Need]:
        evaluator = self._built(spec, case)
        if not evaluator.can_run:
            message = f"Evaluators of type '{spec.type}' cannot be run in this version"
            hint = "Give the case or the dataset other evaluators, for example `{type: contains, value: …}`"
            raise _case_error(case, message, hint, "evaluators")
        if evaluator.embeds:
            self._add_embedder(spec, case)
        if evaluator.refusal:
            hint = "Run it where that can be had, or write `sandbox: preferred`, which runs with what there is"
            raise _case_error(case, f"Evaluator '{spec.name}': {evaluator.refusal}", hint, "evaluators")
        own = spec.target or inherited
        if evaluator.judge_calls:
            yield _Need(spec.name, evaluator.judge or own, evaluator.judge_calls)
        for member in evaluator.members:
            yield from self._check_evaluator(member, case, own)

    def _built(self, spec: EvaluatorSpec, case: EvalCase) -> Evaluator:
        origin = case.place.origin
        try:
            evaluator = build(spec, lambda value: self._files.path(origin, value))
            self._files.check(evaluator, spec, origin)
            problems = evaluator.preflight(lambda value: self._files.path(origin, value))
        except FileError as error:
            raise _case_error(case, f"Evaluator '{spec.name}': {error.message}", error.hint, "evaluators") from None
        except UsageError as error:
            if self._plan.evaluators is not None:
                raise  # they come from the command or a program, not from this case
            message = f"{error.headline}\n{error.detail}".strip()
            raise _case_error(case, message, error.hint, "evaluators") from None
        for problem in problems:
            message = f"Evaluator '{spec.name}': {problem.message}"
            if problem.severity == "error":
                raise _case_error(case, message, problem.hint, "evaluators")
            warning = DatasetWarning(message, path=case.path, line=case.line, field="evaluators", hint=problem.hint)
            self._plan.cases.sink.warning(warning)
        return evaluator

    def _judges(self, need: _Need, target: str, case: EvalCase) -> tuple[str, ...]:
        """Who judges a target's answers. Raises when that is nobody: a target never judges itself unless it is told."""
        plan = self._plan
        judges = judges_of(plan.judge, need.own, plan.judge_target(target), self._known)
        if not judges:
            message = f"Evaluator '{need.evaluator}' asks a judge, and none is named"
            hint = (
                f"Name one with --judge, `target` of the evaluator or `judge_target` of the target '{target}', "
                f"or call a target '{FALLBACK}'"
            )
            raise self._refusal(case, message, hint)
        for judge in judges:
            if judge not in self._known:
                hint = did_you_mean(judge, plan.known) or f"Known targets: {', '.join(plan.known)}"
                raise self._refusal(case, f"Unknown judge '{judge}' of evaluator '{need.evaluator}'", hint)
        return judges

    def _refusal(self, case: EvalCase, message: str, hint: str) -> UsageError | InvalidCaseError:
        """An error of the case; of the whole run where the command or a program names evaluators or the judge."""
        if self._plan.evaluators is not None or self._plan.judge is not None:
            return UsageError(message, hint=hint)
        return _case_error(case, message, hint, "evaluators")

    def _add_embedder(self, spec: EvaluatorSpec, case: EvalCase) -> None:
        if not isinstance(spec.target, str):
            hint = "Write `target: NAME` beside `method: embedding`"
            raise _case_error(
                case, f"Evaluator '{spec.name}' needs one target that makes embeddings", hint, "evaluators"
            )
        self._check_target(spec.target, case, "evaluators")
        self.embedders[spec.target] = None

    def _check_target(self, target: str, case: EvalCase, field: str) -> None:
        if target not in self._known:
            hint = did_you_mean(target, self._plan.known) or f"Known targets: {', '.join(self._plan.known)}"
            raise _case_error(case, f"Unknown target '{target}'", hint, field)


def _shown_to_judges(case: EvalCase) -> int:
    """Characters of a case that a judge reads, the answer not among them."""
    messages = case.prompts[0].input if case.prompts else case.input
    said = (message.content for message in (*messages, *case.expected_output[-1:]) if message.content is not None)
    return len(case.expected_outcome) + sum(map(len, case.context)) + sum(len(content_text(each)) for each in said)


def _case_error(case: EvalCase, message: str, hint: str, field: str) -> InvalidCaseError:
    headline = f"Invalid eval case at line {case.line} in {case.path}"
    return InvalidCaseError(headline, message, hint, path=case.path, line=case.line, field=field)
