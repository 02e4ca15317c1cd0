"""Fingerprints of evaluators: hashes of their settings, the files they name, and built-in prompts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from agentv.datasets.files import FileError, FileFinder, Found, finder_of
from agentv.evaluators.code.static_checks import function_reference, transform_references
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec, FileReference
from agentv.model.origin import Origin
from agentv.model.values import digest
from agentv.settings.evaluator_reader import evaluator_of
from agentv.support.hashes import words_in

Files = dict[str, dict[str, str]]

_HERE = ("",)
"""Next to the dataset, and in the other folders searched for its files."""


class EvaluatorFiles:
    """Finds the files of evaluators, like other files named in a dataset, and computes fingerprints of evaluators.

    With `own`, the evaluators are those of the command: for datasets from outside, files are looked up in the project.
    """

    def __init__(self, *, own: bool = False) -> None:
        self.own = own
        self._finders: dict[str, FileFinder] = {}
        self._last: tuple[tuple[EvaluatorSpec, ...], str, str] | None = None
        self._last_each: tuple[tuple[EvaluatorSpec, ...], str, tuple[dict[str, str], Files]] | None = None

    def _finder(self, origin: Origin) -> FileFinder:
        finder = self._finders.get(origin.base_dir)
        if finder is None:
            finder = self._finders[origin.base_dir] = finder_of(origin, own=self.own)
        return finder

    def path(self, origin: Origin, value: str) -> str:
        """Return the path of a file named in a dataset. Raises FileError."""
        return self._finder(origin).find(value).path

    def paths(self, case: EvalCase, specs: tuple[EvaluatorSpec, ...]) -> frozenset[str]:
        """Return the paths of the files that evaluators name."""
        finder = self._finder(case.place.origin)
        return frozenset(file.path for spec in specs for file in _files_and_prompts(spec, finder)[0].values())

    def fingerprint(self, case: EvalCase, specs: tuple[EvaluatorSpec, ...]) -> str:
        """Return one hash of several evaluators, including their weights."""
        origin = case.place.origin
        if self._last is not None and self._last[0] is specs and self._last[1] == origin.base_dir:
            return self._last[2]
        finder = self._finder(origin)
        fingerprint = digest([[spec.to_data(), _dependencies(spec, finder)] for spec in specs])
        self._last = (specs, origin.base_dir, fingerprint)
        return fingerprint

    def each(self, case: EvalCase, specs: tuple[EvaluatorSpec, ...]) -> dict[str, str]:
        """Return a hash of each evaluator by name, without its weight, which does not affect its score."""
        return self.each_with_files(case, specs)[0]

    def each_with_files(self, case: EvalCase, specs: tuple[EvaluatorSpec, ...]) -> tuple[dict[str, str], Files]:
        """Return a hash of each evaluator by name, and the hashes of the files that evaluators name, by their names."""
        origin = case.place.origin
        if self._last_each is not None and self._last_each[0] is specs and self._last_each[1] == origin.base_dir:
            return self._last_each[2]
        finder = self._finder(origin)
        needed = {spec.name: _dependencies(spec, finder) for spec in specs}
        hashes = {spec.name: digest([spec.fingerprint, needed[spec.name]]) for spec in specs}
        result = hashes, {name: files for name, (files, _) in needed.items() if files}
        self._last_each = (specs, origin.base_dir, result)
        return result


def references_of(spec: EvaluatorSpec) -> Iterator[FileReference]:
    """Yield the files an evaluator refers to: in its type, its transform and its settings."""
    if ".py:" in spec.type:
        yield function_reference(("type",), spec.type)
    yield from transform_references(spec.transform)
    if spec.evaluator is not None:
        yield from spec.evaluator.references()


def _dependencies(spec: EvaluatorSpec, finder: FileFinder) -> tuple[dict[str, str], list[str]]:
    """Return the hashes of files named by an evaluator and its members, and their built-in prompts."""
    files, prompts = _files_and_prompts(spec, finder)
    return {name: file.digest for name, file in files.items()}, prompts


def _files_and_prompts(spec: EvaluatorSpec, finder: FileFinder) -> tuple[dict[str, Found], list[str]]:
    evaluator = evaluator_of(spec, lambda value: finder.find(value).path)
    references = references_of(msgspec.structs.replace(spec, evaluator=evaluator))
    files: dict[str, Found] = {}
    for name in {name for reference in references for name in _file_names(reference)}:
        with suppress(FileError):  # a word in a command that is not a file
            files[name] = finder.find(name)
    prompts = list(evaluator.builtin_prompts)
    for member in evaluator.members:
        more_files, more_prompts = _files_and_prompts(member, finder)
        files |= more_files
        prompts += more_prompts
    return files, prompts


def _file_names(reference: FileReference) -> Iterator[str]:
    folders = _HERE if reference.cwd is None else (*_HERE, reference.cwd)
    for text, places in _texts_in(msgspec.to_builtins(reference.value), folders):
        file, colon, _ = text.rpartition(":")
        is_function = colon and file.endswith(".py") and "\n" not in text
        for name in [file] if is_function else words_in(text):
            yield from (os.path.join(folder, name) for folder in places)


def _texts_in(value: Any, folders: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the texts in settings with the folders to search; a `cwd` in the same object adds a folder."""
    if isinstance(value, str):
        yield value, folders
    elif isinstance(value, dict):
        cwd = value.get("cwd")
        folders = (*_HERE, cwd) if isinstance(cwd, str) else folders
        for item in value.values():
            yield from _texts_in(item, folders)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_in(item, folders)
