"""One dataset in another of our formats: the same keys and values, read back and compared before it counts as done."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from agentv.datasets.case.header import AGENTMARK
from agentv.datasets.case.keys import CASE_LIST_KEYS
from agentv.datasets.dataset import OpenDataset, Options
from agentv.datasets.formats.jsonl import read_lines
from agentv.datasets.formats.lines import open_for_writing
from agentv.datasets.formats.yaml_parser import Map
from agentv.datasets.formats.yaml_scalars import WrittenInt
from agentv.datasets.formats.yaml_writer import write_mapping, write_yaml
from agentv.datasets.loader import CaseSource, Stopping
from agentv.datasets.selection import Selection
from agentv.datasets.source import Source, base_of, require_kind
from agentv.errors import AgentvError, DatasetError, DatasetWarning, UsageError
from agentv.model.case import EvalCase
from agentv.model.values import to_json

_OUTCOMES = ("expected_outcome", "outcome", "criteria")


class Converted(msgspec.Struct, frozen=True):
    """What was written."""

    files: tuple[str, ...]
    cases: int


class Conversion:
    """A dataset that was read without an error, and the place where it is to be written."""

    def __init__(self, source: Source, target: str, options: Options, *, overwrite: bool) -> None:
        self._source = source
        self._options = options
        self._target = Source((target,), base_of(target), require_kind(target))
        self._dataset = OpenDataset(source, options, Stopping(_ignore))
        self._outputs = self._output_files()
        self._check_outputs(overwrite)

    def run(self) -> Converted:
        """Writes and reads back. What was there before comes back when anything goes wrong."""
        before = self._checked_cases()
        kept = {path: Path(path).read_bytes() for path in self._outputs if os.path.exists(path)}
        try:
            self._write()
            return Converted(self._outputs, self._compare(before))
        except BaseException as error:
            self._put_back(kept)
            if isinstance(error, OSError):
                raise UsageError(f"Cannot write {error.filename or self._outputs[0]}", error.strerror or "") from error
            raise

    def _put_back(self, kept: dict[str, bytes]) -> None:
        for path in self._outputs:
            with suppress(PermissionError):  # then nothing was written there
                Path(path).unlink(missing_ok=True)
                if path in kept:
                    Path(path).write_bytes(kept[path])

    def _checked_cases(self) -> Callable[[], Iterator[EvalCase]]:
        """The cases to compare with, after all were read: a dataset with an error in it is not converted at all."""
        cases = self._cases(self._source)
        if {os.path.realpath(path) for path in self._outputs} & {os.path.realpath(path) for path in self._source.files}:
            held = list(cases)  # the file they come from is about to become the sidecar
            return lambda: iter(held)
        for _ in cases:
            pass
        return lambda: self._cases(self._source)

    def _output_files(self) -> tuple[str, ...]:
        path = self._target.files[0]
        return (path,) if self._target.kind == "yaml" else (path, self._target.base + ".yaml")

    def _check_outputs(self, overwrite: bool) -> None:
        inputs = {os.path.realpath(path) for path in self._source.files}
        sidecar = self._dataset.document.header_path
        for path in self._outputs:
            real = os.path.realpath(path)
            if real in inputs and (path == self._outputs[0] or not overwrite):
                hint = "Choose another name or folder"
                if path != self._outputs[0]:
                    hint += f", or --force to turn {path} into the sidecar of {self._outputs[0]}"
                raise UsageError(f"Writing {self._outputs[0]} would replace what it is made from: {path}", hint=hint)
            if os.path.isdir(path):
                raise UsageError(f"{path} is a folder", hint="Choose another name")
            if not overwrite and os.path.exists(path):
                what = f"{path} is the sidecar of {self._source.path}" if path == sidecar else f"{path} exists already"
                raise UsageError(what, hint="Choose another name, or --force to replace it")
        folder = os.path.dirname(self._outputs[0]) or "."
        if not os.path.isdir(folder):
            raise UsageError(f"No such folder: {folder}", hint=f"mkdir -p {folder}")

    def _write(self) -> None:
        header = self._header()
        path = self._outputs[0]
        if self._source.kind == self._target.kind == "yaml" and (text := self._with_name()) is not None:
            Path(path).write_bytes(text)
        elif self._target.kind == "yaml":
            with open_for_writing(path) as stream:
                write_yaml(header, CASE_LIST_KEYS[0], self._rows(), stream)
        else:
            with open_for_writing(path) as stream:
                for line in self._lines():
                    stream.write(line + b"\n")
            with Path(self._outputs[1]).open("wb") as stream:
                write_mapping(header, stream)

    def _header(self) -> dict[str, Any]:
        """The keys around the cases; what the file's name or its rows implied is written out."""
        written = _plain(self._dataset.document.header)
        header = {key: value for key, value in written.items() if key not in CASE_LIST_KEYS}
        named = ("dataset", "name")
        header = {"dataset": self._dataset.header.dataset} | {k: v for k, v in header.items() if k not in named}
        if self._dataset.agentmark:
            header["format"] = AGENTMARK
        return header

    def _with_name(self) -> bytes | None:
        """The YAML text itself, comments and all, with the implied name put in; None when it cannot be put in."""
        text = Path(self._source.files[0]).read_bytes()
        document = self._dataset.document.header
        if any(isinstance(document.get(key), str) and document[key].strip() for key in ("dataset", "name")):
            return text
        assert isinstance(document, Map)
        first = min((mark.line for mark in document.keys_at.values()), default=None)
        if first is None or any(mark.column for mark in document.keys_at.values()) or "dataset" in document:
            return None
        lines = text.split(b"\n")
        end = b"\r" if lines[0].endswith(b"\r") else b""
        named = io.BytesIO()
        write_mapping({"dataset": self._dataset.header.dataset}, named)
        return b"\n".join([*lines[:first], named.getvalue().rstrip(b"\n") + end, *lines[first:]])

    def _rows(self) -> Iterator[dict[str, Any]]:
        """The rows as they were written, as plain data."""
        document = self._dataset.document
        if document.cases is not None:
            for row in document.cases:
                yield self._self_standing(_plain(row))
            return
        for line in self._raw_lines():
            yield msgspec.json.decode(line)

    def _lines(self) -> Iterator[bytes]:
        if self._source.kind == "jsonl":
            yield from self._raw_lines()
            return
        for row in self._rows():
            yield to_json(row)

    def _raw_lines(self) -> Iterator[bytes]:
        for file in self._source.files:
            for number, line in read_lines(file, self._options.max_line_bytes):
                assert isinstance(line, bytes)
                text = line.strip(b" \t\r")
                if text:
                    yield text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text

    def _self_standing(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row that no longer leans on the document it stood in: under `tests` an outcome may be left out."""
        lists_tests = self._dataset.document.lists_tests and not self._dataset.agentmark
        if lists_tests and all(row.get(key) is None for key in _OUTCOMES):
            return {**row, "expected_outcome": ""}
        return row

    def _compare(self, cases: Callable[[], Iterator[EvalCase]]) -> int:
        """How many cases there are, after each was found equal to the one it came from."""
        count = 0
        before, after = cases(), self._cases(self._target)
        while True:
            try:
                old, new = next(before, None), next(after, None)
            except DatasetError as error:
                message = f"{self._target.path} cannot be read back, and was not kept"
                hint = "Files that the cases name are looked up next to the dataset: convert inside the same folder"
                raise AgentvError(message, f"{error.detail or error.headline}", hint) from None
            if old is None and new is None:
                return count
            if old != new or old is None or new is None or old.dataset != new.dataset:
                raise RuntimeError(f"case {count + 1} of {self._source.path} changed in {self._target.path}")
            count += 1

    def _cases(self, source: Source) -> Iterator[EvalCase]:
        return CaseSource((source,), self._options, Selection(), Stopping(_ignore)).stream()


def _plain(value: Any, key: str = "") -> Any:
    """Data without its lines. An id keeps the digits it was written with."""
    if isinstance(value, dict):
        return {name: _plain(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, WrittenInt):
        return value.written if key == "id" else int(value)
    return value


def _ignore(warning: DatasetWarning) -> None:
    pass
