"""Entries of evaluators before they are read: those in files of the project, and the preprocessors of a dataset.

`{include: NAME}` is replaced by the list in `.agentv/templates/NAME.yaml`. A type that is the name of a script in
`.agentv/assertions`, `.agentv/graders` or `.agentv/judges` runs that script as a code judge.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from agentv.datasets.case.keys import LIST_KEYS
from agentv.datasets.files import FileError, FileFinder
from agentv.errors import DatasetError
from agentv.model.diagnostics import KeyPath, Problems
from agentv.model.evaluator import DEFAULT_TYPE, EvaluatorSpec
from agentv.model.values import FrozenDict, freeze
from agentv.registry import EVALUATORS
from agentv.settings.evaluator_reader import find_kind, read_entry
from agentv.settings.settings_reader import field_of
from agentv.support.media_types import media_type_named
from agentv.support.yaml.yaml_file import parse_yaml_file

_FOLDER = os.path.join(".agentv", "templates")
_SUFFIXES = (".yaml", ".yml")
_SCRIPT_FOLDERS = tuple(os.path.join(".agentv", name) for name in ("assertions", "graders", "judges"))
_PROGRAMS = {
    **dict.fromkeys((".ts", ".mts"), ("bun", "run")),
    **dict.fromkeys((".js", ".mjs"), ("node",)),
    ".py": ("python3",),
}


def with_includes(entries: Any, finder: FileFinder, path: KeyPath, problems: Problems) -> Any:
    """Return the entries with every include replaced, also inside composites; the list itself if there is none."""
    return _Expansion(finder, problems).expanded(entries, path, ())


def with_own_types(entries: Any, finder: FileFinder) -> Any:
    """Return the entries with each type that is a script of the project replaced; the list itself if there is none."""
    if not isinstance(entries, list):
        return entries
    result = [_with_own_type(entry, finder) if isinstance(entry, dict) else entry for entry in entries]
    return entries if all(new is old for new, old in zip(result, entries, strict=True)) else result


def _with_own_type(entry: dict[str, Any], finder: FileFinder) -> dict[str, Any]:
    lists = [key for key in LIST_KEYS if isinstance(entry.get(key), list)]
    new = {key: with_own_types(entry[key], finder) for key in lists}
    type_ = entry.get("type")
    if isinstance(type_, str) and _is_script_name(type_):
        for command in _commands(type_, finder):
            own = {"type": "code-grader", "command": command, "grader_protocol": "agentv-4"}
            return {"name": type_, **entry, **own}
    return entry if all(new[key] is entry[key] for key in lists) else {**entry, **new}


def _is_script_name(type_: str) -> bool:
    return type_.replace("-", "").replace("_", "").isalnum() and EVALUATORS.canonical(type_) is None


def _commands(type_: str, finder: FileFinder) -> Iterator[list[str]]:
    """Yield the commands of the scripts with this name."""
    for folder in _SCRIPT_FOLDERS:
        for suffix, program in _PROGRAMS.items():
            with suppress(FileError):
                yield [*program, finder.find(os.path.join(folder, type_ + suffix)).path]


class _Expansion:
    def __init__(self, finder: FileFinder, problems: Problems) -> None:
        self._finder = finder
        self._problems = problems

    def expanded(self, entries: Any, path: KeyPath, chain: tuple[str, ...]) -> Any:
        if not isinstance(entries, list) or not any(isinstance(entry, dict) for entry in entries):
            return entries
        result: list[Any] = []
        for index, entry in enumerate(entries):
            place = path if chain else (*path, index)  # inside a template, the place is that of the first include
            if isinstance(entry, dict) and isinstance(entry.get("include"), str) and "type" not in entry:
                result += self._template(entry["include"], place if chain else (*place, "include"), chain)
            else:
                result.append(self._members(entry, place, chain))
        same = len(result) == len(entries) and all(new is old for new, old in zip(result, entries, strict=True))
        return entries if same else result

    def _members(self, entry: Any, path: KeyPath, chain: tuple[str, ...]) -> Any:
        lists = [key for key in LIST_KEYS if isinstance(entry, dict) and isinstance(entry.get(key), list)]
        new = {key: self.expanded(entry[key], (*path, key), chain) for key in lists}
        return entry if all(new[key] is entry[key] for key in lists) else {**entry, **new}

    def _template(self, name: str, path: KeyPath, chain: tuple[str, ...]) -> list[Any]:
        """Return the entries of a template. A path in it is relative to its own folder or to the dataset's."""
        try:
            file = self._find(name, os.path.dirname(chain[-1]) if chain else None)
            if file in chain:
                raise FileError(f"Template '{name}' includes itself", " → ".join((*chain, file)))
            data = parse_yaml_file(file)
        except (FileError, DatasetError) as error:
            message = error.message if isinstance(error, FileError) else f"Template '{name}' is not valid YAML"
            self._problems.error(path, message, error.hint if isinstance(error, FileError) else error.detail)
            return []
        lists = [data[key] for key in LIST_KEYS if key in data] if isinstance(data, dict) else []
        if len(lists) != 1 or not isinstance(lists[0], list):
            self._problems.error(path, f"Template '{name}' must be an object with a list of 'assertions'", file)
            return []
        return list(self.expanded(lists[0], path, (*chain, file)))

    def _find(self, name: str, folder: str | None) -> str:
        is_path = name.startswith(".") or "/" in name or "\\" in name
        names = [name] if is_path else [os.path.join(_FOLDER, name + suffix) for suffix in _SUFFIXES]
        if is_path and folder is not None:
            names.insert(0, self._finder.below(folder, name))
        hints: list[str] = []
        for candidate in names:
            try:
                return self._finder.find_settings(candidate).path
            except FileError as error:
                hints.append(error.hint)
        raise FileError(f"Template '{name}' was not found", hints[0])


_KEY = "preprocessors"


def read_preprocessors(entries: list[Any], problems: Problems) -> tuple[FrozenDict, ...]:
    """Return the preprocessors of a dataset, checked as those of a judge are; none after an error."""
    spec = read_entry({"type": DEFAULT_TYPE, _KEY: entries}, (_KEY,), problems, {_KEY: (_KEY,)})
    return () if spec is None else tuple(map(freeze, entries))


def with_preprocessors(specs: tuple[EvaluatorSpec, ...], shared: tuple[FrozenDict, ...]) -> tuple[EvaluatorSpec, ...]:
    """Return the specs with the dataset's preprocessors added; one of an entry wins for the same type of file."""
    return tuple(_with_preprocessors(spec, shared) for spec in specs) if shared else specs


@lru_cache(maxsize=1024)
def _with_preprocessors(spec: EvaluatorSpec, shared: tuple[FrozenDict, ...]) -> EvaluatorSpec:
    original = spec.to_data()
    data = _merged(original, shared)
    return spec if data is original else read_entry(data, (), Problems()) or spec


def _merged(entry: dict[str, Any], shared: tuple[FrozenDict, ...]) -> dict[str, Any]:
    kind = find_kind(entry["type"], (), Problems())
    if kind is not None and kind.members_field in entry:
        members = [_merged(member, shared) for member in entry[kind.members_field]]
        return {**entry, kind.members_field: members}
    if kind is None or field_of(kind, _KEY) is None:
        return entry
    own = list(entry.get(_KEY, ()))
    types = {media_type_named(item["type"]) for item in own}
    return {**entry, _KEY: own + [item for item in shared if media_type_named(item["type"]) not in types]}
