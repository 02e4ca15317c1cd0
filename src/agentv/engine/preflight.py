"""Checks cases before the first call: their targets, judges and evaluators are there and can be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from agentv.datasets.files import FileError
from agentv.engine.job.conversation import turn_check, user_target
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.engine.scoring.judge_calls import FALLBACK, judges_of
from agentv.errors import DatasetWarning, InvalidCaseError, UsageError
from agentv.evaluators.base import NEEDS_CONTEXT, NO_CONTEXT_HINT, NO_REFERENCE_HINT, Evaluator, has_context
from agentv.evaluators.code.static_checks import transform_problems
from agentv.evaluators.resolution import evaluator_of
from agentv.model.case import USER_TARGET, EvalCase, Origin, SimulatedUser
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.response import content_text
from agentv.model.values import digest
from agentv.settings.diagnostics import did_you_mean

_REMEMBERED = 1024


class ProjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What cases are checked against: the targets there are, who may judge, and what the command overrides.

    `judge_target` returns the judge that a target names, `transform` how its answers are cleaned.
    """

    known: tuple[str, ...]
    may_judge: tuple[str, ...]
    judge: str | None = None
    judge_target: Callable[[str], str | None] = lambda _: None
    transform: Callable[[str], Any] = lambda _: None
    evaluators: tuple[EvaluatorSpec, ...] | None = None


class _Need(msgspec.Struct, frozen=True):
    """An evaluator that asks judges: whom its entry names, and how often each of them is asked about an answer."""

    evaluator: str
    own: str | tuple[str, ...] | None
    calls: int


class _Entry(msgspec.Struct, frozen=True):
    """What is known of an evaluator that was checked: whom it asks, and whether cases must have a reference for it."""

    needs: tuple[_Need, ...]
    needs_reference: bool
    needs_context: bool
    fingerprint: str


class Checker:
    """Checks cases against what can be run; what many cases share is checked once."""

    def __init__(self, facts: ProjectFacts, warn: Callable[[DatasetWarning], None]) -> None:
        self._facts = facts
        self._warn = warn
        self._good: dict[tuple[EvaluatorSpec, str], _Entry] = {}
        self._last: tuple[EvaluatorSpec, ...] | None = None
        self._origin: Origin | None = None
        self._counts: Mapping[str, int] | None = None
        self._needs: list[_Need] = []
        self._referring: list[str] = []
        self._reading: list[str] = []
        self._files = EvaluatorFiles()
        self._known = frozenset(facts.known)
        self._cleaned: set[tuple[str, str]] = set()
        self.fingerprints: dict[str, str] = {}
        self.embedders: dict[str, None] = {}
        self.users: dict[str, None] = {}
        self.judges: Counter[str] = Counter()
        self.judge_characters: Counter[str] = Counter()
        self.thresholds: dict[str, float] = {}
        self._threshold_files: dict[str, str] = {}

    def check(self, case: EvalCase, counts: Mapping[str, int]) -> None:
        """Checks a case that its targets are asked so many times."""
        origin = case.place.origin
        if counts is not self._counts or origin is not self._origin:
            self._counts = counts
            for target in counts:
                self._check_target(target, case, "execution.target")
                self._check_transform(target, case)
        if case.execution.thresholds:
            self.thresholds.update(case.execution.thresholds)
            self._threshold_files.update(dict.fromkeys(case.execution.thresholds, case.path))
        if case.user is not None:
            self._add_user(case, case.user)
        specs = case.evaluators if self._facts.evaluators is None else self._facts.evaluators
        if specs is not self._last or origin is not self._origin:
            self._last, self._origin = specs, origin
            entries = [self._checked(spec, case) for spec in specs]
            self._needs = [need for entry in entries for need in entry.needs]
            named = [(spec.name, entry) for spec, entry in zip(specs, entries, strict=True)]
            self._referring = [name for name, entry in named if entry.needs_reference]
            self._reading = [name for name, entry in named if entry.needs_context]
        if self._referring and not case.expected_output and counts:
            raise _no_reference(case, self._referring[0])
        if self._reading and not has_context(case.context) and counts:
            raise _no_context(case, self._reading[0])
        for need in (*self._needs, *self._needs_of_turns(case)):
            for target, times in counts.items():
                for judge in self._judges(need, target, case):
                    self.judges[judge] += need.calls * times
                    self.judge_characters[judge] += need.calls * times * _shown_to_judges(case)

    def check_thresholds(self) -> None:
        """Raises for a threshold of an evaluator that no case has. All cases must have been checked."""
        for name, path in self._threshold_files.items():
            if name not in self.fingerprints:
                known = ", ".join(self.fingerprints) or "none"
                raise UsageError(
                    f"'execution.thresholds' names an unknown evaluator '{name}'",
                    f"It is in {path}, and no case has an evaluator of that name",
                    did_you_mean(name, self.fingerprints) or f"Known evaluators: {known}",
                )

    def _needs_of_turns(self, case: EvalCase) -> list[_Need]:
        if self._facts.evaluators is not None:
            return []
        needs: list[_Need] = []
        for number, turn in enumerate(case.turns, 1):
            for spec in turn.evaluators:
                entry = self._checked(spec, case, turn_check(number, spec))
                if entry.needs_reference and not turn.expected_output:
                    raise _no_reference(case, turn_check(number, spec), f"Turn {number}")
                if entry.needs_context and not has_context(case.context):
                    raise _no_context(case, turn_check(number, spec))
                needs += entry.needs
        return needs

    def _add_user(self, case: EvalCase, user: SimulatedUser) -> None:
        if user.target is None and USER_TARGET not in self._known:
            hint = f"Name it in `user.target`, or call a target '{USER_TARGET}'; known: {', '.join(self._facts.known)}"
            raise _case_error(case, "No target plays the simulated user", hint, "user.target")
        name = user_target(user)
        self._check_target(name, case, "user.target")
        self.users[name] = None

    def _checked(self, spec: EvaluatorSpec, case: EvalCase, name: str | None = None) -> _Entry:
        """Whom an entry asks, its members included, and what it needs; it is checked when it has not been yet.

        `name` is the one that it has in results, where that is not its own.
        """
        named = name or spec.name
        place = (spec, case.place.origin.base_dir)  # files that it names are looked for there
        entry = self._good.get(place)
        if entry is None:
            evaluator = self._built(spec, case)
            needs = tuple(self._check_evaluator(spec, evaluator, case))
            fingerprint = self._files.each(case, (spec,))[spec.name]
            entry = _Entry(needs, evaluator.needs_reference, evaluator.needs_context, fingerprint)
            if len(self._good) >= _REMEMBERED:
                self._good.clear()  # cases may have evaluators of their own, and memory must not grow with them
            self._good[place] = entry
            if (known := self.fingerprints.get(named)) is not None:
                self.fingerprints[named] = digest([known, entry.fingerprint])
        self.fingerprints.setdefault(named, entry.fingerprint)
        return entry

    def _check_evaluator(
        self,
        spec: EvaluatorSpec,
        evaluator: Evaluator,
        case: EvalCase,
        inherited: str | tuple[str, ...] | None = None,
    ) -> Iterator[_Need]:
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
            yield from self._check_evaluator(member, self._built(member, case), case, own)

    def _built(self, spec: EvaluatorSpec, case: EvalCase) -> Evaluator:
        origin = case.place.origin
        try:
            evaluator = evaluator_of(spec, lambda value: self._files.path(origin, value))
            self._files.check(evaluator, spec, origin)
            problems = evaluator.preflight(lambda value: self._files.path(origin, value), origin.base_dir or ".")
            problems += transform_problems(spec.transform, lambda value: self._files.path(origin, value))
        except FileError as error:
            raise _case_error(case, f"Evaluator '{spec.name}': {error.message}", error.hint, "evaluators") from None
        except UsageError as error:
            if self._facts.evaluators is not None:
                raise  # they come from the command or a program, not from this case
            message = f"{error.headline}\n{error.detail}".strip()
            raise _case_error(case, message, error.hint, "evaluators") from None
        for problem in problems:
            message = f"Evaluator '{spec.name}': {problem.message}"
            if problem.severity == "error":
                raise _case_error(case, message, problem.hint, "evaluators")
            message = f"{case.path}, line {case.line}: {message}"
            warning = DatasetWarning(message, path=case.path, line=case.line, field="evaluators", hint=problem.hint)
            self._warn(warning)
        return evaluator

    def _check_transform(self, target: str, case: EvalCase) -> None:
        """The function that cleans a target's answers is there; it is looked for as the dataset's files are."""
        origin = case.place.origin
        if (target, origin.base_dir) in self._cleaned:
            return
        self._cleaned.add((target, origin.base_dir))
        what = f"'transform' of the target '{target}'"
        try:
            problems = transform_problems(self._facts.transform(target), lambda value: self._files.path(origin, value))
        except FileError as error:
            raise UsageError(f"{what}: {error.message}", hint=error.hint) from None
        for problem in problems:
            raise UsageError(f"{what}: {problem.message}", hint=problem.hint)

    def _judges(self, need: _Need, target: str, case: EvalCase) -> tuple[str, ...]:
        """Who judges a target's answers. Raises when that is nobody: a target never judges itself unless it is told."""
        facts = self._facts
        judges = judges_of(facts.judge, need.own, facts.judge_target(target), self._known)
        if not judges:
            message = f"Evaluator '{need.evaluator}' asks a judge, and none is named"
            hint = (
                f"Name one with --judge, `target` of the evaluator or `judge_target` of the target '{target}', "
                f"or call a target '{FALLBACK}'"
            )
            raise self._refusal(case, message, hint)
        for judge in judges:
            if judge not in facts.may_judge:
                message = f"Unknown judge '{judge}' of evaluator '{need.evaluator}'"
                raise self._refusal(case, message, self._other_judges(judge))
        return judges

    def check_named_judge(self) -> None:
        """Raises when the command names a judge that there is none of, though nobody would have asked it."""
        judge = self._facts.judge
        if judge is not None and judge not in self._facts.may_judge:
            raise UsageError(f"Unknown judge '{judge}'", hint=self._other_judges(judge))

    def _other_judges(self, judge: str) -> str:
        known = self._facts.may_judge
        return did_you_mean(judge, known) or f"Known targets: {', '.join(known)}"

    def _refusal(self, case: EvalCase, message: str, hint: str) -> UsageError | InvalidCaseError:
        """An error of the case; of the whole run where the command or a program names evaluators or the judge."""
        if self._facts.evaluators is not None or self._facts.judge is not None:
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
            hint = did_you_mean(target, self._facts.known) or f"Known targets: {', '.join(self._facts.known)}"
            raise _case_error(case, f"Unknown target '{target}'", hint, field)


def _shown_to_judges(case: EvalCase) -> int:
    """Characters of a case that a judge reads, the answer not among them."""
    messages = case.prompts[0].input if case.prompts else case.input
    said = (message.content for message in (*messages, *case.expected_output[-1:]) if message.content is not None)
    return len(case.expected_outcome) + sum(map(len, case.context)) + sum(len(content_text(each)) for each in said)


def _no_reference(case: EvalCase, evaluator: str, where: str = "The case") -> InvalidCaseError:
    message = f"Evaluator '{evaluator}' compares with a reference answer. {where} has no 'expected_output'"
    return _case_error(case, message, NO_REFERENCE_HINT, "evaluators")


def _no_context(case: EvalCase, evaluator: str) -> InvalidCaseError:
    return _case_error(case, f"Evaluator '{evaluator}' {NEEDS_CONTEXT}", NO_CONTEXT_HINT, "evaluators")


def _case_error(case: EvalCase, message: str, hint: str, field: str) -> InvalidCaseError:
    headline = f"Invalid eval case at line {case.line} in {case.path}"
    return InvalidCaseError(headline, message, hint, path=case.path, line=case.line, field=field)
