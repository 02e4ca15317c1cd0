"""Evaluators listed in a template: `{include: NAME}` is replaced by the list in `.agentv/templates/NAME.yaml`."""

from __future__ import annotations

import os
from typing import Any

from agentv.datasets.case.keys import LIST_KEYS
from agentv.datasets.files import FileError, FileFinder
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.errors import DatasetError
from agentv.settings.diagnostics import KeyPath, Problems

_FOLDER = os.path.join(".agentv", "templates")
_SUFFIXES = (".yaml", ".yml")


def with_includes(entries: Any, finder: FileFinder, path: KeyPath, problems: Problems) -> Any:
    """Return the entries with every include replaced, also inside composites; the list itself if there is none."""
    return _Expansion(finder, problems).expanded(entries, path, ())


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
            found = self._find(name, os.path.dirname(chain[-1]) if chain else None)
            if found in chain:
                raise FileError(f"Template '{name}' includes itself", " → ".join((*chain, found)))
            data = parse_yaml_file(found)
        except (FileError, DatasetError) as error:
            message = error.message if isinstance(error, FileError) else f"Template '{name}' is not valid YAML"
            self._problems.error(path, message, error.hint if isinstance(error, FileError) else error.detail)
            return []
        lists = [data[key] for key in LIST_KEYS if key in data] if isinstance(data, dict) else []
        if len(lists) != 1 or not isinstance(lists[0], list):
            self._problems.error(path, f"Template '{name}' must be an object with a list of 'assertions'", found)
            return []
        return list(self.expanded(lists[0], path, (*chain, found)))

    def _find(self, name: str, folder: str | None) -> str:
        is_path = name.startswith(".") or "/" in name or "\\" in name
        names = [name] if is_path else [os.path.join(_FOLDER, name + suffix) for suffix in _SUFFIXES]
        if is_path and folder is not None:
            names.insert(0, self._finder.below(folder, name))
        problems: list[FileError] = []
        for each in names:
            try:
                return self._finder.find(each).path
            except FileError as error:
                problems.append(error)
        raise FileError(f"Template '{name}' was not found", problems[-1].hint)
