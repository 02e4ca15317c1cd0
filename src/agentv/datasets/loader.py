"""`load_cases` and `stream_cases`: datasets by path, whole or one case at a time."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import msgspec

from agentv.datasets.case.builder import CaseBuilder
from agentv.datasets.case.header import Header
from agentv.datasets.dataset import Dataset, Options, Quiet, Sink
from agentv.datasets.discovery import Paths, find_datasets
from agentv.datasets.files import FileFinder, project_root
from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.selection import Selection
from agentv.errors import (
    AgentvError,
    DatasetError,
    DatasetWarning,
    InvalidCaseError,
    InvalidDatasetError,
    MissingSidecarWarning,
    UsageError,
)
from agentv.model.case import EvalCase, Origin, Place
from agentv.settings.diagnostics import Problems
from agentv.support.hashes import IdSet, PackedIds
from agentv.support.patterns import upward

if TYPE_CHECKING:
    import pytest

_ON_ERROR = ("stop", "skip")


class Stopping:
    """The strict way: the first thing wrong ends the load."""

    wants_all = False
    stops_at_first = True

    def __init__(self, warn: Callable[[DatasetWarning], None]) -> None:
        self.warning = warn
        self.skipped_places: list[tuple[str, int]] = []

    @property
    def skipped(self) -> int:
        """How many bad cases were left out."""
        return len(self.skipped_places)

    def bad_dataset(self, errors: list[DatasetError]) -> None:
        raise errors[0]

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:  # noqa: ARG002
        raise errors[0]


class Skipping(Stopping):
    """The lenient way: a bad case is left out, with a warning that names it, and counted."""

    stops_at_first = False

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:  # noqa: ARG002
        error = errors[0]
        self.skipped_places.append((error.path or "", error.line or 0))
        what = error.detail.split("\n", 1)[0].removeprefix(f"Line {error.line}: ")
        message = f"Skipped a case at line {error.line} in {error.path}: {what}"
        self.warning(DatasetWarning(message, path=error.path, line=error.line, column=error.column, field=error.field))


class CaseSource(msgspec.Struct, frozen=True):
    """Datasets that were found, and how to read them: what both functions and the commands work from."""

    sources: tuple[Source, ...]
    options: Options
    selection: Selection
    sink: Stopping

    def stream(self) -> Iterator[EvalCase]:
        """The selected cases, one at a time, in memory that does not grow with the files; all are read to the end."""
        everything = self._all(self.sink)
        yield from self.selection.apply(everything, lambda: self._all(Quiet()))
        for _ in everything:
            pass  # beyond a limit nothing is wanted, and everything is checked all the same

    def stream_lazily(self) -> Iterator[EvalCase]:
        """The same, reading no further than it has to."""
        return self.selection.apply(self._all(self.sink), lambda: self._all(Quiet()))

    def stream_again(self) -> Iterator[EvalCase]:
        """The same cases once more, without a word about what was said the first time."""
        return self.selection.apply(self._all(Quiet()), lambda: self._all(Quiet()))

    def load(self) -> list[EvalCase]:
        """The selected cases of files that were all read to the end."""
        everything: list[EvalCase] = []
        collecting = gc.isenabled()
        # Nothing made here is garbage, and looking for it over and over takes half the time.
        gc.disable()
        try:
            for source in self.sources:
                seen = IdSet()
                for batch in Dataset(source, self.options, self.sink).batches(seen):
                    everything += batch
        finally:
            if collecting:
                gc.enable()
        if self.selection == Selection():
            return everything
        return list(self.selection.apply(everything, lambda: everything))

    def _all(self, sink: Sink) -> Iterator[EvalCase]:
        for source in self.sources:
            for batch in Dataset(source, self.options, sink).batches(PackedIds()):
                yield from batch


def case_source(
    path: Paths,
    *,
    warn: Callable[[DatasetWarning], None],
    note: Callable[[str], None],
    options: Options = Options(),
    selection: Selection = Selection(),
) -> CaseSource:
    """Find the datasets at `path`."""
    if options.on_error not in _ON_ERROR:
        raise UsageError(f"on_error must be one of {', '.join(_ON_ERROR)}, got {options.on_error!r}")
    sink = Skipping(warn) if options.on_error == "skip" else Stopping(warn)
    return CaseSource(tuple(find_datasets(path, warn, note)), options, selection, sink)


class CaseOptions(TypedDict, total=False):
    """The options of `load_cases` and `stream_cases`."""

    filter: str | Sequence[str] | None
    sample: int | float | None
    seed: int
    shard: tuple[int, int] | None
    limit: int | None
    on_error: Literal["stop", "skip"]
    allow_outside_files: bool
    max_line_bytes: int


def load_cases(path: Paths, **options: Unpack[CaseOptions]) -> list[EvalCase]:
    """Load the cases of a file, a folder, a glob or several of them as a list: all of them checked, or an error.

    `filter`, `sample` (with `seed`), `shard` and `limit` select, in that order; the files are read to the end all the
    same. With `on_error="skip"` a bad case is left out with a DatasetWarning instead of ending the load.
    `allow_outside_files` lifts the rule that datasets read only files inside their project. `max_line_bytes` is the
    longest line that is read.
    """
    return _selected(path, options).load()


def stream_cases(path: Paths, **options: Unpack[CaseOptions]) -> Iterator[EvalCase]:
    """Load cases as `load_cases` does, one at a time: memory does not grow with the files but for 16 bytes a case.

    An error may come after cases were given out. A `sample` reads the files twice. YAML is held whole, JSONL never.
    """
    return _selected(path, options).stream_lazily()


def _selected(path: Paths, given: CaseOptions) -> CaseSource:
    for name in given:
        if name not in CaseOptions.__annotations__:
            raise TypeError(f"Unexpected keyword argument '{name}'")
    values: dict[str, Any] = {"filter": None, **given}
    filters = values.pop("filter") or ()
    reading = {name: values.pop(name) for name in Options.__struct_fields__ if name in values}
    selection = Selection((filters,) if isinstance(filters, str) else tuple(filters), **values)
    return case_source(path, warn=warn_caller, note=ignore, options=Options(**reading), selection=selection)


def warn_caller(warning: DatasetWarning) -> None:
    """A Python warning that points at the caller's line, however deep in here it was noticed."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("agentv."):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def ignore(said: object) -> None:
    """Drop a warning or a note."""


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
        self._warn = warn or ignore
        self._warned: set[str] = set()
        self._finder = FileFinder(folder, project_root(folder))
        self._place = Place(Origin(GIVEN, "given", folder, project_root(folder)), 1)
        self._builder = CaseBuilder(Header(dataset="given"), self._finder, outcome_optional=True)
        self._selection = selection
        self._cases = [self._case(case, index) for index, case in enumerate(cases)]
        self.sink = Stopping(ignore)
        if not self._cases:
            raise InvalidDatasetError("No cases were given")
        (_, id), count = Counter((case.path, case.id) for case in self._cases).most_common(1)[0]
        if count > 1:
            raise InvalidDatasetError(f"Duplicate id '{id}'", hint="Ids must be unique within a dataset")

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


def cases(path: str | os.PathLike[str], *, argument: str = "case", **options: Any) -> pytest.MarkDecorator:
    """Parametrises a test by the cases of a dataset: one test each, under the case's id, as the argument `case`.

        @agentv.cases("evals/support.yaml", filter="tag=billing")
        def test_support(case): ...

    `path` is a file, a folder or a glob, from the working directory, else from the test's folder and its parents up to
    the project root. Options are those of `load_cases`.
    """
    import pytest  # late: not a dependency; who uses this has it

    file = _located(os.fspath(path), sys._getframe(1).f_code.co_filename)
    try:
        with warnings.catch_warnings():
            # It says which target and evaluator hold, and a test has its own.
            warnings.simplefilter("ignore", MissingSidecarWarning)
            found = load_cases(file, **options)
    except AgentvError as error:
        raise pytest.Collector.CollectError(str(error)) from error
    several = len({case.path for case in found}) > 1
    named = [pytest.param(case, id=f"{case.dataset}-{case.id}" if several else case.id) for case in found]
    return pytest.mark.parametrize(argument, named)


def _located(path: str, test_file: str) -> str:
    """The path as it can be opened from here; as it was given, where nothing is found, for the error to name."""
    if os.path.isabs(path) or os.path.exists(path) or any(char in path for char in "*?["):
        return path
    folder = os.path.dirname(os.path.abspath(test_file))
    places = (os.path.join(parent, path) for parent in upward(folder, project_root(folder)))
    return next((os.path.relpath(place) for place in places if os.path.exists(place)), path)
