"""Validate the datasets, targets files and configuration files of a project: check every case, collect all problems."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from agentv.datasets.dataset import Dataset, Options
from agentv.datasets.discovery import GivenFormat, find_datasets
from agentv.datasets.formats.dataset_format import Source
from agentv.engine.cases.case_survey import variable_uses
from agentv.engine.cases.dependencies import dependency_problems, has_dependencies
from agentv.engine.checks.findings import Finding, Locator, Report, from_error, from_warning
from agentv.engine.checks.preflight import Preflight
from agentv.engine.checks.project_files import ProjectFiles
from agentv.engine.checks.settings_files import check_settings, split_settings, unread_settings
from agentv.engine.run_defaults import unsafe_settings
from agentv.errors import (
    DatasetError,
    DatasetNotFoundError,
    DatasetWarning,
    LossWarning,
    MappedNote,
    MissingSidecarWarning,
    RefusedCaseWarning,
)
from agentv.model.case import EvalCase
from agentv.model.diagnostics import KeyPath, Problem, Severity, field_name
from agentv.model.message import Message
from agentv.model.values import cluster_of
from agentv.settings.project import project_root
from agentv.stats.shared_texts import HINT, SharedTexts
from agentv.support.hash_table import PackedIds
from agentv.support.user_code import importing_nothing
from agentv.trust.inventory import Inventory

NO_TARGETS = "No targets file found: targets and judges were not checked. `agentv eval` needs one."


def validate(paths: Sequence[str], options: Options = Options()) -> Report:
    """Return all problems in the given files and folders.

    Of a targets file that is not named itself, only the targets that the datasets use must be valid. Nothing is
    imported or run.
    """
    with importing_nothing():
        return _validated(paths, options)


def _validated(paths: Sequence[str], options: Options) -> Report:
    report = Report(findings=[], notes=[])
    settings, rest = split_settings(paths)
    sink = CollectingSink()
    sources: list[Source] = []
    try:
        if rest:
            file_format = GivenFormat(fields=options.fields)
            sources = find_datasets(
                rest, sink.warning, report.notes.append, lambda error: sink.bad_dataset([error]), file_format
            )
    except DatasetNotFoundError:
        if not settings and not sink.findings:
            raise
    report.notes = [note for note in report.notes if not any(note.startswith(f"{path}:") for path in settings)]
    report.add(sink.findings)
    projects: dict[str, ProjectFiles] = {}
    for source in sources:
        if (project := projects.get(source.folder)) is None:
            project = projects[source.folder] = ProjectFiles(source.folder, project_root(source.folder))
            notes = unsafe_settings(source.folder, project.config_file)
            report.notes += (note for note in notes if note not in report.notes)
        report.files += len(source.files) + (source.sidecar is not None)
        result = check_dataset(source, options, project)
        report.cases += result.cases
        report.add(result.findings)
        report.notes += result.notes
    severity: Severity = "error" if options.strict else "warning"
    report.add([Finding(severity, path, f"The file {note}") for path, note in unread_settings(sources).items()])
    _add_settings(settings, set(paths), list(projects.values()), report)
    uses = Inventory(use for project in projects.values() for use in project.uses())
    uses.add(variable_uses(sources))
    if uses:
        report.uses = list(uses)
    if not report.errors and any(
        project.targets_file is None and not project.survey.has_targets for project in projects.values()
    ):
        report.notes.append(NO_TARGETS)
    return report


def _add_settings(settings: dict[str, str], paths: set[str], projects: list[ProjectFiles], report: Report) -> None:
    """Add the findings of all settings files: those given, and errors in those that the datasets use."""
    used: dict[str, set[str]] = {}
    files = {os.path.realpath(path): (path, kind) for path, kind in settings.items()}
    for project in projects:
        for path, kind in ((project.targets_file, "targets"), (project.config_file, "config")):
            if path is not None:
                files.setdefault(os.path.realpath(path), (path, kind))
                used.setdefault(os.path.realpath(path), set()).update(project.used)
        report.add(project.findings)
    for real, (path, kind) in files.items():
        findings, notes = check_settings(path, kind, None if path in paths else used.get(real))
        is_given = path in settings
        reported_findings = [finding for finding in findings if is_given or finding.severity == "error"]
        report.files += is_given or bool(reported_findings)
        report.add(reported_findings)
        report.notes += notes


class DatasetFindings(NamedTuple):
    """The number of valid cases of a dataset, all its problems, and notes about what was mapped."""

    cases: int
    findings: list[Finding]
    notes: list[str]


class CollectingSink:
    """Collects all errors and warnings of a dataset instead of stopping at the first."""

    wants_all = True
    stops_at_first = False

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self.is_agentv_suite = False
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.bad: list[EvalCase] = []

    def warning(self, warning: DatasetWarning) -> None:
        if isinstance(warning, MappedNote):
            self.notes.append(warning.message)
        elif not isinstance(warning, MissingSidecarWarning):
            finding = from_warning(warning)
            is_error = self._strict and isinstance(warning, LossWarning)
            is_error = is_error or (self.is_agentv_suite and isinstance(warning, RefusedCaseWarning))
            self.findings.append(msgspec.structs.replace(finding, severity="error") if is_error else finding)

    def bad_dataset(self, errors: list[DatasetError]) -> None:
        self.findings += map(from_error, errors)

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:
        self.findings += map(from_error, errors)
        if case is not None and case.id:
            self.bad.append(case)

    def cases(self, dataset: Dataset) -> Iterator[tuple[EvalCase, bool]]:
        """Yield every case that has an id, and whether it is valid; an invalid one may have further problems."""
        for batch in chain(dataset.batches(None), [()]):
            bad, self.bad = self.bad, []
            yield from ((case, False) for case in bad)
            yield from ((case, True) for case in batch)


class CaseChecks:
    """Finds problems of cases in a project. `repeated` are ids of several cases, `dependents` wait for others."""

    def __init__(self, source: Source, project: ProjectFiles) -> None:
        self._project = project
        self._preflight = Preflight(project.facts.with_targets(project.survey.add_targets(source)))
        self._ids = PackedIds()
        self._lacks_target = False
        self.refused = 0
        self.has_refusals = False
        self.repeated: set[str] = set()
        self.dependents: dict[str, EvalCase] = {}
        self.shared_texts = SharedTexts()

    def problems(self, case: EvalCase, *, is_valid: bool) -> Iterator[Problem]:
        """Yield the problems of a case. An invalid one has been reported, and may have further problems."""
        project, targets = self._project, self._project.targets_of(case)
        if project.facts.has_targets and not targets and not self._lacks_target:
            self._lacks_target = True  # reported once
            hint = f"Add a target named 'default' to {project.targets_file}, or set `execution.target`"
            yield Problem(("execution",), "No target is named, and there is no target named 'default'", hint)
        yield from self._preflight.problems(case, targets)
        self.refused += case.case_error is not None or bool(self._preflight.refusals)
        for problem in self._preflight.refusals[:1]:
            self.has_refusals = True
            message = f"refused case '{case.id}': {problem.message}"
            yield msgspec.structs.replace(problem, message=message, severity="warning")
        project.survey.add(case)
        if cluster_of(case) is None:
            self.shared_texts.add(message.text or "" for message in case.input)
        if is_valid and case.case_error is None:
            yield from _blank_fields(case)
        if self._ids.repeats((case.id,)):
            self.repeated.add(case.id)
        if has_dependencies(case):
            self.dependents[case.id] = case

    def finish(self) -> Iterator[tuple[EvalCase, Problem]]:
        """Yield the problems that show after the last case."""
        self._project.used |= self._preflight.used
        return self._preflight.threshold_problems()


def check_dataset(source: Source, options: Options, project: ProjectFiles) -> DatasetFindings:
    """Return all findings of a dataset; it is read again if ids are repeated or cases depend on others."""
    sink = CollectingSink(strict=options.strict)
    # `agentv validate` of AgentV 4 fails for an invalid case, which its `agentv eval` leaves out.
    sink.is_agentv_suite = not source.format.refuses_cases and source.format.suite_gate(source) is not None
    count = 0
    try:
        dataset = Dataset(source, options, sink)
        finding, checks = Locator(dataset).finding, CaseChecks(source, project)
        for case, is_valid in sink.cases(dataset):
            count += is_valid
            sink.findings += (finding(problem, case) for problem in checks.problems(case, is_valid=is_valid))
        sink.findings += (finding(problem, case) for case, problem in checks.finish())
        if warning := checks.shared_texts.warning():
            sink.findings.append(Finding("warning", source.path, warning, hint=HINT))
        if checks.has_refusals and checks.refused == count:
            sink.findings.append(Finding("error", source.path, "All cases are refused"))
        if checks.dependents:
            ids = [case.id for case in _cases(source, options)]
            problems = dependency_problems(checks.dependents, ids)
            sink.findings += (finding(problem, case) for case, problem in problems)
        if checks.repeated:
            sink.findings += _duplicates(source, options, checks.repeated)
        sink.findings += map(from_error, source.format.lint(dataset.document, dataset.read_options))
    except DatasetError as error:
        sink.bad_dataset([error])
    findings = sorted(_collapsed(sink.findings), key=lambda each: (each.path, each.line or 0, each.column or 0))
    return DatasetFindings(count, findings, sink.notes)


def _cases(source: Source, options: Options) -> Iterator[EvalCase]:
    """Read the cases again, without their problems."""
    sink = CollectingSink()
    return (case for case, _ in sink.cases(Dataset(source, options, sink)))


def _collapsed(findings: list[Finding]) -> list[Finding]:
    """Return the findings with one for all cases of a file that lack the expected outcome, in place of the first."""
    counts = Counter((entry.path, entry.hint) for entry in findings if _lacks_outcome(entry))
    result: list[Finding] = []
    for finding in findings:
        if _lacks_outcome(finding):
            if not (count := counts.pop((finding.path, finding.hint), 0)):
                continue
            if count > 1:
                finding = msgspec.structs.replace(finding, message=f"{finding.message} (in {count:,} cases)")
        result.append(finding)
    return result


def _lacks_outcome(finding: Finding) -> bool:
    return finding.field == "expected_outcome" and finding.message.startswith("Missing")


def _blank_fields(case: EvalCase) -> Iterator[Problem]:
    """Yield an error for each text that a target or an evaluator needs and that is blank."""
    messages = [message for prompt in case.prompts for message in prompt.input] or case.input
    if messages and all(map(_is_blank, messages)) and not (case.variables or {}).keys() - {"userMessage"}:
        path: KeyPath = ("input", "userMessage") if case.variables and "userMessage" in case.variables else ("input",)
        yield Problem(path, f"Field '{field_name(path)}' is blank", "Write the text to send to the target")
    for index, turn in enumerate(case.turns):
        if all(map(_is_blank, turn.input)):
            path = ("turns", index, "input")
            yield Problem(path, f"Field '{field_name(path)}' is blank", "Write the message of the user")
    if case.expected_output and all(map(_is_blank, case.expected_output)):
        message = "Field 'expected_output' is empty"
        yield Problem(("expected_output",), message, "Leave the field out if there is no reference")


def _is_blank(message: Message) -> bool:
    content = message.content
    return not message.tool_calls and (content in (None, (), {}) or (isinstance(content, str) and not content.strip()))


def _duplicates(source: Source, options: Options, ids: set[str]) -> Iterator[Finding]:
    """Yield every use of these ids except the first, by reading the dataset again."""
    order = {file: position for position, file in enumerate(source.files)}
    uses: dict[str, list[tuple[int, int, str]]] = {}
    for case in _cases(source, options):
        if case.id in ids:
            uses.setdefault(case.id, []).append((order[case.path], case.line, case.path))
    for id, places in uses.items():
        (_, first_line, first_path), *others = sorted(places)
        for _, line, path in others:
            where = f"line {first_line}" if path == first_path else f"line {first_line} of {first_path}"
            message = f"Duplicate id '{id}': first used at {where}"
            yield Finding("error", path, message, line, None, "id", "Ids must be unique within a dataset")
