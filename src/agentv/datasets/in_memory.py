"""Cases that a program gives instead of a file: checked by the same rules, read any number of times."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from agentv.datasets.case.builder import CaseBuilder
from agentv.datasets.case.header import Header
from agentv.datasets.files import FileFinder, project_root
from agentv.datasets.loader import Stopping
from agentv.datasets.selection import Selection
from agentv.datasets.source import Source
from agentv.errors import DatasetWarning, InvalidCaseError, InvalidDatasetError
from agentv.model.case import EvalCase, Origin, Place
from agentv.settings.diagnostics import Problems

GIVEN = "(given)"


class GivenCases:
    """A list of cases in the place of files. Dicts have the keys of a dataset's cases."""

    sources: tuple[Source, ...] = ()

    def __init__(
        self,
        cases: Iterable[EvalCase | Mapping[str, Any]],
        selection: Selection = Selection(),
        warn: Callable[[DatasetWarning], None] | None = None,
    ) -> None:
        folder = os.getcwd()
        self._warn = warn or _ignore
        self._warned: set[str] = set()
        self._finder = FileFinder(folder, project_root(folder))
        self._place = Place(Origin(GIVEN, "given", folder, project_root(folder)), 1)
        self._builder = CaseBuilder(Header(dataset="given"), self._finder, outcome_optional=True)
        self._selection = selection
        self._cases = [self._case(case, index) for index, case in enumerate(cases)]
        self._check_ids()
        self.sink = Stopping(_ignore)

    def stream(self) -> Iterator[EvalCase]:
        """The selected cases."""
        return self._selection.apply(self._cases, lambda: self._cases)

    stream_again = stream

    def _case(self, given: EvalCase | Mapping[str, Any], index: int) -> EvalCase:
        if isinstance(given, EvalCase):
            return given
        headline = f"Invalid eval case at position {index + 1} of those given"
        if not isinstance(given, Mapping):
            raise InvalidCaseError(headline, f"A case is a dict or an EvalCase, got {type(given).__name__}")
        problems = Problems()
        case = self._builder.build(dict(given), self._place, index, problems)
        for problem in problems.errors:
            raise InvalidCaseError(headline, problem.message, problem.hint, line=index + 1, field=problem.field)
        for problem in problems:
            if problem.kind not in self._warned:
                self._warned.add(problem.kind)
                self._warn(DatasetWarning(problem.message, field=problem.field, hint=problem.hint))
        assert case is not None
        return case

    def _check_ids(self) -> None:
        if not self._cases:
            raise InvalidDatasetError("No cases were given")
        seen: set[tuple[str, str]] = set()
        for case in self._cases:
            key = (case.path, case.id)
            if key in seen:
                raise InvalidDatasetError(f"Duplicate id '{case.id}'", hint="Ids must be unique within a dataset")
            seen.add(key)


def _ignore(warning: DatasetWarning) -> None:
    pass
