"""Validates files and folders of a project: which file is what, and who checks it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentv.datasets.dataset import Options
from agentv.datasets.discovery import find_datasets, folders_in
from agentv.datasets.files import project_root
from agentv.datasets.formats.yaml_dataset import case_list_key, parse_yaml_file
from agentv.datasets.source import SIDECAR_SUFFIXES, data_files
from agentv.errors import DatasetError, DatasetNotFoundError
from agentv.settings.config import check_config
from agentv.settings.diagnostics import Problems
from agentv.targets.targets_file import check_targets
from agentv.validation.dataset_check import Collecting, ProjectFiles, check_dataset
from agentv.validation.finding import Finding, Report, from_error, from_problem

NO_TARGETS = "There is no targets file, so targets and judges were not checked; `agentv eval` needs one"
_TARGETS_NAMES = ("targets.yaml", "targets.yml")
_CONFIG_NAMES = ("config.yaml", "config.yml")
_CHECKS = {"targets": check_targets, "config": check_config}


def validate(paths: Sequence[str], options: Options = Options()) -> Report:
    """Everything wrong in the files and folders that `paths` name."""
    report = Report(findings=[], notes=[])
    settings, rest = _sorted_out(paths)
    for path, kind in settings.items():
        report.files += 1
        report.add(_check_settings(path, kind))
    sink = Collecting()
    try:
        sources = (
            find_datasets(rest, sink.warning, report.notes.append, lambda error: sink.bad_dataset([error]))
            if rest
            else []
        )
    except DatasetNotFoundError:
        if not settings and not sink.findings:
            raise
        sources = []
    report.notes = [note for note in report.notes if not any(note.startswith(f"{path}:") for path in settings)]
    report.add(sink.findings)
    projects: dict[str, ProjectFiles] = {}
    for source in sources:
        project = projects.get(source.folder)
        if project is None:
            project = projects[source.folder] = ProjectFiles(source.folder, project_root(source.folder))
            _add_settings_in_use(project, settings, report)
        report.files += len(source.files) + (source.sidecar is not None)
        cases, findings = check_dataset(source, options, project)
        report.cases += cases
        report.add(findings)
    if not report.errors and any(project.targets_file is None for project in projects.values()):
        report.notes.append(NO_TARGETS)
    return report


def _add_settings_in_use(project: ProjectFiles, checked: dict[str, str], report: Report) -> None:
    """Errors in the targets file and configuration that a run would use, where they were not checked already."""
    known = set(map(os.path.realpath, checked))
    for path, kind in ((project.targets_file, "targets"), (project.config_file, "config")):
        if path is not None and os.path.realpath(path) not in known:
            checked[path] = kind
            errors = [finding for finding in _check_settings(path, kind) if finding.severity == "error"]
            report.files += bool(errors)
            report.add(errors)
    report.add(project.findings)


def _sorted_out(paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Files of settings with their kind, and what is left for datasets."""
    settings: dict[str, str] = {}
    rest = []
    for path in paths:
        if os.path.isdir(path):
            settings.update(_settings_in(path))
            rest.append(path)
            continue
        kind = _settings_kind(path) or _kind_by_content(path)
        if kind is not None:
            settings[path] = kind
        else:
            rest += _data_files_of(path)
    return settings, rest


def _settings_in(folder: str) -> Iterator[tuple[str, str]]:
    for parent in folders_in(folder):
        for name in (
            *(os.path.join(".agentv", name) for name in (*_CONFIG_NAMES, *_TARGETS_NAMES)),
            *_CONFIG_NAMES,
            *_TARGETS_NAMES,
        ):
            path = os.path.join(parent, name)
            kind = _settings_kind(path)
            if kind is not None and os.path.isfile(path):
                yield path, kind


def _settings_kind(path: str) -> str | None:
    name = os.path.basename(path).lower()
    if name in _TARGETS_NAMES:
        return "targets"
    in_project_folder = os.path.basename(os.path.dirname(os.path.abspath(path))) == ".agentv"
    return "config" if name in _CONFIG_NAMES and in_project_folder else None


def _kind_by_content(path: str) -> str | None:
    """A targets file under a name of its own, when the user names it."""
    if not path.lower().endswith(SIDECAR_SUFFIXES) or not os.path.isfile(path):
        return None
    data = _quietly_parsed(path)
    if not isinstance(data, dict) or case_list_key(data) is not None:
        return None
    return "targets" if isinstance(data.get("targets"), list) else None


def _data_files_of(path: str) -> list[str]:
    """The data files, when the user names their sidecar: all are checked together."""
    beside = data_files(path)
    return [path] if not beside or case_list_key(_quietly_parsed(path)) is not None else beside


def _quietly_parsed(path: str) -> Any:
    try:
        return parse_yaml_file(path)
    except DatasetError:
        return None


def _check_settings(path: str, kind: str) -> Iterable[Finding]:
    try:
        document = parse_yaml_file(path)
    except DatasetError as error:
        return [from_error(error)]
    problems: Problems = _CHECKS[kind](document)
    return [from_problem(problem, path, document) for problem in problems]
