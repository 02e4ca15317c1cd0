"""Validate the datasets, targets files and configuration files of a project."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any

import msgspec

from agentv.datasets.case.header import config_file
from agentv.datasets.dataset import Dataset, Options
from agentv.datasets.discovery import GivenFormat, find_datasets, folders_in
from agentv.datasets.files import project_root
from agentv.datasets.formats.dataset_format import SIDECAR_SUFFIXES, Source, data_files
from agentv.datasets.formats.yaml_dataset import case_list_key, parse_yaml_file
from agentv.engine.cases.case_survey import CaseSurvey, variable_uses
from agentv.engine.cases.dependencies import dependency_problems, has_dependencies
from agentv.engine.checks.findings import Finding, Locator, Report, from_error, from_problem, from_warning
from agentv.engine.checks.preflight import Preflight, ProjectFacts
from agentv.engine.run_options import default_target, load_defaults
from agentv.errors import (
    DatasetError,
    DatasetNotFoundError,
    DatasetWarning,
    MappedNote,
    MissingSidecarWarning,
    UsageError,
)
from agentv.model.case import EvalCase
from agentv.model.evaluator import Execution
from agentv.model.message import Message
from agentv.settings.diagnostics import KeyPath, Problem, Problems, field_name
from agentv.settings.environment import references
from agentv.settings.settings_reader import check_config, field_of
from agentv.support.hash_table import PackedIds
from agentv.support.user_code import importing_nothing
from agentv.targets.catalog import find_targets_file, settings_folder
from agentv.targets.target import Target
from agentv.targets.target_uses import target_inventory
from agentv.targets.targets_file import (
    Entry,
    check_entry,
    check_shape,
    check_targets,
    follow,
    named_entries,
    targets_used,
)
from agentv.trust.inventory import Inventory


class Collecting:
    """Collects all errors and warnings of a dataset instead of stopping at the first."""

    wants_all = True
    stops_at_first = False

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.bad: list[EvalCase] = []

    def warning(self, warning: DatasetWarning) -> None:
        if isinstance(warning, MappedNote):
            self.notes.append(warning.message)
        elif not isinstance(warning, MissingSidecarWarning):
            self.findings.append(from_warning(warning))

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


class ProjectFiles:
    """The targets and defaults for a dataset, read without the environment and without running user code.

    If the targets file is missing or invalid as a whole, target names are not checked. `used` are the targets of the
    cases checked so far.
    """

    def __init__(self, folder: str, root: str) -> None:
        self._folder = folder
        self.targets_file = find_targets_file(folder, root, to_check=True)
        self.config_file = config_file(folder, root)
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.used: set[str] = set()
        targets = _target_settings(self.targets_file)
        known = tuple(targets or ())
        judges = {name: settings.get("judge_target") for name, settings in (targets or {}).items()}
        variables = (judge for judge in judges.values() if judge is not None and any(references(judge)))
        self.facts = ProjectFacts(
            known=known,
            may_judge=(*known, *variables),
            judge_target=lambda name: judges.get(name),
            transform=lambda name: (targets or {}).get(name, {}).get("transform"),
            has_targets=targets is not None,
        )
        self.survey = CaseSurvey(everything=True)
        self.targets = {} if self.targets_file is None else named_entries(_parsed_or_none(self.targets_file))
        self._default = self._default_target(folder, root) if targets is not None else None
        self._last: tuple[Execution, tuple[str, ...]] | None = None

    def uses(self) -> Inventory:
        """Return what a run of the datasets checked so far would use."""
        found = self.survey.inventory
        # A run of a stranger's dataset uses the targets of the user's project, if there are any.
        place = settings_folder(self._folder)
        own = find_targets_file(place, project_root(place))
        is_own = own is None or self.targets_file is None or os.path.samefile(own, self.targets_file)
        file = self.targets_file if is_own else own
        targets = self.targets if is_own else named_entries(_parsed_or_none(str(own)))
        found.add(target_inventory(self.used, targets, str(file)))
        return found

    def targets_of(self, case: EvalCase) -> tuple[str, ...]:
        """Return the targets of a case; the same object for cases that share their settings."""
        if self._last is None or self._last[0] is not case.execution:
            name = case.execution.target or self._default
            targets = case.execution.targets or ((name,) if name is not None else ())
            self._last = (case.execution, targets if self.facts.has_targets else ())
        return self._last[1]

    def _default_target(self, folder: str, root: str) -> str | None:
        try:
            return default_target(self.facts.known, load_defaults(folder, root, lambda _: None))
        except UsageError as error:
            message = f"{error.headline}: {error.detail}"
            self.findings.append(Finding("error", str(self.config_file), message, hint=error.hint))
        except DatasetError:
            pass  # reported when that file is checked
        return None


def _target_settings(path: str | None) -> dict[str, dict[str, Any]] | None:
    """Return the settings of each target by field name; empty for an invalid one, None without a targets file."""
    data = None if path is None else _parsed_or_none(path)
    if data is None or check_shape(data).errors:
        return None
    entries = named_entries(data)
    return {name: _common_settings(entry, entries) for name, entry in entries.items()}


def _common_settings(entry: Entry, entries: Mapping[str, Entry]) -> dict[str, Any]:
    problems = Problems()
    check_entry(entry, entries, problems)
    found = None if problems.errors else follow(entry, entries, None, problems)
    settings = {} if problems.errors else entry[1] if found is None else found[1]
    return {field.name: value for key, value in settings.items() if (field := field_of(Target, key))}


def check_dataset(source: Source, options: Options, project: ProjectFiles) -> tuple[int, list[Finding]]:
    """Return the number of valid cases, and all findings."""
    sink = Collecting()
    count = 0
    try:
        dataset = Dataset(source, options, sink)
        locator, survey = Locator(dataset), project.survey
        preflight = Preflight(project.facts.with_targets(survey.add_targets(source)))
        seen, repeated = PackedIds(), set()
        dependents: dict[str, EvalCase] = {}
        has_targets = True
        for case, is_valid in sink.cases(dataset):
            count += is_valid
            targets = project.targets_of(case)
            if project.facts.has_targets and has_targets and not targets:
                has_targets = False  # reported once
                hint = f"Add a target named 'default' to {project.targets_file}, or set `execution.target`"
                message = "No target is named, and there is no target named 'default'"
                problem = Problem(("execution",), message, hint)
                sink.findings.append(locator.finding(problem, case))
            sink.findings += (locator.finding(problem, case) for problem in preflight.problems(case, targets))
            survey.add(case)
            sink.findings += (locator.finding(problem, case) for problem in _blank_fields(case) if is_valid)
            if seen.repeats((case.id,)):
                repeated.add(case.id)
            if has_dependencies(case):
                dependents[case.id] = case
        project.used |= preflight.used
        project.notes += sink.notes
        sink.findings += (locator.finding(problem, case) for case, problem in preflight.threshold_problems())
        if dependents:
            again = Collecting()
            ids = [case.id for case, _ in again.cases(Dataset(source, options, again))]
            sink.findings += (locator.finding(problem, case) for case, problem in dependency_problems(dependents, ids))
        if repeated:
            sink.findings += _duplicates(source, options, repeated)
        sink.findings += map(from_error, source.format.lint(dataset.document, dataset.read_options))
    except DatasetError as error:
        sink.bad_dataset([error])
    sink.findings = _collapsed(sink.findings)
    return count, sorted(sink.findings, key=lambda finding: (finding.path, finding.line or 0, finding.column or 0))


def _collapsed(findings: list[Finding]) -> list[Finding]:
    """Return the findings with one for all cases of a file that lack the expected outcome, in place of the first."""
    counts = Counter((each.path, each.hint) for each in findings if _lacks_outcome(each))
    result: list[Finding] = []
    for finding in findings:
        if _lacks_outcome(finding):
            count = counts.pop((finding.path, finding.hint), 0)
            if not count:
                continue
            if count > 1:
                finding = msgspec.structs.replace(finding, message=f"{finding.message} (in {count:,} cases)")
        result.append(finding)
    return result


def _lacks_outcome(finding: Finding) -> bool:
    return finding.field == "expected_outcome" and finding.message.startswith("Missing")


def _blank_fields(case: EvalCase) -> Iterator[Problem]:
    """Yield an error for each text that a target or an evaluator needs and that is blank."""
    given = [message for prompt in case.prompts for message in prompt.input] or case.input
    if given and all(map(_is_blank, given)):
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
    sink = Collecting()
    order = {file: position for position, file in enumerate(source.files)}
    uses: dict[str, list[tuple[int, int, str]]] = {}
    for case, _ in sink.cases(Dataset(source, options, sink)):
        if case.id in ids:
            uses.setdefault(case.id, []).append((order[case.path], case.line, case.path))
    for id, places in uses.items():
        (_, first_line, first_path), *others = sorted(places)
        for _, line, path in others:
            where = f"line {first_line}" if path == first_path else f"line {first_line} of {first_path}"
            message = f"Duplicate id '{id}': first used at {where}"
            yield Finding("error", path, message, line, None, "id", "Ids must be unique within a dataset")


NO_TARGETS = "No targets file found: targets and judges were not checked. `agentv eval` needs one."
_TARGETS_NAMES = ("targets.yaml", "targets.yml")
_CONFIG_NAMES = ("config.yaml", "config.yml")
_CHECKS = {"targets": check_targets, "config": check_config}


def validate(paths: Sequence[str], options: Options = Options()) -> Report:
    """Return all problems in the given files and folders.

    Of a targets file that is not named itself, only the targets that the datasets use must be valid. Nothing is
    imported or run.
    """
    with importing_nothing():
        return _validated(paths, options)


def _validated(paths: Sequence[str], options: Options) -> Report:
    report = Report(findings=[], notes=[])
    settings, rest = _split_settings(paths)
    sink = Collecting()
    sources: list[Source] = []
    try:
        if rest:
            given = GivenFormat(fields=options.fields)
            sources = find_datasets(
                rest, sink.warning, report.notes.append, lambda error: sink.bad_dataset([error]), given
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
        report.files += len(source.files) + (source.sidecar is not None)
        cases, findings = check_dataset(source, options, project)
        report.cases += cases
        report.add(findings)
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


def _add_settings(given: dict[str, str], named: set[str], projects: list[ProjectFiles], report: Report) -> None:
    """Add the findings of all settings files: those given, and errors in those that the datasets use."""
    used: dict[str, set[str]] = {}
    files = {os.path.realpath(path): (path, kind) for path, kind in given.items()}
    for project in projects:
        for path, kind in ((project.targets_file, "targets"), (project.config_file, "config")):
            if path is not None:
                files.setdefault(os.path.realpath(path), (path, kind))
                used.setdefault(os.path.realpath(path), set()).update(project.used)
        report.add(project.findings)
        report.notes += project.notes
    for real, (path, kind) in files.items():
        findings, notes = _check_settings(path, kind, None if path in named else used.get(real))
        is_given = path in given
        shown = [finding for finding in findings if is_given or finding.severity == "error"]
        report.files += is_given or bool(shown)
        report.add(shown)
        report.notes += notes


def _split_settings(paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split paths into settings files with their kind, and datasets."""
    settings: dict[str, str] = {}
    rest = []
    for path in paths:
        if os.path.isdir(path):
            settings.update(_settings_in(path))
            rest.append(path)
        elif kind := _settings_kind(path) or _kind_by_content(path):
            settings[path] = kind
        else:
            # A sidecar is validated with its data files.
            data = data_files(path)
            rest += [path] if not data or case_list_key(_parsed_or_none(path)) is not None else data
    return settings, rest


def _settings_in(folder: str) -> Iterator[tuple[str, str]]:
    for parent in folders_in(folder):
        for folder_name, name in product((".agentv", ""), (*_CONFIG_NAMES, *_TARGETS_NAMES)):
            path = os.path.join(parent, folder_name, name)
            if (kind := _settings_kind(path)) and os.path.isfile(path):
                yield path, kind


def _settings_kind(path: str) -> str | None:
    name = os.path.basename(path).lower()
    if name in _TARGETS_NAMES:
        return "targets"
    in_project_folder = os.path.basename(os.path.dirname(os.path.abspath(path))) == ".agentv"
    return "config" if name in _CONFIG_NAMES and in_project_folder else None


def _kind_by_content(path: str) -> str | None:
    """Recognize a targets file with a custom name."""
    is_yaml = path.lower().endswith(SIDECAR_SUFFIXES) and os.path.isfile(path)
    data = _parsed_or_none(path) if is_yaml else None
    is_targets = isinstance(data, dict) and case_list_key(data) is None and isinstance(data.get("targets"), list)
    return "targets" if is_targets else None


def _parsed_or_none(path: str) -> Any:
    try:
        return parse_yaml_file(path)
    except DatasetError:
        return None


def _check_settings(path: str, kind: str, used: set[str] | None) -> tuple[list[Finding], list[str]]:
    """Return the findings of a settings file, and notes about problems in targets other than those `used`."""
    try:
        document = parse_yaml_file(path)
    except DatasetError as error:
        return [from_error(error)], []
    problems: Problems = _CHECKS[kind](document)
    notes: dict[str, str] = {}
    if kind == "targets" and used is not None:
        entries = named_entries(document)
        unused = {index: name for name, (index, _) in entries.items() if name not in targets_used(used, entries)}
        for problem in [each for each in problems if len(each.path) > 2 and each.path[1] in unused]:
            problems.remove(problem)
            name = unused[int(problem.path[1])]
            notes.setdefault(name, f"{path}: target '{name}' is not used here, and cannot be: {problem.message}")
    return [from_problem(problem, path, document) for problem in problems], list(notes.values())
