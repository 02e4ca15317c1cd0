"""Checks cases before anything is called: their targets, judges, evaluators, and the files that those name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import Any

import msgspec

from agentv.datasets.files import FileError
from agentv.engine.scoring.fingerprints import EvaluatorFiles, references_of
from agentv.errors import DatasetWarning, InvalidCaseError, UsageError
from agentv.evaluators.base import NEEDS_CONTEXT, has_context
from agentv.evaluators.code.static_checks import transform_references
from agentv.model.case import USER_TARGET, EvalCase, Origin
from agentv.model.evaluator import Evaluator, EvaluatorSpec, FileReference, turn_evaluator_name
from agentv.model.message import Message
from agentv.model.response import content_text
from agentv.model.values import digest
from agentv.settings.diagnostics import KeyPath, Problem, Problems, did_you_mean
from agentv.settings.evaluator_reader import evaluator_of

FALLBACK_JUDGE = "judge"
"""The target that judges when none is named."""

NO_REFERENCE_HINT = "Give the case an `expected_output`, or the evaluator a `value` where its type takes one"
NO_CONTEXT_HINT = "Give the case `context`: the passages that the answer could draw on"
_REMEMBERED = 1024

JudgeNames = str | tuple[str, ...] | None


class ProjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What cases are checked against: the targets there are, who may judge, and what the command overrides.

    `judge_target` returns the judge that a target names, `transform` how its answers are cleaned. Without
    `has_targets` there is no targets file, and names of targets are not checked. Without `imports_code` a class in a
    user's file is only checked by its text.
    """

    known: tuple[str, ...]
    may_judge: tuple[str, ...]
    judge: str | None = None
    judge_target: Callable[[str], str | None] = lambda _: None
    transform: Callable[[str], Any] = lambda _: None
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    has_targets: bool = True
    imports_code: bool = True


def judges_of(command: str | None, own: JudgeNames, of_target: str | None, known: Collection[str]) -> tuple[str, ...]:
    """The judges: the command's, else the entry's, else the answering target's, else `judge`; else none."""
    chosen = command or own or of_target or (FALLBACK_JUDGE if FALLBACK_JUDGE in known else ())
    return (chosen,) if isinstance(chosen, str) else tuple(chosen)


class JudgeNeed(msgspec.Struct, frozen=True):
    """Judge calls that an evaluator makes: the judges its entry names, and calls per answer to each.

    `path` leads from the entry to the member or setting that names the judges.
    """

    evaluator: str
    own: JudgeNames
    calls: int
    path: KeyPath = ()


class SpecNeeds(msgspec.Struct):
    """What an entry needs, with its members."""

    judges: tuple[JudgeNeed, ...] = ()
    embedders: tuple[str, ...] = ()
    reference: bool = False
    context: bool = False


class Preflight:
    """Finds the problems of cases. What several cases share is checked once, and reported for the first of them."""

    def __init__(self, facts: ProjectFacts) -> None:
        self.facts = facts
        self.files = EvaluatorFiles()
        self.names: dict[str, None] = {}
        self.thresholds: dict[str, EvalCase] = {}
        self.embedders: dict[str, None] = {}
        self._known = frozenset(facts.known)
        self._specs: tuple[EvaluatorSpec, ...] | None = None
        self._origin: Origin | None = None
        self._targets: Collection[str] | None = None
        self._needs: list[tuple[str, KeyPath, SpecNeeds]] = []
        self._demanding: list[tuple[str, KeyPath, SpecNeeds]] = []
        self.judge_needs: list[JudgeNeed] = []
        self._checked: dict[tuple[EvaluatorSpec, str], SpecNeeds] = {}
        self._reported: set[object] = set()
        self._judges: dict[tuple[JudgeNeed, str], tuple[str, ...]] = {}

    def problems(self, case: EvalCase, targets: Collection[str]) -> Iterator[Problem]:
        """Problems of one case that `targets` answer, shared ones only if they are new."""
        is_moved = case.place.origin is not self._origin
        self._origin = case.place.origin
        is_new = is_moved or targets is not self._targets
        if is_new:
            self._targets = targets
            for target in targets:
                yield from self._target_problems(target, case)
        if case.execution.thresholds:
            for name in case.execution.thresholds:
                self.thresholds.setdefault(name, case)
        if case.user is not None:
            yield from self._user_problems(case.user.target)
        specs = case.evaluators if self.facts.evaluators is None else self.facts.evaluators
        if is_moved or specs is not self._specs:
            self._specs, self._needs, is_new = specs, [], True
            for index, spec in enumerate(specs):
                needs = yield from self._needs_of(spec, ("evaluators", index), spec.name)
                self._needs.append((spec.name, ("evaluators", index), needs))
        if is_new:
            self.judge_needs = [need for _, _, needs in self._needs for need in needs.judges]
            for _, path, needs in self._needs:
                yield from self._judge_problems(needs, path)
            self._demanding = [each for each in self._needs if each[2].reference or each[2].context]
        for name, path, needs in self._demanding:
            yield from self._missing(name, path, needs, case, case.expected_output if needs.reference else ())
        if case.turns and self.facts.evaluators is None:
            yield from self._turn_problems(case)
            self._specs = None  # the next case has other judge calls

    def judges(self, need: JudgeNeed, target: str) -> tuple[str, ...]:
        """The judges of a target's answers, as they were found when the case was checked."""
        return self._judges[(need, target)]

    def threshold_problems(self) -> Iterator[tuple[EvalCase, Problem]]:
        """Thresholds for evaluators that no case has. All cases must have been checked."""
        for name, case in self.thresholds.items():
            if name not in self.names:
                message = f"'execution.thresholds' names an unknown evaluator '{name}'"
                hint = did_you_mean(name, self.names) or f"Known evaluators: {', '.join(self.names) or 'none'}"
                yield case, Problem(("execution", "thresholds", name), message, hint)

    def unknown_target(self, path: KeyPath, name: str) -> Iterator[Problem]:
        """A problem if there is no target of this name."""
        if self.facts.has_targets and name not in self._known:
            yield Problem(path, f"Unknown target '{name}'", _known_targets(name, self.facts.known))

    def _is_new(self, thing: object) -> bool:
        is_new = thing not in self._reported
        self._reported.add(thing)
        return is_new

    def _target_problems(self, target: str, case: EvalCase) -> Iterator[Problem]:
        if not self._is_new(("target", target, case.place.origin.base_dir)):
            return
        path: KeyPath = ("execution", "target")
        if target in case.execution.targets:
            path = ("execution", "targets", case.execution.targets.index(target))
        unknown = list(self.unknown_target(path, target))
        yield from unknown
        for reference in transform_references(self.facts.transform(target)) if not unknown else ():
            for problem in self._reference_problems(reference):
                yield Problem((), f"'transform' of the target '{target}': {problem.message}", problem.hint)

    def _user_problems(self, target: str | None) -> Iterator[Problem]:
        if not self._is_new(("user", target)) or not self.facts.has_targets:
            return
        if target is not None:
            yield from self.unknown_target(("user", "target"), target)
        elif USER_TARGET not in self._known:
            known = ", ".join(self.facts.known)
            hint = f"Name it in `user.target`, or call a target '{USER_TARGET}'; known: {known}"
            yield Problem(("user",), "No target plays the simulated user", hint)

    def _turn_problems(self, case: EvalCase) -> Iterator[Problem]:
        for number, turn in enumerate(case.turns, 1):
            for index, spec in enumerate(turn.evaluators):
                name = turn_evaluator_name(number, spec)
                path = ("turns", number - 1, "evaluators", index)
                needs = yield from self._needs_of(spec, path, name)
                self.judge_needs += needs.judges
                yield from self._judge_problems(needs, path)
                yield from self._missing(name, path, needs, case, turn.expected_output)

    def _missing(
        self, name: str, path: KeyPath, needs: SpecNeeds, case: EvalCase, expected: tuple[Message, ...]
    ) -> Iterator[Problem]:
        """What an evaluator needs of a case that is answered, and the case does not have."""
        if not self._targets and self.facts.has_targets:
            return
        if needs.reference and not expected:
            where = f"Turn {int(path[1]) + 1}" if path[0] == "turns" else "The case"
            message = f"Evaluator '{name}' compares with a reference answer. {where} has no 'expected_output'"
            yield Problem(path, message, NO_REFERENCE_HINT)
        if needs.context and not has_context(case.context):
            yield Problem(path, f"Evaluator '{name}' {NEEDS_CONTEXT}", NO_CONTEXT_HINT)

    def _judge_problems(self, needs: SpecNeeds, path: KeyPath) -> Iterator[Problem]:
        """No judge for a target's answers, or an unknown one. A target never judges itself unless it is named."""
        facts = self.facts
        for need in needs.judges:
            for target in self._targets or ():
                if (need, target) in self._judges:
                    continue
                of_target = facts.judge_target(target) if target in self._known else None
                judges = self._judges[(need, target)] = judges_of(facts.judge, need.own, of_target, self._known)
                if facts.has_targets and target in self._known:
                    place = () if facts.judge is not None else (*path, *need.path)
                    yield from self._unknown_judges(need, target, judges, place)

    def _unknown_judges(
        self, need: JudgeNeed, target: str, judges: tuple[str, ...], path: KeyPath
    ) -> Iterator[Problem]:
        if not judges:
            hint = (
                f"Pass --judge NAME, set `target` of the evaluator or `judge_target` of the target '{target}', "
                f"or add a target named '{FALLBACK_JUDGE}'"
            )
            yield Problem(path, f"Evaluator '{need.evaluator}' needs a judge, but none is configured", hint)
        for judge in judges:
            if judge not in self.facts.may_judge:
                message = f"Unknown judge '{judge}' of evaluator '{need.evaluator}'"
                yield Problem(path, message, _known_targets(judge, self.facts.may_judge))

    def _needs_of(self, spec: EvaluatorSpec, path: KeyPath, name: str) -> Generator[Problem, None, SpecNeeds]:
        """What an entry needs; its own problems the first time it is seen. `name` is its name in results."""
        assert self._origin is not None
        self.names[name] = None
        place = (spec, self._origin.base_dir)  # files that it names are looked up from there
        needs = self._checked.get(place)
        if needs is None:
            if len(self._checked) >= _REMEMBERED:
                self._checked.clear()  # cases may have evaluators of their own, and memory must not grow with them
            needs = self._checked[place] = SpecNeeds()
            found = [*self._spec_problems(spec, (), needs, None)]
            self.embedders.update(dict.fromkeys(needs.embedders))
            for problem in found if self._is_new(place) else ():
                yield msgspec.structs.replace(problem, path=(*path, *problem.path))
        return needs

    def _spec_problems(
        self, spec: EvaluatorSpec, path: KeyPath, needs: SpecNeeds, inherited: JudgeNames
    ) -> Iterator[Problem]:
        evaluator, problems = self._resolved(spec)
        for problem in problems:
            # What cannot be resolved is named by its message already.
            message = f"Evaluator '{spec.name}': {problem.message}" if problem.path else problem.message
            yield msgspec.structs.replace(problem, path=(*path, *problem.path), message=message)
        if evaluator is None:
            return
        if not evaluator.can_run:
            hint = "Give the case or the dataset other evaluators, for example `{type: contains, value: …}`"
            yield Problem(path, f"Evaluators of type '{spec.type}' cannot be run in this version", hint)
        if evaluator.refusal:
            hint = "Run it where that can be had, or write `sandbox: preferred`, which runs with what there is"
            yield Problem(path, f"Evaluator '{spec.name}': {evaluator.refusal}", hint)
        wanted = evaluator.needs
        needs.reference, needs.context = needs.reference or wanted.reference, needs.context or wanted.context
        if wanted.embedder and isinstance(spec.target, str):
            needs.embedders = (*needs.embedders, spec.target)
            yield from self.unknown_target((*path, "target"), spec.target)
        elif wanted.embedder:
            message = f"Evaluator '{spec.name}' needs one target that makes embeddings"
            yield Problem(path, message, "Write `target: NAME` beside `method: embedding`")
        own = spec.target or inherited
        if wanted.judge_calls:
            at = (*path, "target") if spec.target else path
            needs.judges = (*needs.judges, JudgeNeed(spec.name, wanted.judge or own, wanted.judge_calls, at))
        for index, member in enumerate(evaluator.members):
            yield from self._spec_problems(member, (*path, str(evaluator.members_field), index), needs, own)

    def _resolved(self, spec: EvaluatorSpec) -> tuple[Evaluator | None, list[Problem]]:
        """The evaluator of an entry, and problems with what it refers to; user code is imported only if allowed."""
        problems = [problem for each in references_of(spec) for problem in self._reference_problems(each)]
        is_user_code = spec.evaluator is None and ".py:" in spec.type
        if is_user_code and (problems or not self.facts.imports_code):
            return None, problems
        try:
            evaluator = evaluator_of(spec, self._find_file)
        except UsageError as error:
            return None, [Problem((), f"{error.headline}\n{error.detail}".strip(), error.hint)]
        if spec.evaluator is None:
            problems += [problem for each in evaluator.references() for problem in self._reference_problems(each)]
        return evaluator, problems

    def _reference_problems(self, reference: FileReference) -> Iterator[Problem]:
        assert self._origin is not None
        if reference.check is None:
            return
        try:
            problems = reference.check(self._find_file, self._origin.base_dir or ".")
        except FileError as error:
            problems = Problems([Problem((), error.message, error.hint)])
        for problem in problems:
            yield msgspec.structs.replace(problem, path=(*reference.path, *problem.path))

    def _find_file(self, value: str) -> str:
        assert self._origin is not None
        return self.files.path(self._origin, value)


class Checker:
    """Checks the cases of a run: raises at the first error, and counts what a run of them takes."""

    def __init__(self, facts: ProjectFacts, warn: Callable[[DatasetWarning], None]) -> None:
        self._facts = facts
        self._warn = warn
        self._preflight = Preflight(facts)
        self.embedders = self._preflight.embedders
        self._specs: tuple[EvaluatorSpec, ...] | None = None
        self._origin: Origin | None = None
        self._fingerprints: dict[tuple[EvaluatorSpec, str], str] = {}
        self.fingerprints: dict[str, str] = {}
        self.users: dict[str, None] = {}
        self.judges: Counter[str] = Counter()
        self.judge_characters: Counter[str] = Counter()
        self.thresholds: dict[str, float] = {}

    def check(self, case: EvalCase, counts: Mapping[str, int]) -> None:
        """Check a case; `counts` is how often each of its targets is called."""
        for problem in self._preflight.problems(case, counts):
            self._report(problem, case)
        if case.execution.thresholds:
            self.thresholds.update(case.execution.thresholds)
        if case.user is not None:
            self.users[case.user.target or USER_TARGET] = None
        self._add_fingerprints(case)
        judge_needs = self._preflight.judge_needs
        characters = _shown_to_judges(case) if judge_needs else 0
        for need in judge_needs:
            for target, times in counts.items():
                for judge in self._preflight.judges(need, target):
                    self.judges[judge] += need.calls * times
                    self.judge_characters[judge] += need.calls * times * characters

    def check_thresholds(self) -> None:
        """Raise for a threshold of an evaluator that no case has. All cases must have been checked."""
        for case, problem in self._preflight.threshold_problems():
            raise UsageError(
                problem.message, f"It is in {case.path}, and no case has an evaluator of that name", problem.hint
            )

    def check_named_judge(self) -> None:
        """Raise when the command names an unknown judge, even if no evaluator needs one."""
        judge = self._facts.judge
        if judge is not None and judge not in self._facts.may_judge:
            raise UsageError(f"Unknown judge '{judge}'", hint=_known_targets(judge, self._facts.may_judge))

    def _report(self, problem: Problem, case: EvalCase) -> None:
        if problem.severity == "warning":
            message = f"{case.path}, line {case.line}: {problem.message}"
            self._warn(DatasetWarning(message, path=case.path, line=case.line, field=problem.field, hint=problem.hint))
            return
        if not problem.path or (problem.path[0] == "evaluators" and self._facts.evaluators is not None):
            # The command, a program or the targets file is wrong, not this case.
            headline, _, detail = problem.message.partition("\n")
            raise UsageError(headline, detail, problem.hint)
        headline = f"Invalid eval case at line {case.line} in {case.path}"
        raise InvalidCaseError(
            headline, problem.message, problem.hint, path=case.path, line=case.line, field=problem.field
        )

    def _add_fingerprints(self, case: EvalCase) -> None:
        specs = case.evaluators if self._facts.evaluators is None else self._facts.evaluators
        origin = case.place.origin
        if specs is not self._specs or origin is not self._origin:
            self._specs, self._origin = specs, origin
            for spec in specs:
                self._add_fingerprint(spec.name, spec, case)
        for number, turn in enumerate(case.turns if self._facts.evaluators is None else (), 1):
            for spec in turn.evaluators:
                self._add_fingerprint(turn_evaluator_name(number, spec), spec, case)

    def _add_fingerprint(self, name: str, spec: EvaluatorSpec, case: EvalCase) -> None:
        place = (spec, case.place.origin.base_dir)
        found = self._fingerprints.get(place)
        if found is None:
            if len(self._fingerprints) >= _REMEMBERED:
                self._fingerprints.clear()
            found = self._fingerprints[place] = self._preflight.files.each(case, (spec,))[spec.name]
            if (known := self.fingerprints.get(name)) is not None:
                self.fingerprints[name] = digest([known, found])
        self.fingerprints.setdefault(name, found)


def _known_targets(name: str, known: tuple[str, ...]) -> str:
    """A hint for the name of a target that there is none of."""
    return did_you_mean(name, known) or f"Known targets: {', '.join(known) or 'none'}"


def _shown_to_judges(case: EvalCase) -> int:
    """Characters of a case that a judge reads, without the answer."""
    messages = case.prompts[0].input if case.prompts else case.input
    said = (message.content for message in (*messages, *case.expected_output[-1:]) if message.content is not None)
    return len(case.expected_outcome) + sum(map(len, case.context)) + sum(len(content_text(each)) for each in said)
