"""Convert a dataset to another format, and verify the result by reading it back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from agentv.datasets.case.keys import CASE_LIST_KEYS, OUTCOME_KEYS
from agentv.datasets.case.shorthand import AGENTMARK
from agentv.datasets.dataset import Dataset, Options
from agentv.datasets.detection import unsupported
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.formats.dataset_format import Content, DatasetFormat, ReadOptions, Source
from agentv.datasets.formats.yaml_writer import WrittenInt
from agentv.datasets.loader import CaseSource, StrictSink, ignore
from agentv.datasets.selection import Selection
from agentv.errors import AgentvError, DatasetError, DatasetWarning, LossWarning, MappedNote, UsageError
from agentv.model.case import EvalCase


class ConvertedDataset(msgspec.Struct, frozen=True):
    """The files that were written, and the number of cases in them."""

    files: tuple[str, ...]
    cases: int


class Conversion:
    """A conversion of one dataset. Creating it checks the settings of the dataset and the output paths."""

    def __init__(self, source: Source, target: str, options: Options, *, overwrite: bool) -> None:
        self._source = source
        self._options = options
        names = formats.suggested(target)
        kind = next((each for each in names if type(formats.load_format(each)).write is not DatasetFormat.write), None)
        if kind is None:
            raise unsupported(target)
        self._target = formats.source_of(target, kind)
        self._dataset = Dataset(source, options, StrictSink(ignore))
        sidecar = (self._target.base + formats.SIDECAR_SUFFIXES[0],) if self._target.format.has_sidecar else ()
        self._outputs = (target, *sidecar)
        self._check_outputs(overwrite)
        self._before: Callable[[], Iterator[EvalCase]] | None = None

    def check(self) -> list[DatasetWarning]:
        """Read all cases, so that a dataset with an error is not converted. Return what is not kept, and notes."""
        found: list[DatasetWarning] = []
        cases = self._cases(self._source, found.append)
        if {os.path.realpath(path) for path in self._outputs} & {os.path.realpath(path) for path in self._source.files}:
            kept = list(cases)  # their file will be overwritten by the sidecar
            self._before = lambda: iter(kept)
        else:
            for _ in cases:
                pass
            self._before = lambda: self._cases(self._source)
        return [each for each in found if isinstance(each, MappedNote | LossWarning)]

    def run(self) -> ConvertedDataset:
        """Write the dataset and read it back. If that fails, restore the files that existed before."""
        if self._before is None:
            self.check()
        assert self._before is not None
        kept = {path: Path(path).read_bytes() for path in self._outputs if os.path.exists(path)}
        try:
            document = self._dataset.document if self._source.kind == self._target.kind else None
            content = Content(self._header(), self._rows(), document)
            self._target.format.write(content, self._target.path)
            return ConvertedDataset(self._outputs, self._compare(self._before))
        except BaseException as error:
            for path in self._outputs:
                with suppress(PermissionError):  # then nothing was written there
                    Path(path).unlink(missing_ok=True)
                    if path in kept:
                        Path(path).write_bytes(kept[path])
            if isinstance(error, OSError):
                raise UsageError(f"Cannot write {error.filename or self._outputs[0]}", error.strerror or "") from error
            raise

    def _check_outputs(self, overwrite: bool) -> None:
        inputs = {os.path.realpath(path) for path in self._source.files}
        sidecar = self._dataset.document.header_path
        for path in self._outputs:
            real = os.path.realpath(path)
            if real in inputs and (path == self._outputs[0] or not overwrite):
                hint = "Choose another name or folder"
                if path != self._outputs[0]:
                    hint += f", or --force to turn {path} into the sidecar of {self._outputs[0]}"
                raise UsageError(f"Writing {self._outputs[0]} would overwrite its source {path}", hint=hint)
            if os.path.isdir(path):
                raise UsageError(f"{path} is a folder", hint="Choose another name")
            if not overwrite and os.path.exists(path):
                what = f"{path} is the sidecar of {self._source.path}" if path == sidecar else f"{path} already exists"
                raise UsageError(what, hint="Choose another name, or --force to replace it")
        folder = os.path.dirname(self._outputs[0]) or "."
        if not os.path.isdir(folder):
            raise UsageError(f"No such folder: {folder}", hint=f"mkdir -p {folder}")

    def _header(self) -> dict[str, Any]:
        """Return the settings to write, including those implied by the file name or the rows."""
        left_out = (*CASE_LIST_KEYS, "dataset", "name")
        written = _plain(self._dataset.document.header)
        header: dict[str, Any] = {"dataset": self._dataset.header.dataset}
        header |= {key: value for key, value in written.items() if key not in left_out}
        if self._dataset.is_agentmark:
            header["format"] = AGENTMARK
        if self._dataset.header.inherit_evaluators:  # only the default under `tests`
            header["execution"] = {**header.get("execution", {}), "inherit_evaluators": True}
        return header

    def _rows(self) -> Iterator[tuple[dict[str, Any], bytes | None]]:
        """Yield the rows as plain data, each with its JSON text if the source is JSONL.

        An outcome that is optional under `tests` is written out, because other formats require it.
        """
        document = self._dataset.document
        lists_tests = document.lists_tests and not self._dataset.is_agentmark
        options = ReadOptions(max_line_bytes=self._options.max_line_bytes)
        for batch in self._source.format.read(document, options):
            for offset, row in enumerate(batch.rows):
                if row is not None:
                    data = _plain(row)
                    if lists_tests and all(data.get(key) is None for key in OUTCOME_KEYS):
                        data["expected_outcome"] = ""
                    yield data, batch.lines[offset] if batch.lines else None

    def _compare(self, cases: Callable[[], Iterator[EvalCase]]) -> int:
        """Return the number of cases, after checking that each equals its source."""
        count = 0
        before, after = cases(), self._cases(self._target)
        while True:
            try:
                old, new = next(before, None), next(after, None)
            except DatasetError as error:
                message = f"Cannot read {self._target.path} back; it was removed"
                hint = "Files in cases are looked up next to the dataset: write the output to the same folder"
                raise AgentvError(message, error.detail or error.headline, hint) from None
            if old is None and new is None:
                return count
            if old != new or old is None or new is None or old.dataset != new.dataset:
                raise RuntimeError(f"case {count + 1} of {self._source.path} changed in {self._target.path}")
            count += 1

    def _cases(self, source: Source, warn: Callable[[DatasetWarning], None] = ignore) -> Iterator[EvalCase]:
        return CaseSource((source,), self._options, Selection(), StrictSink(warn)).stream()


def _plain(value: Any, key: str = "") -> Any:
    """Return data without line numbers. An id keeps the digits it was written with."""
    if isinstance(value, dict):
        return {name: _plain(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, WrittenInt):
        return value.written if key == "id" else int(value)
    return value
