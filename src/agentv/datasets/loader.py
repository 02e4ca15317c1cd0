"""Load the cases of datasets: as a list, as a stream, from memory, or as pytest parameters."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import msgspec

from agentv.datasets.case.builder import CaseBuilder
from agentv.datasets.case.header import Header
from agentv.datasets.case.shorthand import MessageReader
from agentv.datasets.dataset import Dataset, Options, ProblemSink, SilentSink
from agentv.datasets.discovery import GivenFormat, Paths, find_datasets
from agentv.datasets.files import FileFinder
from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.selection import Selection
from agentv.datasets.stamps import DatasetStamps
from agentv.errors import (
    AgentvError,
    DatasetError,
    DatasetWarning,
    InvalidCaseError,
    InvalidDatasetError,
    LossWarning,
    MissingSidecarWarning,
    UsageError,
)
from agentv.model.case import EvalCase
from agentv.model.diagnostics import Problems
from agentv.model.origin import Origin, Place
from agentv.settings.project import is_too_wide, project_root
from agentv.support.hash_table import IdSet, PackedIds
from agentv.support.hashes import relative_path
from agentv.support.lines import SUFFIXES
from agentv.support.patterns import upward
from agentv.trust.roots import trusting

if TYPE_CHECKING:
    import pytest

_ON_ERROR = ("stop", "skip")
_SMALL_BYTES = 1024 * 1024


class StrictSink:
    """Raises the first error. `stamps` notice datasets that change after they were read first."""

    wants_all = False
    stops_at_first = True

    def __init__(self, warn: Callable[[DatasetWarning], None]) -> None:
        self.warning = warn
        self.stamps = DatasetStamps()
        self.skipped_places: list[tuple[str, int]] = []

    @property
    def skipped(self) -> int:
        """The number of bad cases that were skipped."""
        return len(self.skipped_places)

    def bad_dataset(self, errors: list[DatasetError]) -> None:
        raise errors[0]

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:  # noqa: ARG002
        raise errors[0]


class SkippingSink(StrictSink):
    """Skips bad cases with a warning, and counts them."""

    stops_at_first = False

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:  # noqa: ARG002
        error = errors[0]
        self.skipped_places.append((error.path or "", error.line or 0))
        what = error.detail.split("\n", 1)[0].removeprefix(f"Line {error.line}: ")
        message = f"Skipped a case at line {error.line} in {error.path}: {what}"
        self.warning(DatasetWarning(message, path=error.path, line=error.line, column=error.column, field=error.field))


class CaseSource(msgspec.Struct, frozen=True):
    """The datasets at the given paths, and how to read their cases."""

    sources: tuple[Source, ...]
    options: Options
    selection: Selection
    sink: StrictSink

    def stream(self) -> Iterator[EvalCase]:
        """Yield the selected cases one at a time, in constant memory. All files are read to the end."""
        for source in self.sources:
            self.sink.stamps.begin(source)
        everything = self._all(self.sink)
        selected_cases = self.selection.apply(everything, lambda: self._all(SilentSink()))
        # The cases after the limit are checked as well.
        return chain(selected_cases, (case for case in everything if False))

    def stream_lazily(self) -> Iterator[EvalCase]:
        """Yield the selected cases, reading only as far as needed."""
        return self.selection.apply(self._all(self.sink), lambda: self._all(SilentSink()))

    def stream_again(self) -> Iterator[EvalCase]:
        """Yield the selected cases again, without reporting problems again. Raises DatasetChangedError."""
        return self.selection.apply(self._all_again(), self._all_again)

    def load(self) -> list[EvalCase]:
        """Return the selected cases. All files are read to the end."""
        everything: list[EvalCase] = []
        collecting = gc.isenabled()
        # Nothing created here is garbage, and repeated collections would double the time.
        gc.disable()
        try:
            for source in self.sources:
                ids = IdSet()
                for batch in Dataset(source, self.options, self.sink).batches(ids):
                    everything += batch
        finally:
            if collecting:
                gc.enable()
        if self.selection == Selection():
            return everything
        return list(self.selection.apply(everything, lambda: everything))

    def _all(self, sink: ProblemSink) -> Iterator[EvalCase]:
        datasets = (Dataset(source, self.options, sink) for source in self.sources)
        batches = chain.from_iterable(dataset.batches(PackedIds()) for dataset in datasets)
        return chain.from_iterable(batches)

    def _all_again(self) -> Iterator[EvalCase]:
        stamps, check = self.sink.stamps, self.sink.stamps.check
        for source in self.sources:
            has_unique_ids = stamps.is_complete(source.path) and not self.sink.skipped
            batches = Dataset(source, self.options, SilentSink()).batches(None if has_unique_ids else PackedIds())
            if _is_small(source):
                batches = iter(list(batches))  # read at once, so that the file may be edited during the run
                check(source.path)
                yield from chain.from_iterable(batches)
                continue
            for batch in batches:
                check(source.path)  # after reading and before use, so that every case that is used is unchanged
                yield from batch


def _is_small(source: Source) -> bool:
    return sum(map(os.path.getsize, source.files)) <= _SMALL_BYTES and not source.files[0].endswith(SUFFIXES)


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
    if options.strict:
        warn = _strict(warn)
    sink = SkippingSink(warn) if options.on_error == "skip" else StrictSink(warn)
    file_format = GivenFormat(fields=options.fields)
    return CaseSource(tuple(find_datasets(path, warn, note, given_format=file_format)), options, selection, sink)


def _strict(warn: Callable[[DatasetWarning], None]) -> Callable[[DatasetWarning], None]:
    """Return a function that passes warnings on, and raises the differences from a file's own tool as errors."""

    def check(warning: DatasetWarning) -> None:
        if isinstance(warning, LossWarning):
            raise strict_error(warning)
        warn(warning)

    return check


def strict_error(warning: LossWarning) -> InvalidDatasetError:
    """Return the error for a difference from a file's own tool."""
    headline = "A file is not read exactly as by its own tool, and --strict is set"
    return InvalidDatasetError(headline, warning.message, warning.hint, path=warning.path, line=warning.line)


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


def load_cases(path: Paths, *, trust: Paths = (), **options: Unpack[CaseOptions]) -> list[EvalCase]:
    """Load the cases of one or more files, folders or globs as a list. Raises DatasetError for an invalid case.

    `filter`, `sample` (with `seed`), `shard` and `limit` select cases, in that order; the files are always read to the
    end. With `on_error="skip"`, a bad case is skipped with a DatasetWarning instead. `allow_outside_files` lets
    datasets read files outside their project, and hidden files. `max_line_bytes` is the maximum length of a line.
    `trust` names files and folders outside the project of the working directory that may read variables and, if the
    cases are evaluated, run programs.
    """
    with trusting([trust] if isinstance(trust, str | os.PathLike) else trust):
        return _selected(path, options).load()


def stream_cases(path: Paths, **options: Unpack[CaseOptions]) -> Iterator[EvalCase]:
    """Yield the cases that `load_cases` would return, one at a time, in about 16 bytes of memory per case.

    An error may be raised after cases were yielded. A `sample` reads the files twice. YAML files are parsed as a whole.
    """
    return _selected(path, options).stream_lazily()


def _selected(path: Paths, options: CaseOptions) -> CaseSource:
    for name in options:
        if name not in CaseOptions.__annotations__:
            raise TypeError(f"Unexpected keyword argument '{name}'")
    values: dict[str, Any] = {"filter": None, **options}
    filters = values.pop("filter") or ()
    reading = {name: values.pop(name) for name in Options.__struct_fields__ if name in values}
    selection = Selection((filters,) if isinstance(filters, str) else tuple(filters), **values)
    return case_source(path, warn=warn_caller, note=ignore, options=Options(**reading), selection=selection)


def warn_caller(warning: DatasetWarning) -> None:
    """Issue a Python warning that points at the line of the caller outside agentv."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("agentv."):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def ignore(message: object) -> None:
    """Ignore a warning or a note."""


IN_MEMORY = "(given)"
"""The path of cases that do not come from a file."""


class InMemoryCases:
    """Cases from a list instead of files. Dicts have the same keys as cases in a dataset."""

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
        self._place = Place(Origin(IN_MEMORY, "given", folder, project_root(folder)), 1)
        finder = FileFinder(folder, project_root(folder))
        self._builder = CaseBuilder(Header(dataset="given"), MessageReader(finder), outcome_optional=True)
        self._selection = selection
        self._cases = [self._case(case, index) for index, case in enumerate(cases)]
        self.sink = StrictSink(ignore)
        if not self._cases:
            raise InvalidDatasetError("The list of cases is empty")
        (_, id), count = Counter((case.path, case.id) for case in self._cases).most_common(1)[0]
        if count > 1:
            raise InvalidDatasetError(f"Duplicate id '{id}'", hint="Ids must be unique within a dataset")

    def stream(self) -> Iterator[EvalCase]:
        """Yield the selected cases."""
        return self._selection.apply(self._cases, lambda: self._cases)

    stream_again = stream

    def _case(self, item: EvalCase | Mapping[str, Any], index: int) -> EvalCase:
        if isinstance(item, EvalCase):
            return item
        headline = f"Invalid eval case at position {index + 1} of the list"
        if not isinstance(item, Mapping):
            raise InvalidCaseError(headline, f"A case must be a dict or an EvalCase, got {type(item).__name__}")
        problems = Problems()
        case = self._builder.build(dict(item), self._place, index, problems)
        for problem in problems.errors:
            raise InvalidCaseError(headline, problem.message, problem.hint, line=index + 1, field=problem.field)
        for problem in problems:
            if problem.kind not in self._warned:
                self._warned.add(problem.kind)
                self._warn(DatasetWarning(problem.message, field=problem.field, hint=problem.hint))
        assert case is not None
        return case


def cases(path: str | os.PathLike[str], *, argument: str = "case", **options: Any) -> pytest.MarkDecorator:
    """Parametrize a pytest test with the cases of a dataset. Each case is passed as the argument `case`.

        @agentv.cases("evals/support.yaml", filter="tag=billing")
        def test_support(case): ...

    `path` is a file, a folder or a glob, relative to the working directory, or else to the test's folder or one of its
    parents up to the project root. Test ids are case ids. The options are those of `load_cases`.
    """
    import pytest  # late: not a dependency, but installed where this is used

    test_file = sys._getframe(1).f_code.co_filename
    file, root = _located(os.fspath(path), test_file), project_root(os.path.dirname(os.path.abspath(test_file)))
    # The code of the test's project runs already, so that its datasets are trusted as well.
    options.setdefault("trust", () if is_too_wide(root) or not os.path.isdir(root) else root)
    try:
        with warnings.catch_warnings():
            # Default targets and evaluators do not matter: the test has its own.
            warnings.simplefilter("ignore", MissingSidecarWarning)
            all_cases = load_cases(file, **options)
    except AgentvError as error:
        raise pytest.Collector.CollectError(str(error)) from error
    several = len({case.path for case in all_cases}) > 1
    params = [pytest.param(case, id=f"{case.dataset}-{case.id}" if several else case.id) for case in all_cases]
    return pytest.mark.parametrize(argument, params)


def _located(path: str, test_file: str) -> str:
    """Return a path that can be opened from the working directory; unchanged if nothing is found."""
    if os.path.isabs(path) or os.path.exists(path) or any(char in path for char in "*?["):
        return path
    folder = os.path.dirname(os.path.abspath(test_file))
    places = (os.path.join(parent, path) for parent in upward(folder, project_root(folder)))
    return next((relative_path(place) for place in places if os.path.exists(place)), path)
