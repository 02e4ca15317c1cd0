"""What evaluators and cases refer to outside themselves: prompt files, scripts, functions, targets, template names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from agentv.datasets.dataset import Dataset
from agentv.datasets.files import FileError
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.formats.yaml_parser import locate
from agentv.errors import DatasetError
from agentv.evaluators.base import NEEDS_CONTEXT, NO_CONTEXT_HINT, NO_REFERENCE_HINT, has_context
from agentv.evaluators.code.program import script_problems
from agentv.evaluators.code.static_checks import function_problems
from agentv.evaluators.composite import RESULTS_NAMES
from agentv.evaluators.judges.judge_prompt import VARIABLES, prompt_problems
from agentv.model.case import USER_TARGET, EvalCase, SimulatedUser
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.values import FrozenDict
from agentv.settings.diagnostics import KeyPath, Problems, Severity, did_you_mean
from agentv.settings.evaluator_reader import read_entries
from agentv.targets.catalog import find_targets_file
from agentv.targets.targets_file import target_names
from agentv.validation.finding import Finding

_JUDGES = frozenset({"llm_judge", "rubric"})


class _Where(NamedTuple):
    """What a finding is about: a case, and of its evaluators one, or none."""

    case: EvalCase
    spec: EvaluatorSpec | None = None


class References:
    """Checks what the cases of one dataset refer to; what many cases share is checked once."""

    def __init__(self, dataset: Dataset) -> None:
        self._finder = dataset.finder
        self._folder = dataset.source.folder
        self._targets_file, self._targets = _known_targets(self._folder, dataset.root)
        self._checked: set[object] = set()
        self._names: set[str] = set()
        self._thresholds: dict[str, EvalCase] = {}
        self._document = dataset.document
        self._rows = {mark.line: row for row in dataset.document.cases or () if (mark := locate(row, ()))}

    def check(self, case: EvalCase) -> Iterator[Finding]:
        """The findings about one case that no earlier case has had."""
        for name in (*case.execution.targets, case.execution.target):
            if name is not None and self._is_new(("target", name)):
                yield from self._check_target(name, _Where(case))
        if case.user is not None and self._is_new(("user", case.user.target)):
            yield from self._check_user(case.user, case)
        for field, specs in (
            ("", case.evaluators),
            *((f"turns[{n}].", t.evaluators) for n, t in enumerate(case.turns)),
        ):
            for index, spec in enumerate(specs):
                if self._is_new(spec):
                    yield from self._check_evaluator(spec, _Where(case, spec), f"{field}evaluators[{index}]")
        yield from self._check_needs(case)

    def unused_thresholds(self) -> Iterator[Finding]:
        """Thresholds of evaluators that no case has: a run of this dataset is refused."""
        for name, case in self._thresholds.items():
            if name not in self._names:
                message = f"'execution.thresholds' names '{name}', and no case here has an evaluator of that name"
                hint = (
                    did_you_mean(name, self._names) or f"Known evaluators: {', '.join(sorted(self._names)) or 'none'}"
                )
                place = ("execution", "thresholds", name)
                yield self._finding("error", message, _Where(case), None, "execution.thresholds", hint, place)

    def _check_needs(self, case: EvalCase) -> Iterator[Finding]:
        """Evaluators that compare with a reference answer or with passages, where there are none."""
        asked = [("", spec, case.expected_output) for spec in case.evaluators]
        for number, turn in enumerate(case.turns, 1):
            asked += [(f"turn-{number}.", spec, turn.expected_output) for spec in turn.evaluators]
        for name in case.execution.thresholds or ():
            self._thresholds.setdefault(name, case)
        for prefix, spec, expected in asked:
            name = f"{prefix}{spec.name}"
            self._names.add(name)
            evaluator, where = spec.evaluator, _Where(case, spec)
            if evaluator is not None and evaluator.needs_reference and not expected:
                message = f"Evaluator '{name}' compares with a reference answer, and there is none"
                yield self._finding("error", message, where, None, "evaluators", NO_REFERENCE_HINT)
            if evaluator is not None and evaluator.needs_context and not has_context(case.context):
                message = f"Evaluator '{name}' {NEEDS_CONTEXT}"
                yield self._finding("error", message, where, None, "evaluators", NO_CONTEXT_HINT)

    def _check_user(self, user: SimulatedUser, case: EvalCase) -> Iterator[Finding]:
        """The target that plays a simulated user; without a name it is the one called `user`."""
        if user.target is not None:
            yield from self._check_target(user.target, _Where(case), "user.target")
        elif self._targets is not None and USER_TARGET not in self._targets:
            message = f"No target plays the simulated user: {self._targets_file} has none called '{USER_TARGET}'"
            yield self._finding("error", message, _Where(case), str(user.goal), "user", "Name one in `user.target`")

    def _is_new(self, thing: object) -> bool:
        if thing in self._checked:
            return False
        self._checked.add(thing)
        return True

    def _check_target(self, name: str, where: _Where, field: str = "execution.target") -> Iterator[Finding]:
        if self._targets is not None and name not in self._targets:
            hint = did_you_mean(name, self._targets) or f"Known targets: {', '.join(self._targets) or 'none'}"
            message = f"The target '{name}' is not in {self._targets_file}"
            yield self._finding("error", message, where, name, field, hint)

    def _check_evaluator(self, spec: EvaluatorSpec, where: _Where, field: str) -> Iterator[Finding]:
        settings = spec.settings
        for name in (spec.target,) if isinstance(spec.target, str) else spec.target or ():
            yield from self._check_target(name, where, f"{field}.target")
        if spec.type in _JUDGES and isinstance(settings.get("prompt"), str):
            yield from self._check_prompt(settings["prompt"], where, f"{field}.prompt")
        if spec.type == "python" and isinstance(settings.get("function"), str):
            yield from self._check_function(settings["function"], where, f"{field}.function")
        if spec.transform is not None and isinstance(spec.transform.get("function"), str):
            yield from self._check_function(spec.transform["function"], where, f"{field}.transform.function")
        if ".py:" in spec.type:
            yield from self._check_function(spec.type, where, f"{field}.type")
        if spec.type == "code_judge":
            yield from self._check_script(settings, where, field)
        if spec.type == "composite":
            yield from self._check_members(settings, where, field)
            aggregator = settings.get("aggregator")
            if isinstance(aggregator, dict) and isinstance(aggregator.get("prompt"), str):
                known = (*VARIABLES, *RESULTS_NAMES)
                yield from self._check_prompt(aggregator["prompt"], where, f"{field}.aggregator.prompt", known)

    def _check_members(self, settings: FrozenDict, where: _Where, field: str) -> Iterator[Finding]:
        for index, member in enumerate(settings.get("evaluators") or ()):
            if isinstance(member, dict):
                target = member.get("target")
                inner = EvaluatorSpec(
                    type=str(member.get("type")),
                    name="",
                    target=tuple(target) if isinstance(target, list) else target,
                    transform=member.get("transform"),
                    settings=FrozenDict(member),
                )
                yield from self._check_evaluator(inner, where, f"{field}.evaluators[{index}]")

    def _check_prompt(
        self, prompt: str, where: _Where, field: str, known: tuple[str, ...] = VARIABLES
    ) -> Iterator[Finding]:
        try:
            problems = prompt_problems(prompt, lambda name: self._finder.find(name).path, known)
        except FileError as error:
            yield self._finding("error", error.message, where, prompt, field, error.hint)
            return
        for problem in problems:
            yield self._finding(problem.severity, problem.message, where, prompt, field, problem.hint)

    def _check_function(self, reference: str, where: _Where, field: str) -> Iterator[Finding]:
        file, _, _ = reference.rpartition(":")
        if not file.endswith(".py"):
            return
        try:
            path = self._finder.find(file).path
        except FileError as error:
            yield self._finding("error", error.message, where, reference, field, error.hint)
            return
        for problem in function_problems(reference, path):
            yield self._finding(problem.severity, problem.message, where, reference, field, problem.hint)

    def _check_script(self, settings: dict[str, Any], where: _Where, field: str) -> Iterator[Finding]:
        """A script that is not there may still be made before the run, so this is a warning."""
        script = settings.get("script", settings.get("command"))
        words = script.split() if isinstance(script, str) else [word for word in script or () if isinstance(word, str)]
        cwd = settings.get("cwd")
        folder = os.path.join(self._folder, cwd) if isinstance(cwd, str) else self._folder
        for word in words:
            for problem in script_problems([word], folder):
                yield self._finding(problem.severity, problem.message, where, word, f"{field}.script")

    def _finding(
        self,
        severity: Severity,
        message: str,
        where: _Where,
        value: str | None,
        field: str,
        hint: str = "",
        place: KeyPath | None = None,
    ) -> Finding:
        """A finding about a value, on the line where it is written: in the case, or in the settings around it.

        Where the same value stands several times, that of the evaluator is meant; without a value, the evaluator.
        """
        path, line, column = where.case.path, where.case.line, None
        for file, document in (
            (where.case.path, self._rows.get(where.case.line)),
            (self._document.header_path, self._document.header),
        ):
            found = _place_of(document, where.spec, value) if place is None else _if_there(document, place)
            mark = None if found is None else locate(document, found)
            if mark is not None:
                path, line, column = file or path, mark.line, mark.column
                break
        return Finding(severity, path, message, line, column, field, hint)


def _if_there(document: Any, place: KeyPath) -> KeyPath | None:
    return place if any(path == place for path, _ in _nodes(document)) else None


def _place_of(document: Any, spec: EvaluatorSpec | None, value: str | None) -> KeyPath | None:
    """The keys that lead to a value in the entry of an evaluator; to the value wherever it is; to the entry."""
    entry = None if spec is None else next((path for path, node in _nodes(document) if _is_entry(node, spec)), None)
    for path, node in _nodes(document) if value is not None else ():
        if node == value and isinstance(node, str) and path[: len(entry or ())] == (entry or ()):
            return path
    return entry


def _is_entry(node: Any, spec: EvaluatorSpec) -> bool:
    """Whether a part of parsed YAML is what an evaluator was read from; a name may have been given to it."""
    if not isinstance(node, dict) or not isinstance(node.get("type", node.get("name")), str):
        return False
    return any(msgspec.structs.replace(each, name=spec.name) == spec for each in read_entries([node], (), Problems()))


def _nodes(document: Any) -> Iterator[tuple[KeyPath, Any]]:
    """All parts of parsed YAML with the keys that lead to them, in the order of the text."""
    stack: list[tuple[KeyPath, Any]] = [((), document)]
    while stack:
        path, node = stack.pop()
        yield path, node
        if isinstance(node, dict):
            stack += [((*path, key), item) for key, item in reversed(node.items())]
        elif isinstance(node, list):
            stack += [((*path, index), item) for index, item in reversed(list(enumerate(node)))]


def _names_in(path: str) -> list[str] | None:
    try:
        data = parse_yaml_file(path)
    except DatasetError:
        return None
    return target_names(data) if isinstance(data, dict) and isinstance(data.get("targets"), list) else None


def _known_targets(folder: str, root: str) -> tuple[str, list[str] | None]:
    """The nearest targets file and the names in it; None without one, or when it cannot be read."""
    path = find_targets_file(folder, root)
    return ("", None) if path is None else (path, _names_in(path))
