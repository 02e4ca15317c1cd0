"""Files that evaluators name: looked for before anything is called, and part of what a score depends on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.datasets.files import FileError, FileFinder
from agentv.evaluators.base import Evaluator
from agentv.evaluators.build import build
from agentv.model.case import EvalCase, Origin
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.values import digest

_LONGEST_NAME = 1000


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
        for text in _texts_of(evaluator, spec):
            file, colon, _ = text.rpartition(":")
            if colon and file.endswith(".py"):
                self.finder(origin).find(file)

    def fingerprint(self, case: EvalCase, specs: tuple[EvaluatorSpec, ...]) -> str:
        """A hash of evaluators: their settings, weights, and the contents of files that they name."""
        origin = case.place.origin
        if self._last is not None and self._last[0] is specs and self._last[1] == origin.base_dir:
            return self._last[2]
        finder = self.finder(origin)
        found = digest([[spec.to_data(), _contents(spec, finder)] for spec in specs])
        self._last = (specs, origin.base_dir, found)
        return found

    def each(self, case: EvalCase, specs: tuple[EvaluatorSpec, ...]) -> dict[str, str]:
        """A hash of what shapes the scores of each evaluator, by its name: settings and files, and not its weight."""
        origin = case.place.origin
        if self._last_each is not None and self._last_each[0] is specs and self._last_each[1] == origin.base_dir:
            return self._last_each[2]
        finder = self.finder(origin)
        found = {spec.name: digest([spec.fingerprint, _contents(spec, finder)]) for spec in specs}
        self._last_each = (specs, origin.base_dir, found)
        return found


def _contents(spec: EvaluatorSpec, finder: FileFinder) -> dict[str, str]:
    evaluator = build(spec, lambda value: finder.find(value).path)
    names = {name for text in _texts_of(evaluator, spec) for name in _names_in(text)}
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = finder.find(name).digest
        except FileError:
            continue  # a word of a command that is no file
    return found


def _texts_of(evaluator: Evaluator, spec: EvaluatorSpec) -> Iterator[str]:
    """Everything in an evaluator's settings that may name a file, by what its class declares."""
    if ".py:" in spec.type:
        yield spec.type
    for field in evaluator.files:
        yield from _texts_in(msgspec.to_builtins(getattr(evaluator, field)))


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(item)


def _names_in(text: str) -> list[str]:
    if "\n" in text or len(text) > _LONGEST_NAME:
        return []
    file, colon, _ = text.rpartition(":")
    return [file] if colon and file.endswith(".py") else [text.removeprefix("file://"), *text.split()]
