"""What a score depends on besides its entry: files that it names, looked for before any call, and words of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.datasets.files import FileError, FileFinder
from agentv.evaluators.base import Evaluator
from agentv.evaluators.resolution import evaluator_of
from agentv.model.case import EvalCase, Origin
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.values import digest
from agentv.support.file_hashes import words_in

_HERE = ("",)
"""Beside the dataset, and wherever else its files are looked for."""


class EvaluatorFiles:
    """Finds the files of evaluators as the files of their datasets are found, and hashes evaluators with them."""

    def __init__(self) -> None:
        self._finders: dict[str, FileFinder] = {}
        self._last: tuple[tuple[EvaluatorSpec, ...], str, str] | None = None
        self._last_each: tuple[tuple[EvaluatorSpec, ...], str, dict[str, str]] | None = None

    def finder(self, origin: Origin) -> FileFinder:
        """What finds the files that a dataset names."""
        finder = self._finders.get(origin.base_dir)
        if finder is None:
            finder = self._finders[origin.base_dir] = FileFinder(origin.base_dir or ".", origin.root or ".")
        return finder

    def path(self, origin: Origin, value: str) -> str:
        """The path of a file that a dataset names. Raises FileError."""
        return self.finder(origin).find(value).path

    def check(self, evaluator: Evaluator, spec: EvaluatorSpec, origin: Origin) -> None:
        """Raises FileError when the file of a function or class is not there. A script may still be made."""
        for text, _ in _texts_of(evaluator, spec):
            file, colon, _ = text.rpartition(":")
            if colon and file.endswith(".py"):
                self.finder(origin).find(file)

    def fingerprint(self, case: EvalCase, specs: tuple[EvaluatorSpec, ...]) -> str:
        """A hash of evaluators: settings, weights, the contents of files that they name, what judges are told."""
        origin = case.place.origin
        if self._last is not None and self._last[0] is specs and self._last[1] == origin.base_dir:
            return self._last[2]
        finder = self.finder(origin)
        found = digest([[spec.to_data(), _besides(spec, finder)] for spec in specs])
        self._last = (specs, origin.base_dir, found)
        return found

    def each(self, case: EvalCase, specs: tuple[EvaluatorSpec, ...]) -> dict[str, str]:
        """A hash of what shapes the scores of each evaluator, by its name: all but its weight."""
        origin = case.place.origin
        if self._last_each is not None and self._last_each[0] is specs and self._last_each[1] == origin.base_dir:
            return self._last_each[2]
        finder = self.finder(origin)
        found = {spec.name: digest([spec.fingerprint, _besides(spec, finder)]) for spec in specs}
        self._last_each = (specs, origin.base_dir, found)
        return found


def _besides(spec: EvaluatorSpec, finder: FileFinder) -> tuple[dict[str, str], list[str]]:
    """The hashes of the files that an evaluator and its members name, and the built-in text their judges read."""
    files: dict[str, str] = {}
    words: list[str] = []
    for each, evaluator in _with_members(spec, finder):
        names = {
            os.path.join(folder, name)
            for text, cwd in _texts_of(evaluator, each)
            for name in _names_in(text)
            for folder in cwd
        }
        for name in names:
            try:
                files[name] = finder.find(name).digest
            except FileError:
                continue  # a word of a command that is no file
        words += evaluator.own_words
    return files, words


def _with_members(spec: EvaluatorSpec, finder: FileFinder) -> Iterator[tuple[EvaluatorSpec, Evaluator]]:
    evaluator = evaluator_of(spec, lambda value: finder.find(value).path)
    yield spec, evaluator
    for member in evaluator.members:
        yield from _with_members(member, finder)


def _texts_of(evaluator: Evaluator, spec: EvaluatorSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Everything in an evaluator's settings that may name a file, by what its class declares, and in which folders."""
    if ".py:" in spec.type:
        yield spec.type, _HERE
    if spec.transform is not None:
        yield from _texts_in(spec.transform.get("function"), _HERE)
    cwd = getattr(evaluator, "cwd", None)
    for field in evaluator.files:
        yield from _texts_in(msgspec.to_builtins(getattr(evaluator, field)), (*_HERE, cwd) if cwd else _HERE)


def _texts_in(value: Any, folders: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The texts in settings. Beside a `cwd`, those of programs are looked for in that folder too."""
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


def _names_in(text: str) -> list[str]:
    file, colon, _ = text.rpartition(":")
    return [file] if colon and file.endswith(".py") and "\n" not in text else words_in(text)
