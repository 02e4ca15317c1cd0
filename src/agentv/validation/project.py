"""Validates files and folders of a project: which file is what, and who checks it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentv.config import check_config
from agentv.datasets.discover import files_in, find_datasets, jsonl_beside
from agentv.datasets.ids import PackedIds
from agentv.datasets.reading import MissingSidecarWarning, OpenDataset, Options
from agentv.datasets.source import Source, base_of, kind_of
from agentv.datasets.yaml_document import case_list_key, parse_yaml_file
from agentv.errors import DatasetError, DatasetNotFoundError, DatasetWarning
from agentv.problems import Problems
from agentv.targets.file import check_targets
from agentv.validation.finding import Finding, Report, from_error, from_problem, from_warning
from agentv.validation.references import References
from agentv.validation.written_rules import agentmark_rules, repeated_keys

_TARGETS_NAMES = ("targets.yaml", "targets.yml")
_CONFIG_NAMES = ("config.yaml", "config.yml")
_CHECKS = {"targets": check_targets, "config": check_config}


class Collecting:
    """Keeps what a dataset is told, whatever it is, and lets the reading go on."""

    wants_all = True
    stops_at_first = False

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def warning(self, warning: DatasetWarning) -> None:
        if not isinstance(warning, MissingSidecarWarning):
            self.findings.append(from_warning(warning))

    def bad_dataset(self, errors: list[DatasetError]) -> None:
        self.findings += map(from_error, errors)

    def bad_case(self, errors: list[DatasetError]) -> None:
        self.findings += map(from_error, errors)


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
    for source in sources:
        report.files += len(source.files)
        cases, findings = _check_dataset(source, options)
        report.cases += cases
        report.add(findings)
    return report


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
            rest.append(_data_file_of(path))
    return settings, rest


def _settings_in(folder: str) -> Iterator[tuple[str, str]]:
    places = {folder, *(os.path.dirname(path) for path in files_in(folder))}
    for parent in sorted(places):
        for name in (*(os.path.join(".agentv", name) for name in (*_CONFIG_NAMES, *_TARGETS_NAMES)), *_TARGETS_NAMES):
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
    if kind_of(path) != "yaml" or not os.path.isfile(path):
        return None
    data = _quietly_parsed(path)
    if not isinstance(data, dict) or case_list_key(data) is not None:
        return None
    return "targets" if isinstance(data.get("targets"), list) else None


def _data_file_of(path: str) -> str:
    """The data file, when the user names its sidecar: both are checked together."""
    if kind_of(path) != "yaml" or not os.path.isfile(path) or case_list_key(_quietly_parsed(path)) is not None:
        return path
    return jsonl_beside(base_of(path)) or path


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


def _check_dataset(source: Source, options: Options) -> tuple[int, list[Finding]]:
    """The number of cases that are right, and everything that is wrong, in the order of lines."""
    sink = Collecting()
    count = 0
    try:
        dataset = OpenDataset(source, options, sink)
        references = References(dataset.finder, source.folder, dataset.root)
        for cases in dataset.batches(PackedIds()):
            count += len(cases)
            for case in cases:
                sink.findings += references.check(case)
        for file in source.files if source.kind == "jsonl" else ():
            sink.findings += repeated_keys(file, options.max_line_bytes)
            if dataset.agentmark:
                sink.findings += agentmark_rules(file, options.max_line_bytes)
    except DatasetError as error:
        sink.bad_dataset([error])
    return count, sorted(sink.findings, key=lambda finding: (finding.path, finding.line or 0, finding.column or 0))
