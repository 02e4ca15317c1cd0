"""Findings of `agentv validate`: one problem at one place in one file, and how that place is found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agentv.datasets.dataset import Dataset
from agentv.datasets.formats.yaml_parser import locate
from agentv.errors import DatasetError, DatasetWarning
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.settings.diagnostics import KeyPath, Problem, Problems, Severity
from agentv.settings.evaluator_reader import read_entries
from agentv.settings.settings_reader import field_of

MAX_PER_FILE = 1000
"""Findings kept of one file; the rest is counted. Nobody reads a thousand, and a million would not fit in memory."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `agentv validate --json` prints for each thing wrong."""

    severity: Severity
    path: str
    message: str
    line: int | None = None
    column: int | None = None
    field: str | None = None
    hint: str = ""


class Report(msgspec.Struct):
    """What was checked and what was found, counted in full even where the list is cut."""

    files: int = 0
    cases: int = 0
    errors: int = 0
    warnings: int = 0
    findings: list[Finding] = []
    notes: list[str] = []

    def add(self, findings: Iterable[Finding]) -> None:
        """Takes the findings of one file."""
        for position, finding in enumerate(findings):
            if finding.severity == "error":
                self.errors += 1
            else:
                self.warnings += 1
            if position < MAX_PER_FILE:
                self.findings.append(finding)


def from_error(error: DatasetError) -> Finding:
    """An exception as a finding: its place, and its detail where it has one."""
    message = error.detail or error.headline
    prefix = f"Line {error.line}: "
    return Finding(
        "error", error.path or "", message.removeprefix(prefix), error.line, error.column, error.field, error.hint
    )


def from_warning(warning: DatasetWarning) -> Finding:
    """A warning as a finding, without the place that its text repeats."""
    message = warning.message
    for repeated in (f"{warning.path}, line {warning.line}: ", f"{warning.path}: "):
        message = message.removeprefix(repeated)
    message = message.removesuffix(f" ({warning.hint})")
    return Finding("warning", warning.path or "", message, warning.line, warning.column, warning.field, warning.hint)


def from_problem(problem: Problem, path: str, document: Any) -> Finding:
    """A problem in a settings file as a finding, with the line its key stands on."""
    mark = locate(document, problem.path)
    line, column = (1, None) if mark is None else mark
    return Finding(problem.severity, path, problem.message, line, column, problem.field, problem.hint)


class Locator:
    """Finds where the problems of a dataset's cases are written: in the case, or in the settings around it."""

    def __init__(self, dataset: Dataset) -> None:
        self._document = dataset.document
        self._rows = {mark.line: row for row in dataset.document.cases or () if (mark := locate(row, ()))}

    def finding(self, problem: Problem, case: EvalCase) -> Finding:
        """A problem of a case as a finding at the line of the value it is about, else at the line of the case."""
        path, line, column = case.path, case.line, None
        for file, document in (
            (case.path, self._rows.get(case.line)),
            (self._document.header_path, self._document.header),
        ):
            found = _place_in(document, problem.path, case)
            mark = None if found is None else locate(document, found)
            if mark is not None:
                path, line, column = file or path, mark.line, mark.column
                break
        return Finding(problem.severity, path, problem.message, line, column, problem.field, problem.hint)


def _place_in(document: Any, path: KeyPath, case: EvalCase) -> KeyPath | None:
    """The keys that lead to what a problem is about: into the entry of an evaluator, or straight from the top."""
    start = path.index("evaluators") if "evaluators" in path else None
    if start is None:
        # `target` may be written at the top instead of in `execution`.
        there = [found for found, _ in _nodes(document)]
        return next((each for each in (path, path[1:]) if each and each in there), None)
    specs = case.turns[int(path[1])].evaluators if start else case.evaluators
    spec, rest = specs[int(path[start + 1])], path[start + 2 :]
    for inner, own in reversed(list(_with_members(spec, rest))):
        entry = next(((found, node) for found, node in _nodes(document) if _is_entry(node, inner)), None)
        if entry is not None:
            return (*entry[0], *_as_written(inner, own, entry[1]))
    return None


def _with_members(spec: EvaluatorSpec, path: KeyPath) -> Iterator[tuple[EvaluatorSpec, KeyPath]]:
    """An evaluator and the members that a path leads through, each with the rest of the path."""
    yield spec, path
    evaluator = spec.evaluator
    if evaluator is not None and len(path) > 1 and path[0] == evaluator.members_field:
        yield from _with_members(evaluator.members[int(path[1])], path[2:])


def _as_written(spec: EvaluatorSpec, path: KeyPath, entry: Any) -> KeyPath:
    """A path inside an entry with the spelling of its first key that the entry uses."""
    if not path or path[0] in entry or spec.evaluator is None:
        return path
    for key in entry:
        field = field_of(type(spec.evaluator), key)
        if field is not None and field.encode_name == path[0]:
            return (key, *path[1:])
    return path


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
