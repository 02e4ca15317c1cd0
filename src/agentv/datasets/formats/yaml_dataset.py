"""YAML files as datasets and as settings: one mapping, with the list of cases under one of its names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.datasets.case.keys import CASE_LIST_KEYS
from agentv.datasets.formats.rows import BadRow, Batch, Document
from agentv.datasets.formats.yaml_parser import Map, Seq, YamlError, locate, parse_yaml
from agentv.datasets.source import Source, base_of, data_files
from agentv.errors import DatasetNotFoundError, DatasetParseError, InvalidDatasetError
from agentv.settings.diagnostics import nearest, type_word

_LFS = b"version https://git-lfs.github.com/spec/"


def open_document(source: Source) -> Document:
    """Parses the whole document: YAML cannot be read by lines."""
    path = source.files[0]
    data = parse_yaml_file(path)
    key = case_list_key(data)
    if not isinstance(data, Map):
        found = "the file is empty" if data is None else f"got {type_word(data)}"
        hint = "Put the cases into a list under 'evalcases:'"
        raise InvalidDatasetError(
            f"Invalid dataset: {path}", f"Expected a mapping with 'evalcases', {found}", hint, path=path, line=1
        )
    if key is None:
        raise _missing_list(path, data)
    if sum(name in data for name in CASE_LIST_KEYS) > 1:
        raise _two_lists(path, data)
    if not isinstance(data[key], Seq):
        raise _wrong_list(path, data, key)
    return Document(source, _without_cases(data), path, lists_tests=key == "tests", cases=data[key])


def batches(document: Document, *, plain: bool, max_line_bytes: int) -> Iterator[Batch]:  # noqa: ARG001
    """One batch per case: cases stand on lines of their own, any distance apart."""
    path = document.source.files[0]
    for index, case in enumerate(document.cases):
        mark = locate(document.cases, (index,))
        yield Batch(path, mark.line if mark else 1, [_row(case)])


def _row(case: Any) -> Any:
    if isinstance(case, Map):
        return case
    if isinstance(case, str) and case.startswith("file://"):
        return BadRow(
            "Expected an object, got string", hint="Cases in other files are not read: name those files instead"
        )
    return BadRow(
        f"Expected an object, got {type_word(case)}", hint="Each case is a mapping with 'id', 'input' and so on"
    )


def case_list_key(data: Any) -> str | None:
    """The name under which a document lists its cases."""
    return next((key for key in CASE_LIST_KEYS if key in data), None) if isinstance(data, dict) else None


def parse_yaml_file(path: str) -> Any:
    """A YAML file as data that knows its lines. Raises DatasetParseError in the shape all parse errors have."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DatasetNotFoundError(f"Cannot read {path}: {error.strerror or error}", path=path) from None
    headline = f"Failed to parse YAML file: {path}"
    if data.startswith(_LFS):
        what, hint = "The file is a Git LFS pointer, not the data", "Run `git lfs pull` to fetch the data"
        raise DatasetParseError(headline, what, hint, path=path, line=1)
    try:
        return parse_yaml(data)
    except YamlError as error:
        at = "" if error.column is None else f", at column {error.column}"
        detail = f"Line {error.line}: Invalid YAML - {error.what}{at}"
        raise DatasetParseError(headline, detail, error.hint, path=path, line=error.line, column=error.column) from None


def _without_cases(data: Map) -> Map:
    header = Map({key: value for key, value in data.items() if key not in CASE_LIST_KEYS})
    header.start, header.keys_at = data.start, data.keys_at
    return header


def _two_lists(path: str, data: Map) -> InvalidDatasetError:
    names = [name for name in data if name in CASE_LIST_KEYS]
    mark = locate(data, (names[1],))
    detail = f"The cases are listed twice, under '{names[0]}' and '{names[1]}'"
    return InvalidDatasetError(
        f"Invalid dataset: {path}", detail, "Keep one list", path=path, line=mark.line if mark else 1, field=names[1]
    )


def _missing_list(path: str, data: Map) -> InvalidDatasetError:
    hint = f"List the cases under 'evalcases:' ({', '.join(CASE_LIST_KEYS[1:])} are read as the same)"
    beside = data_files(base_of(path))
    near = next((key for key in data if nearest(key, CASE_LIST_KEYS)), None)
    if beside:
        those = "that file" if len(beside) == 1 else "those files"
        hint = f"This is the sidecar of {', '.join(beside[:3])}: name {those} instead"
    elif near:
        hint = f"Did you mean '{nearest(near, CASE_LIST_KEYS)}' by '{near}'?"
    return InvalidDatasetError(
        f"Invalid dataset: {path}", "Missing required field: 'evalcases'", hint, path=path, line=1, field="evalcases"
    )


def _wrong_list(path: str, data: Map, key: str) -> InvalidDatasetError:
    value = data[key]
    hint = "Cases in another file are not read: name that file on the command line" if isinstance(value, str) else ""
    mark = locate(data, (key,))
    return InvalidDatasetError(
        f"Invalid dataset at line {mark.line if mark else 1} in {path}",
        f"Field '{key}' must be an array, got {type_word(value)}",
        hint,
        path=path,
        line=mark.line if mark else 1,
        column=mark.column if mark else None,
        field=key,
    )
