"""The files that a promptfoo configuration names, limited to its project."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from typing import Any

from agentv.datasets.files import FileError, FileFinder
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.settings.project import project_root

_MOST_FILES = 10_000
_GLOB = frozenset("*?[")


class SuiteFiles:
    """Finds and reads the files of one configuration. Every file that was found is in `used`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder or "."
        self.used: dict[str, None] = {}
        self._finder = FileFinder(self.folder, project_root(self.folder))

    def path(self, name: str) -> str:
        """Return the path of a file. Raises ValueError if it is missing or outside the project."""
        name = name.removeprefix("file://")
        try:
            found = self._finder.find(name).path
        except FileError as error:
            raise ValueError(f"{error.message}. {error.hint}".removesuffix(". ")) from None
        shown = os.path.normpath(os.path.join(self.folder, os.path.relpath(found, os.path.realpath(self.folder))))
        self.used[shown] = None
        return shown

    def matching(self, pattern: str) -> list[str]:
        """Return the files that a path or pattern names; none if there is no such file."""
        pattern = pattern.removeprefix("file://")
        if _GLOB.isdisjoint(pattern):
            place = os.path.join(self.folder, pattern)
            return [self.path(pattern)] if os.path.isfile(place) or os.path.isabs(pattern) else self._found(pattern)
        names = sorted(glob.glob(pattern, root_dir=self.folder, recursive=True))[:_MOST_FILES]
        return [self.path(name) for name in names if os.path.isfile(os.path.join(self.folder, name))]

    def _found(self, name: str) -> list[str]:
        try:
            return [self.path(name)]
        except ValueError:
            return []

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return RecordFile(path).text.replace("\r\n", "\n")

    def data(self, path: str) -> Any:
        """Return the content of a JSON or YAML file."""
        return RecordFile(path).document

    def content(self, name: str) -> Any:
        """Return the data in a JSON or YAML file, or the text of any other file. Raises ValueError."""
        path = self.path(name)
        return self.data(path) if path.lower().endswith((".json", ".yaml", ".yml")) else self.text(path).strip()

    def records(self, path: str) -> Iterator[Record]:
        """Yield the records of a table, a list, or lines of JSON."""
        return RecordFile(path).records()
