"""The plan of a run: which jobs there are. Everything is read and checked once before the first call."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from agentv.datasets.jsonl import sidecar_of
from agentv.datasets.loading import Stopping
from agentv.datasets.source import Source
from agentv.engine.job import Job
from agentv.errors import InvalidCaseError, UsageError
from agentv.evaluators.base import Evaluator
from agentv.evaluators.build import build
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.run import DatasetEntry
from agentv.suggest import did_you_mean


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

    `targets` are the command's; `known` are all that may be named; `default` answers for cases that name none.
    """

    cases: Cases
    known: tuple[str, ...]
    targets: tuple[str, ...] = ()
    default: str | None = None
    trials: int | None = None
    evaluators: tuple[EvaluatorSpec, ...] | None = None

    def jobs(self) -> Iterator[Job]:
        """Every job, in the order of the files; the jobs of one case stand together."""
        for case in self.cases.stream_again():
            yield from self.jobs_of(case)

    def jobs_of(self, case: EvalCase, fingerprint: str | None = None) -> Iterator[Job]:
        """The jobs of one case."""
        trials = self.trials or case.execution.trials or 1
        prompts: list[str | None] = [prompt.id for prompt in case.prompts] or [None]
        for target in self.targets_of(case):
            for prompt in prompts:
                for trial in range(1, trials + 1):
                    yield Job(case, target, prompt, trial, fingerprint)

    def targets_of(self, case: EvalCase) -> tuple[str, ...]:
        """The targets that answer a case: the command's, else its own, else the default."""
        if self.targets:
            return self.targets
        if case.execution.targets:
            return case.execution.targets
        name = case.execution.target or self.default
        if name is None:
            raise UsageError(
                "No target was named, and none is called 'default'",
                hint=f"Name one with --target: {', '.join(self.known) or 'there is none yet'}",
            )
        return (name,)


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the first reading found: all in order, and so much of it."""

    cases: int
    jobs: dict[str, int]
    thresholds: dict[str, float] = {}
    datasets: tuple[DatasetEntry, ...]
    evaluators: dict[str, str]

    @property
    def total(self) -> int:
        """Jobs over all targets."""
        return sum(self.jobs.values())


def check(plan: Plan) -> Checked:
    """Reads every case once. Raises at the first thing that would go wrong later: nothing has been called yet."""
    checker = _Checker(plan)
    jobs: Counter[str] = Counter()
    per_dataset: Counter[str] = Counter()
    names: dict[str, str] = {}
    sources = {file: source.path for source in plan.cases.sources for file in source.files}
    for case in plan.cases.stream():
        checker.check(case)
        source = sources.get(case.path, case.path)
        per_dataset[source] += 1
        names[source] = case.dataset
        for target in plan.targets_of(case):
            trials = plan.trials or case.execution.trials or 1
            jobs[target] += trials * max(1, len(case.prompts))
    datasets = tuple(
        DatasetEntry(
            path=source.path,
            name=names.get(source.path, source.name),
            digest=digest_of(source),
            cases=per_dataset[source.path],
        )
        for source in plan.cases.sources
    )
    return Checked(
        thresholds=checker.thresholds,
        cases=sum(per_dataset.values()),
        jobs=dict(jobs),
        datasets=datasets,
        evaluators=checker.fingerprints,
    )


def digest_of(source: Source) -> str:
    """A hash of the bytes of a dataset, sidecar and shards included."""
    digest = hashlib.blake2b(digest_size=16)
    sidecar = sidecar_of(source.base) if source.kind == "jsonl" else None
    for file in (*source.files, *([sidecar] if sidecar else ())):
        with Path(file).open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
        digest.update(b"\0")
    return digest.hexdigest()


class _Checker:
    """Checks cases against what can be run; what many cases share is checked once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._built: dict[EvaluatorSpec, Evaluator] = {}
        self._known = frozenset(plan.known)
        self.fingerprints: dict[str, str] = {}
        self.thresholds: dict[str, float] = {}

    def check(self, case: EvalCase) -> None:
        for target in self._plan.targets_of(case):
            if target not in self._known:
                hint = did_you_mean(target, self._plan.known) or f"Known targets: {', '.join(self._plan.known)}"
                raise _case_error(case, f"Unknown target '{target}'", hint, "execution.target")
        self.thresholds.update(case.execution.thresholds or {})
        for key in ("turns", "user", "workspace"):
            if getattr(case, key):
                raise _case_error(case, f"Cases with '{key}' cannot be run in this version", "", key)
        for spec in case.evaluators if self._plan.evaluators is None else self._plan.evaluators:
            if spec not in self._built:
                self._check_evaluator(spec, case)

    def _check_evaluator(self, spec: EvaluatorSpec, case: EvalCase) -> None:
        evaluator = self._built[spec] = build(spec)
        self.fingerprints[spec.name] = spec.fingerprint
        if not evaluator.can_run:
            message = f"Evaluators of type '{spec.type}' cannot be run in this version"
            hint = "Give the case or the dataset other evaluators, for example `{type: contains, value: …}`"
            raise _case_error(case, message, hint, "evaluators")


def _case_error(case: EvalCase, message: str, hint: str, field: str) -> InvalidCaseError:
    headline = f"Invalid eval case at line {case.line} in {case.path}"
    return InvalidCaseError(headline, message, hint, path=case.path, line=case.line, field=field)
