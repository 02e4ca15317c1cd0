"""Find and check targets files and configuration files, and name those of other tools that are not read."""

import os
from collections.abc import Iterator, Sequence
from itertools import product

from agentv.datasets.discovery import folders_in
from agentv.datasets.formats.dataset_format import SIDECAR_SUFFIXES, Source, data_files
from agentv.datasets.formats.yaml_dataset import case_list_key
from agentv.engine.checks.findings import Finding, from_error, from_problem
from agentv.engine.checks.project_files import parsed_or_none
from agentv.errors import DatasetError
from agentv.model.diagnostics import Problems
from agentv.registry import optional_service
from agentv.settings.project import project_root
from agentv.settings.settings_reader import as_config, check_config
from agentv.support.hashes import relative_path
from agentv.support.patterns import upward
from agentv.support.yaml.yaml_file import parse_yaml_file
from agentv.targets.targets_file import as_targets_file, check_targets, named_entries, targets_used

_TARGETS_NAMES = ("targets.yaml", "targets.yml")
_PROVIDERS_NAMES = ("providers.yaml",)
_CONFIG_NAMES = ("config.yaml", "config.yml")
_CHECKS = {"targets": check_targets, "config": check_config}


def split_settings(paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
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
            rest += [path] if not data or case_list_key(parsed_or_none(path)) is not None else data
    return settings, rest


def _settings_in(folder: str) -> Iterator[tuple[str, str]]:
    for parent in folders_in(folder):
        for folder_name, name in product((".agentv", ""), (*_CONFIG_NAMES, *_TARGETS_NAMES, *_PROVIDERS_NAMES)):
            path = os.path.join(parent, folder_name, name)
            if (kind := _settings_kind(path)) and os.path.isfile(path):
                yield path, kind


def _settings_kind(path: str) -> str | None:
    if (name := os.path.basename(path).lower()) in _TARGETS_NAMES:
        return "targets"
    in_project_folder = os.path.basename(os.path.dirname(os.path.abspath(path))) == ".agentv"
    if name in _PROVIDERS_NAMES and in_project_folder:
        return "targets"
    return "config" if name in _CONFIG_NAMES and in_project_folder else None


def _kind_by_content(path: str) -> str | None:
    """Recognize a targets file with a custom name."""
    is_yaml = path.lower().endswith(SIDECAR_SUFFIXES) and os.path.isfile(path)
    data = parsed_or_none(path) if is_yaml else None
    targets = data.get("targets") if isinstance(data, dict) and case_list_key(data) is None else None
    if not isinstance(targets, list):
        return None
    is_ours = not targets or any(isinstance(entry, dict) and {"name", "provider"} & entry.keys() for entry in targets)
    return "targets" if is_ours else None  # in other formats, targets have an `id`


def check_settings(path: str, kind: str, used: set[str] | None) -> tuple[list[Finding], list[str]]:
    """Return the findings of a settings file, and notes about problems in targets other than those `used`."""
    try:
        document = parse_yaml_file(path)
    except DatasetError as error:
        return [from_error(error)], []
    document = as_targets_file(document, path) if kind == "targets" else as_config(document, path)
    problems: Problems = _CHECKS[kind](document)
    notes: dict[str, str] = {}
    if kind == "targets" and used is not None:
        entries = named_entries(document)
        unused = {index: name for name, (index, _) in entries.items() if name not in targets_used(used, entries)}
        for problem in [item for item in problems if len(item.path) > 2 and item.path[1] in unused]:
            problems.remove(problem)
            name = unused[int(problem.path[1])]
            notes.setdefault(name, f"{path}: target '{name}' is not used here, and cannot be: {problem.message}")
    return [from_problem(problem, path, document) for problem in problems], list(notes.values())


THRESHOLD_NOTE = (
    "--threshold is the mean of all cases. In AgentV (TypeScript) it is that of every case: use --min-score for that."
)
_NAMES = (
    *(f"agentv.config.{suffix}" for suffix in ("ts", "mts", "js", "mjs", "cjs")),
    *(f"agentmark.config.{suffix}" for suffix in ("ts", "js", "mjs")),
)


def unread_settings(sources: Sequence[Source]) -> dict[str, str]:
    """Return settings files of other tools, from the datasets up to the root of their project, with a note on each."""
    folders = dict.fromkeys(
        parent for source in sources for parent in upward(source.folder, project_root(source.folder))
    )
    paths = [path for folder in folders for name in _NAMES if os.path.isfile(path := os.path.join(folder, name))]
    note = optional_service("settings-note") if paths else None
    return {relative_path(path): note(path) if note else "is not read" for path in paths}
