"""Validate the datasets, targets files and configuration files of a project."""

from __future__ import annotations

import os
from collections.abc import Sequence

from agentv.datasets.dataset import Options
from agentv.datasets.discovery import GivenFormat, find_datasets
from agentv.datasets.formats.dataset_format import Source
from agentv.engine.cases.case_survey import variable_uses
from agentv.engine.checks.dataset_check import CollectingSink, check_dataset
from agentv.engine.checks.findings import Finding, Report
from agentv.engine.checks.project_files import ProjectFiles
from agentv.engine.checks.settings_files import check_settings, split_settings, unread_settings
from agentv.engine.run_defaults import unsafe_settings
from agentv.errors import DatasetNotFoundError
from agentv.model.diagnostics import Severity
from agentv.settings.project import project_root
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
        project = projects.get(source.folder)
        if project is None:
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
