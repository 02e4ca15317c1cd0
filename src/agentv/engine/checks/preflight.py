"""Check cases before anything is called: their targets, judges, evaluators, and the files these refer to."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from functools import partial

import msgspec

from agentv.datasets.files import FileError
from agentv.engine.checks.project_facts import ProjectFacts
from agentv.engine.scoring.fingerprints import EvaluatorFiles, references_of
from agentv.errors import UsageError
from agentv.evaluators.base import NEEDS_CONTEXT, has_context
from agentv.evaluators.code.static_checks import transform_references
from agentv.model.case import NO_DETAILS, USER_TARGET, EvalCase
from agentv.model.diagnostics import KeyPath, Problem, Problems, did_you_mean
from agentv.model.evaluator import Evaluator, EvaluatorSpec, FileReference, turn_evaluator_name
from agentv.model.message import Message
from agentv.model.values import digest
from agentv.sandbox.availability import NO_SANDBOX_HINT
from agentv.settings.evaluator_reader import evaluator_of
from agentv.settings.transform import code_of
from agentv.support.hash_table import OwnedCache
from agentv.support.user_code import UninspectableError, may_import

FALLBACK_JUDGE = "judge"
"""The target used as judge when no judge is named."""

JudgeNames = str | tuple[str, ...] | None


def judges_of(command: str | None, own: JudgeNames, of_target: str | None, names: Collection[str]) -> tuple[str, ...]:
    """Return the judges: the command's, else the evaluator's, else the target's, else `judge` if that exists."""
    judges = command or own or of_target or (FALLBACK_JUDGE if FALLBACK_JUDGE in names else ())
    return (judges,) if isinstance(judges, str) else tuple(judges)


def _code_of(spec: EvaluatorSpec) -> str:
    """Return the user's code of an evaluator that runs in this process; functions of a program are its own."""
    if spec.evaluator is None and ".py:" in spec.type:
        return f"its type {spec.type}"
    return next((f"its transform {function}" for function in code_of(spec.transform, "function")), "")


def known_targets(name: str, names: tuple[str, ...]) -> str:
    """Return a hint for an unknown target name."""
    return did_you_mean(name, names) or f"Known targets: {', '.join(names) or 'none'}"


class JudgeNeed(msgspec.Struct, frozen=True):
    """Judge calls made by an evaluator: the judges it names, and the calls per answer to each.

    `path` leads from the evaluator to the member or setting that names the judges.
    """

    evaluator: str
    own: JudgeNames
    calls: int
    path: KeyPath = ()


class SpecNeeds(msgspec.Struct):
    """The requirements of an evaluator and its members, its fingerprint, and problems for which cases are refused."""

    judges: tuple[JudgeNeed, ...] = ()
    embedders: tuple[str, ...] = ()
    reference: bool = False
    context: bool = False
    fingerprint: str = ""
    problems: list[Problem] = []

    @property
    def is_demanding(self) -> bool:
        """Whether each case has to be checked for what the evaluator needs."""
        return self.reference or self.context or bool(self.problems)


class Preflight:
    """Find problems in cases. Whatever several cases share is checked once and reported for the first of them.

    `fingerprints` has the evaluators seen so far, `embedders` the targets they get embeddings from, `judge_needs` the
    judge calls of the case that was checked last, and `used` all targets that answer, judge or play users.
    """

    def __init__(self, facts: ProjectFacts) -> None:
        self.facts = facts
        self.fingerprints: dict[str, str] = {}
        self.embedders: dict[str, None] = {}
        self.used: set[str] = set()
        self.judge_needs: list[JudgeNeed] = []
        self.refusals: list[Problem] = []
        self._files = EvaluatorFiles(own=facts.evaluators is not None)
        self._own_files = EvaluatorFiles(own=True)
        self._thresholds: dict[str, EvalCase] = {}
        self._known = frozenset(facts.known)
        self._case = EvalCase("")
        self._specs: tuple[EvaluatorSpec, ...] | None = None
        self._targets: Collection[str] | None = None
        self._needs: list[tuple[str, KeyPath, SpecNeeds]] = []
        self._demanding: list[tuple[str, KeyPath, SpecNeeds]] = []
        self._checked: OwnedCache[tuple[EvaluatorSpec, str], SpecNeeds] = OwnedCache()
        self._reported: set[object] = set()
        self._judges: dict[tuple[JudgeNeed, str], tuple[str, ...]] = {}

    def problems(self, case: EvalCase, targets: Collection[str]) -> Iterator[Problem]:
        """Yield the problems of one case evaluated on `targets`; shared ones only the first time.

        In a file of another tool, those for which only this case is refused are in `refusals` instead.
        """
        self.refusals = []
        has_moved = case.place.origin is not self._case.place.origin
        self._case = case
        is_new = has_moved or targets is not self._targets
        if is_new:
            self._targets = targets
            self.used.update(targets)
            for target in targets:
                yield from self._target_problems(target)
        if case.case_error is not None:
            self._specs, self.judge_needs = None, []
            return
        if case.execution.thresholds:
            for name in case.execution.thresholds:
                self._thresholds.setdefault(name, case)
        if case.is_conversation:
            yield from self._conversation_problems(case, targets)
        yield from self._evaluator_problems(case, is_new=is_new, has_moved=has_moved)

    def _evaluator_problems(self, case: EvalCase, *, is_new: bool, has_moved: bool) -> Iterator[Problem]:
        specs = case.evaluators if self.facts.evaluators is None else self.facts.evaluators
        if has_moved or specs is not self._specs:
            self._specs, self._needs, is_new = specs, [], True
            for index, spec in enumerate(specs):
                needs = yield from self._needs_of(spec, ("evaluators", index), spec.name)
                self._needs.append((spec.name, ("evaluators", index), needs))
        if is_new:
            self.judge_needs = [need for _, _, needs in self._needs for need in needs.judges]
            for _, path, needs in self._needs:
                yield from self._judge_problems(needs, path)
            self._demanding = [entry for entry in self._needs if entry[2].is_demanding]
        for name, path, needs in self._demanding:
            missing = self._missing(name, path, needs, case.expected_output if needs.reference else ())
            yield from self._unrefused(path, needs, missing)
        if case.turns and self.facts.evaluators is None:
            yield from self._turn_problems()
            self._specs = None  # the judge calls of the next case differ

    @property
    def _may_refuse(self) -> bool:
        return self._case.place.origin.refuses_cases and self.facts.evaluators is None

    def _unrefused(self, path: KeyPath, needs: SpecNeeds, missing: Iterator[Problem]) -> Iterator[Problem]:
        """Yield what a case lacks for an evaluator, or refuse the case for that and for the evaluator's problems."""
        if not self._may_refuse:
            return missing
        self.refusals += (msgspec.structs.replace(problem, path=(*path, *problem.path)) for problem in needs.problems)
        self.refusals += missing
        return iter(())

    def is_checked(self, case: EvalCase, targets: Collection[str]) -> bool:
        """Whether a case shares all that `problems` checks with the last one: most cases of a dataset do."""
        last = self._case
        return (
            case.evaluators is last.evaluators
            and case.execution is last.execution
            and case.details is last.details is NO_DETAILS
            and case.place.origin is last.place.origin
            and targets is self._targets
            and not self._demanding
            and not self.judge_needs
        )

    def judges(self, need: JudgeNeed, target: str) -> tuple[str, ...]:
        """Return the judges of a target's answers, resolved when the case was checked."""
        return self._judges[(need, target)]

    def threshold_problems(self) -> Iterator[tuple[EvalCase, Problem]]:
        """Yield thresholds for evaluators that no case has. Call this after checking all cases."""
        names = self.fingerprints
        for name, case in self._thresholds.items():
            if name not in names:
                message = f"'execution.thresholds' names an unknown evaluator '{name}'"
                hint = did_you_mean(name, names) or f"Known evaluators: {', '.join(names) or 'none'}"
                yield case, Problem(("execution", "thresholds", name), message, hint)

    def _unknown_target(self, path: KeyPath, name: str) -> Iterator[Problem]:
        if self.facts.has_targets and name not in self._known:
            yield Problem(path, f"Unknown target '{name}'", known_targets(name, self.facts.known))

    def _is_new(self, subject: object) -> bool:
        is_new = subject not in self._reported
        self._reported.add(subject)
        return is_new

    def _target_problems(self, target: str) -> Iterator[Problem]:
        case = self._case
        if not self._is_new(("target", target, case.place.origin.base_dir)):
            return
        path: KeyPath = ("execution", "target")
        if target in case.execution.targets:
            path = ("execution", "targets", case.execution.targets.index(target))
        unknown = list(self._unknown_target(path, target))
        yield from unknown
        for reference in transform_references(self.facts.transform(target)) if not unknown else ():
            if self.facts.is_sandboxed and reference.executes in ("code", "command"):
                message = f"'transform' of target '{target}' cannot be isolated: its function runs in agentv itself"
                yield Problem((), message, "Use `regex` or `json_path`, or no sandbox")
            for problem in self._reference_problems(reference, self._own_files):
                yield Problem((), f"'transform' of target '{target}': {problem.message}", problem.hint)

    def _user_problems(self, target: str | None) -> Iterator[Problem]:
        if not self._is_new(("user", target)) or not self.facts.has_targets:
            return
        self.used.add(target or USER_TARGET)
        if target is not None:
            yield from self._unknown_target(("user", "target"), target)
        elif USER_TARGET not in self._known:
            names = ", ".join(self.facts.known)
            hint = f"Set `user.target`, or add a target named '{USER_TARGET}'. Known targets: {names}"
            yield Problem(("user",), "No target is configured for the simulated user", hint)

    def _conversation_problems(self, case: EvalCase, targets: Collection[str]) -> Iterator[Problem]:
        if case.user is not None:
            yield from self._user_problems(case.user.target)
        for target in targets:
            if self.facts.is_batched(target):
                path: KeyPath = ("turns",) if case.turns else ("user",)
                message = f"Target '{target}' is in batch mode, which has no conversations: each turn would take hours"
                yield Problem(path, message, "Remove `batch` or --batch, or leave these cases out with --filter")

    def _turn_problems(self) -> Iterator[Problem]:
        for number, turn in enumerate(self._case.turns, 1):
            for index, spec in enumerate(turn.evaluators):
                name = turn_evaluator_name(number, spec)
                path = ("turns", number - 1, "evaluators", index)
                needs = yield from self._needs_of(spec, path, name)
                self.judge_needs += needs.judges
                yield from self._judge_problems(needs, path)
                yield from self._unrefused(path, needs, self._missing(name, path, needs, turn.expected_output))

    def _missing(self, name: str, path: KeyPath, needs: SpecNeeds, expected: tuple[Message, ...]) -> Iterator[Problem]:
        """Yield what an evaluator requires and the case lacks. Cases without targets are not scored."""
        if not self._targets and self.facts.has_targets:
            return
        if needs.reference and not expected:
            where = f"turn {int(path[1]) + 1}" if path[0] == "turns" else "the case"
            message = f"Evaluator '{name}' needs a reference answer, but {where} has no 'expected_output'"
            hint = "Add `expected_output`, or set `value` of the evaluator if its type supports it"
            yield Problem(path, message, hint)
        if needs.context and not has_context(self._case.context):
            hint = "Add `context` to the case: the passages the answer can draw on"
            yield Problem(path, f"Evaluator '{name}' {NEEDS_CONTEXT}", hint)

    def _judge_problems(self, needs: SpecNeeds, path: KeyPath) -> Iterator[Problem]:
        """Resolve the judges of each target's answers. Yield a problem if there is none, or an unknown one."""
        facts = self.facts
        for need in needs.judges:
            for target in self._targets or ():
                if (need, target) in self._judges:
                    continue
                of_target = facts.judge_target(target) if target in self._known else None
                judges = self._judges[(need, target)] = judges_of(facts.judge, need.own, of_target, self._known)
                self.used.update(judges)
                if facts.has_targets and target in self._known:
                    place = () if facts.judge is not None else (*path, *need.path)
                    yield from self._unknown_judges(need, target, judges, place)

    def _unknown_judges(
        self, need: JudgeNeed, target: str, judges: tuple[str, ...], path: KeyPath
    ) -> Iterator[Problem]:
        if not judges:
            hint = (
                f"Pass --judge NAME or --judge PROVIDER:MODEL, set `target` of the evaluator or `judge_target` of "
                f"the target '{target}', or add a target named '{FALLBACK_JUDGE}'"
            )
            yield Problem(path, f"Evaluator '{need.evaluator}' needs a judge, but none is configured", hint)
        for judge in judges:
            if judge not in self.facts.may_judge:
                message = f"Unknown judge '{judge}' of evaluator '{need.evaluator}'"
                yield Problem(path, message, known_targets(judge, self.facts.may_judge))

    def _needs_of(self, spec: EvaluatorSpec, path: KeyPath, name: str) -> Generator[Problem, None, SpecNeeds]:
        """Return the requirements of an evaluator; yield its problems the first time. `name` is its name in results."""
        key = (spec, self._case.place.origin.base_dir)  # the files it names are looked up from that folder
        if (needs := self._checked.get(key)) is None:
            self._checked.make_room(self._case)
            needs = self._checked[key] = SpecNeeds()
            problems = [*self._spec_problems(spec, (), needs, None)]
            self.embedders.update(dict.fromkeys(needs.embedders))
            self.used.update(needs.embedders)
            if self._may_refuse:
                needs.problems = [problem for problem in problems if problem.severity == "error"]
                problems = [problem for problem in problems if problem.severity == "warning"]
            for problem in problems if self._is_new(key) else ():
                yield msgspec.structs.replace(problem, path=(*path, *problem.path))
            if may_import() and not needs.problems:
                needs.fingerprint = self._files.each(self._case, (spec,))[spec.name]
                if (fingerprint := self.fingerprints.get(name)) is not None:
                    self.fingerprints[name] = digest([fingerprint, needs.fingerprint])
        self.fingerprints.setdefault(name, needs.fingerprint)
        return needs

    def _spec_problems(
        self, spec: EvaluatorSpec, path: KeyPath, needs: SpecNeeds, inherited: JudgeNames
    ) -> Iterator[Problem]:
        if self.facts.is_sandboxed and (code := _code_of(spec)):
            hint = "Use `type: python` or `type: code_judge`, which have their own processes, or no sandbox"
            yield Problem(path, f"Evaluator '{spec.name}' cannot be isolated: {code} runs in agentv itself", hint)
            return
        evaluator, problems = self._resolved(spec)
        for problem in problems:
            # A message without a path already names the evaluator.
            message = f"Evaluator '{spec.name}': {problem.message}" if problem.path else problem.message
            yield msgspec.structs.replace(problem, path=(*path, *problem.path), message=message)
        if evaluator is None:
            return
        if not evaluator.can_run:
            hint = "Use another evaluator, for example `{type: contains, value: …}`"
            yield Problem(path, f"Evaluators of type '{spec.type}' are not supported in this version", hint)
        if evaluator.refusal:
            is_sandboxed = getattr(evaluator, "sandbox", "") == "required"
            hint = f"{NO_SANDBOX_HINT}. Or set `sandbox: preferred`, which runs without isolation if there is none"
            hint = hint if is_sandboxed else ""
            yield Problem(path, f"Evaluator '{spec.name}': {evaluator.refusal}", hint)
        elif evaluator.caution and self._is_new(evaluator.caution):
            yield Problem(path, evaluator.caution, NO_SANDBOX_HINT, "warning")
        demands = evaluator.needs
        needs.reference, needs.context = needs.reference or demands.reference, needs.context or demands.context
        if demands.embedder and isinstance(spec.target, str):
            needs.embedders = (*needs.embedders, spec.target)
            yield from self._unknown_target((*path, "target"), spec.target)
        elif demands.embedder:
            message = f"Evaluator '{spec.name}' needs one target that returns embeddings"
            yield Problem(path, message, "Set `target: NAME` along with `method: embedding`")
        own = spec.target or inherited
        if demands.judge_calls:
            at = (*path, "target") if spec.target else path
            needs.judges = (*needs.judges, JudgeNeed(spec.name, demands.judge or own, demands.judge_calls, at))
        for index, member in enumerate(evaluator.members):
            yield from self._spec_problems(member, (*path, str(evaluator.members_field), index), needs, own)

    def _resolved(self, spec: EvaluatorSpec) -> tuple[Evaluator | None, list[Problem]]:
        """Return an evaluator and the problems in its references; None for a class that cannot be inspected."""
        problems = [problem for ref in references_of(spec) for problem in self._reference_problems(ref)]
        is_user_code = spec.evaluator is None and ".py:" in spec.type
        if is_user_code and problems:
            return None, problems
        try:
            evaluator = evaluator_of(spec, self._find_file)
        except UninspectableError:
            return None, problems
        except UsageError as error:
            return None, [Problem((), f"{error.headline}\n{error.detail}".strip(), error.hint)]
        if spec.evaluator is None:
            problems += [problem for ref in evaluator.references() for problem in self._reference_problems(ref)]
        return evaluator, problems

    def _reference_problems(self, reference: FileReference, files: EvaluatorFiles | None = None) -> Iterator[Problem]:
        if reference.check is None:
            return
        origin, files = self._case.place.origin, files or self._files
        folder = origin.program_dir if files.own else origin.base_dir
        try:
            problems = reference.check(partial(files.path, origin), folder or ".")
        except FileError as error:
            problems = Problems([Problem((), error.message, error.hint)])
        for problem in problems:
            yield msgspec.structs.replace(problem, path=(*reference.path, *problem.path))

    def _find_file(self, value: str) -> str:
        return self._files.path(self._case.place.origin, value)
