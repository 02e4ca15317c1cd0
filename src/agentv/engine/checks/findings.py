"""Findings of `agentv validate`: problems with their locations in files."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agentv.datasets.dataset import Dataset, Options, SilentSink
from agentv.datasets.formats.dataset_format import Source
from agentv.errors import DatasetError, DatasetWarning
from agentv.model.case import EvalCase
from agentv.model.diagnostics import KeyPath, Problem, Problems, Severity
from agentv.model.evaluator import EvaluatorSpec
from agentv.settings.evaluator_reader import read_entries
from agentv.settings.settings_reader import field_of
from agentv.support.yaml.yaml_parser import locate
from agentv.trust.inventory import Use

MAX_PER_FILE = 1000
"""Findings listed per file, to bound memory; the rest are only counted."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem, as printed by `agentv validate --json`."""

    severity: Severity
    path: str
    message: str
    line: int | None = None
    column: int | None = None
    field: str | None = None
    hint: str = ""


class Report(msgspec.Struct, kw_only=True):
    """The result of validation. Counts are complete even if the list of findings is cut.

    `uses` are the commands, code, hosts and variables that a run would use; unset if there are none.
    """

    files: int = 0
    cases: int = 0
    errors: int = 0
    warnings: int = 0
    findings: list[Finding] = []
    notes: list[str] = []
    uses: list[Use] | msgspec.UnsetType = msgspec.UNSET

    def add(self, findings: list[Finding]) -> None:
        """Add the findings of one file."""
        errors = sum(finding.severity == "error" for finding in findings)
        self.errors += errors
        self.warnings += len(findings) - errors
        self.findings += findings[:MAX_PER_FILE]


def from_error(error: DatasetError) -> Finding:
    """Convert an error to a finding."""
    message = (error.detail or error.headline).removeprefix(f"Line {error.line}: ")
    return Finding("error", error.path or "", message, error.line, error.column, error.field, error.hint)


def from_warning(warning: DatasetWarning) -> Finding:
    """Convert a warning to a finding, without the location and hint in its text."""
    message = warning.message.removeprefix(f"{warning.path}, line {warning.line}: ").removeprefix(f"{warning.path}: ")
    message = message.removesuffix(f" ({warning.hint})")
    return Finding("warning", warning.path or "", message, warning.line, warning.column, warning.field, warning.hint)


def from_problem(problem: Problem, path: str, document: Any) -> Finding:
    """Convert a problem in a settings file to a finding at the line of its key."""
    mark = locate(document, problem.path)
    line, column = (1, None) if mark is None else mark
    return Finding(problem.severity, path, problem.message, line, column, problem.field, problem.hint)


class Locator:
    """Locates problems of cases: in the case itself, or in the settings of its dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._document = dataset.document
        self._rows = {mark.line: row for row in dataset.document.cases or () if (mark := locate(row, ()))}

    def finding(self, problem: Problem, case: EvalCase) -> Finding:
        """Convert a problem of a case to a finding at the line of the value, else of the case."""
        path, line, column = case.path, case.line, None
        header = (self._document.header_path or path, self._document.header)
        for file, document in ((path, self._rows.get(line)), header):
            key_path = _place_in(document, problem.path, case)
            mark = None if key_path is None else locate(document, key_path)
            if mark is not None:
                path, line, column = file, mark.line, mark.column
                break
        return Finding(problem.severity, path, problem.message, line, column, problem.field, problem.hint)


def sidecar_line(problem: Problem, case: EvalCase, sources: Iterable[Source]) -> tuple[str, int] | None:
    """Return the file and the line of a problem in the sidecar of a dataset; None if it is elsewhere."""
    source = next((source for source in sources if case.path in source.files), None)
    if source is None or source.sidecar is None:
        return None
    finding = Locator(Dataset(source, Options(), SilentSink())).finding(problem, case)
    return None if finding.path == case.path or finding.line is None else (finding.path, finding.line)


def _place_in(document: Any, path: KeyPath, case: EvalCase) -> KeyPath | None:
    """Return the keys that lead to the value of a problem: within an evaluator, or from the top of the document."""
    start = path.index("evaluators") if "evaluators" in path else None
    if start is None:
        # `target` may be at the top level instead of in `execution`.
        paths = [keys for keys, _ in _nodes(document)]
        return next((candidate for candidate in (path, path[1:]) if candidate and candidate in paths), None)
    specs = case.turns[int(path[1])].evaluators if start else case.evaluators
    spec, rest = specs[int(path[start + 1])], path[start + 2 :]
    for inner, own in reversed(list(_with_members(spec, rest))):
        entry = next(((keys, node) for keys, node in _nodes(document) if _is_entry(node, inner)), None)
        if entry is not None:
            return (*entry[0], *_as_written(inner, own, entry[1]))
    return None


def _with_members(spec: EvaluatorSpec, path: KeyPath) -> Iterator[tuple[EvaluatorSpec, KeyPath]]:
    """Yield an evaluator and the members along a path, each with the rest of the path."""
    yield spec, path
    evaluator = spec.evaluator
    if evaluator is not None and len(path) > 1 and path[0] == evaluator.members_field:
        yield from _with_members(evaluator.members[int(path[1])], path[2:])


def _as_written(spec: EvaluatorSpec, path: KeyPath, entry: Any) -> KeyPath:
    """Return a path within an evaluator, its first key spelled as in the file."""
    if not path or path[0] in entry or spec.evaluator is None:
        return path
    for key in entry:
        field = field_of(type(spec.evaluator), key)
        if field is not None and field.encode_name == path[0]:
            return (key, *path[1:])
    return path


def _is_entry(node: Any, spec: EvaluatorSpec) -> bool:
    """Whether an evaluator was read from this node, ignoring a generated name."""
    if not isinstance(node, dict) or not isinstance(node.get("type", node.get("name")), str):
        return False
    return any(msgspec.structs.replace(entry, name=spec.name) == spec for entry in read_entries([node], (), Problems()))


def _nodes(document: Any) -> Iterator[tuple[KeyPath, Any]]:
    """Yield all nodes of parsed YAML with the keys that lead to them, in document order."""
    stack: list[tuple[KeyPath, Any]] = [((), document)]
    while stack:
        path, node = stack.pop()
        yield path, node
        if isinstance(node, dict):
            stack += [((*path, key), item) for key, item in reversed(node.items())]
        elif isinstance(node, list):
            stack += [((*path, index), item) for index, item in reversed(list(enumerate(node)))]
