"""The YAML dataset format: one mapping with a list of cases under one of its keys."""

import io
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from agentv.datasets.case.keys import CASE_LIST_KEYS
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.formats.case_files import CaseFile, files_named, folders_without_case, is_reference, read_cases
from agentv.datasets.formats.dataset_format import BadRow, Batch, Content, DatasetFormat, Document, ReadOptions, Source
from agentv.datasets.formats.foreign_files import ADVICE, hint_for, name_of_document
from agentv.datasets.variables import MARK, insert_environment
from agentv.errors import DatasetError, DatasetParseError, DatasetWarning, InvalidDatasetError, LossWarning
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import nearest, type_word
from agentv.model.evaluator import Verdicts
from agentv.model.values import to_json
from agentv.support.yaml.yaml_file import parse_yaml_file, read_yaml_file
from agentv.support.yaml.yaml_parser import Map, Seq, YamlError, composed, locate, parse_yaml
from agentv.support.yaml.yaml_writer import write_yaml

_BOM = b"\xef\xbb\xbf"
_ANCHOR_KEYS = ("expected_outcome", "outcome", "criteria", "input", "id")
"""A new key goes below the first of these whose value is written in the case itself and is not a block scalar."""


def _cases(root: Any) -> list[Any]:
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value in CASE_LIST_KEYS and isinstance(value, yaml.SequenceNode):
            return [case for case in value.value if isinstance(case, yaml.MappingNode)]
    return []


def _insertion(text: str, case: Any, key: str, value: Any) -> tuple[int, str]:
    """Return the position of a new key in the text of a case, and the text to insert."""
    if case.flow_style:
        return text.index("{", case.start_mark.index) + 1, f'"{key}": {to_json(value).decode()}, '
    own = {name.value: (name, node) for name, node in case.value if isinstance(node, yaml.ScalarNode)}
    for name, node in (own[anchor] for anchor in _ANCHOR_KEYS if anchor in own):
        # An alias has the marks of its anchor, which may be outside this case.
        if node.style not in ("|", ">") and node.start_mark.index >= name.end_mark.index <= case.end_mark.index:
            newline = "\r\n" if "\r\n" in text else "\n"
            first, *rest = _to_yaml({key: value}).decode("utf-8").split("\n")
            indent = " " * _column(text, name)
            block = newline.join([indent + first, *(f"{indent}  {line}" for line in rest)])
            end = text.find("\n", node.end_mark.index)
            return (len(text), newline + block) if end < 0 else (end + 1, block + newline)
    raise ValueError("a case has no plain key to insert it after")


def _column(text: str, name: Any) -> int:
    """Return the column where the keys of a case begin, which may be that of a `?` before the key."""
    mark = name.start_mark
    before = text[mark.index - mark.column : mark.index]
    return before.rindex("?") if before.rstrip().endswith("?") else int(mark.column)


def _to_yaml(data: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    write_yaml(data, stream)
    return stream.getvalue().rstrip(b"\n")


def _without(text: str, key: str) -> Any:
    """Return the data of a document without `key` in its cases, or the text itself if it cannot be parsed."""
    try:
        document = parse_yaml(text.encode("utf-8"))
    except YamlError:
        return text
    for name in CASE_LIST_KEYS:
        for case in document.get(name, ()):
            if isinstance(case, dict):
                case.pop(key, None)
    return document


_STATUS_NOTE = (
    "threshold {:g} of the suite: AgentV (TypeScript) stores tests that score below 0.8 as failed, and passes them in "
    "its summary. Here they pass"
)


_CASE_LIST = lazy_regex(rb"""(?m)^["']?(?:%s)["']?\s*:""" % "|".join(CASE_LIST_KEYS).encode())
_CASE_LIST_KEYS = frozenset(CASE_LIST_KEYS)
_OTHER_FILES = lazy_regex(
    rb"""(?m)(?:(?:^|[{,][ \t]*)["']?(?:%s)["']?[ \t]*:[ \t]*["']?[^\s\[{"'#|>&*]|file://)"""
    % "|".join(CASE_LIST_KEYS).encode()
)
"""Text of a document that may read cases from other files."""


class _Yaml(DatasetFormat):
    suffixes = (".yaml", ".yml")
    strength = 0.6

    def sniff(self, head: bytes, path: str) -> bool:  # noqa: ARG002
        return _has_case_list(head) or not _CASE_LIST_KEYS.isdisjoint(formats.object_keys(head))

    def files(self, path: str) -> tuple[str, ...]:
        """Return the document and the files it reads cases from; problems with those are reported when it is read."""
        try:
            if _OTHER_FILES.search(read_yaml_file(path)):
                data = parse_yaml_file(path)
                key = case_list_key(data)
                return (path, *(file.path for file in files_named(data[key], path))) if key else (path,)
        except DatasetError:
            pass
        return (path,)

    def open(self, source: Source) -> Document:
        """Parse the whole document: YAML cannot be streamed by line."""
        path = source.files[0]
        data = parse_yaml_file(path)
        key = case_list_key(data)
        headline = f"Invalid dataset: {path}"
        if isinstance(data, Seq) and _are_cases(data):
            return Document(source, parse_yaml(b"{}"), path, lists_tests=True, cases=data)
        if not isinstance(data, Map):
            what = "the file is empty" if data is None else f"got {type_word(data)}"
            hint = hint_for(path, read_yaml_file(path), _keys(data)) or "Put the cases in a list under 'evalcases:'"
            if isinstance(data, Seq) and "--guess" not in hint:
                hint += f"\nFor records with other names: agentv cases {path} --guess"
            raise InvalidDatasetError(headline, f"Expected a mapping with 'evalcases', {what}", hint, path=path, line=1)
        if key is None:
            what, hint = "Missing required field: 'evalcases'", _missing_list_hint(path, data)
            raise InvalidDatasetError(headline, what, hint, path=path, line=1, field="evalcases")
        if (name := name_of_document(data)) and "targets file" not in name:
            hint = ADVICE.get(name, "List its cases under 'evalcases:' of a new file")
            what = f"This looks like {name}"
            raise InvalidDatasetError(headline, what, hint, path=path, line=1)
        names = [name for name in data if name in CASE_LIST_KEYS]
        if len(names) > 1:
            what = f"The cases are listed twice, under '{names[0]}' and '{names[1]}'"
            line = data.marks[names[1]].line + 1
            raise InvalidDatasetError(headline, what, "Keep one list", path=path, line=line, field=names[1])
        if not isinstance(data[key], Seq | str) or data[key] == "":
            raise _wrong_list(path, data, key)
        warnings: list[DatasetWarning] = []
        if key == "tests":
            data = _with_environment(data, path, os.path.dirname(path), warnings)
        cases = data[key]
        skipped = (f"{folder}: passed over, no case.yaml" for folder in folders_without_case(cases, path))
        warnings += [DatasetWarning(message, path=path) for message in skipped]
        header = data.without(CASE_LIST_KEYS)
        gate = self.suite_gate(source)
        if gate is not None and gate.threshold is not None and gate.threshold < Verdicts().passing:
            warnings.append(LossWarning(_STATUS_NOTE.format(gate.threshold), path=path))
        return Document(source, header, path, lists_tests=key == "tests", cases=cases, warnings=tuple(warnings))

    def targets(self, source: Source) -> list[dict[str, Any]]:
        """Return the names that `execution.targets` of the dataset gives to other targets, as AgentV (TypeScript)."""
        if b"use_target" not in read_yaml_file(source.files[0]):
            return []
        data = parse_yaml_file(source.files[0])
        execution = data.get("execution") if isinstance(data, dict) else None
        entries = execution.get("targets") if isinstance(execution, dict) else None
        return [
            {"name": entry["name"], "use_target": entry["use_target"]}
            for entry in (entries if isinstance(entries, list) else ())
            if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry.get("use_target")
        ]

    def suite_gate(self, source: Source) -> formats.SuiteGate | None:
        """Return the gate of a document with `tests`: its threshold, and the strategy of its trials."""
        try:
            data = parse_yaml_file(source.files[0])
        except DatasetError:  # reported when the file is read
            return None
        if case_list_key(data) != "tests":
            return None
        execution = data.get("execution")
        limit, trials = map(execution.get, ("threshold", "trials")) if isinstance(execution, Map) else (None, None)
        threshold = float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None
        strategy = trials.get("strategy") or "pass_at_k" if isinstance(trials, Map) else "mean"
        return formats.SuiteGate(threshold, strategy)

    def read(self, document: Document, options: ReadOptions) -> Iterator[Batch]:
        """Yield one batch per case: cases may be any number of lines apart."""
        path, cases = document.source.files[0], document.cases
        if isinstance(cases, str):
            line = next(mark.line + 1 for key, mark in document.header.marks.items() if key in CASE_LIST_KEYS)  # type: ignore[attr-defined]
            for file in files_named(cases, path, line):
                yield from read_cases(file, options, _parse_cases)
            return
        for index, case in enumerate(cases):
            if is_reference(case):
                item = Seq([case])
                item.start, item.marks = cases.start, [cases.marks[index]]
                for file in files_named(item, path):
                    yield from read_cases(file, options, _parse_cases)
                continue
            mark = locate(cases, (index,))
            yield Batch(path, mark.line if mark else 1, [case if isinstance(case, Map) else _bad_row(case)])

    def write(self, content: Content, path: str) -> None:
        """Write a document. If the source was YAML, keep its text and comments, and add the implied dataset name."""
        own = content.document
        text = _with_name(own, content.header["dataset"]) if own is not None and len(own.source.files) == 1 else None
        with Path(path).open("wb") as stream:
            if text is not None:
                stream.write(text)
            else:
                write_yaml({**content.header, CASE_LIST_KEYS[0]: (row.data for row in content.rows)}, stream)

    def insert(self, data: bytes, key: str, values: Mapping[str, Any]) -> bytes:
        """Add `key` to each case that lacks it and whose id is in `values`. Raises ValueError."""
        bom = _BOM if data.startswith(_BOM) else b""
        try:
            text = data[len(bom) :].decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("the file is not UTF-8 text") from None
        new = text
        for case in reversed(_cases(composed(text))):
            own = {name.value: value for name, value in case.value}
            id = own["id"].value if isinstance(own.get("id"), yaml.ScalarNode) else ""
            if key not in own and values.get(id) is not None:
                place, added = _insertion(text, case, key, values[id])
                new = new[:place] + added + new[place:]
        # Verify the edit: nothing but the new key may change in the user's file.
        if new != text and _without(text, key) != _without(new, key):
            raise ValueError("the edit would change other values in the file")
        return bom + new.encode("utf-8")

    def why_not(self, path: str) -> str | None:
        """Reject files without a list of cases. A misspelt list key is accepted here and reported by the reader."""
        if _has_case_list(read_yaml_file(path)):
            return None
        try:
            data = parse_yaml_file(path)
        except DatasetParseError:
            return "no list of cases"
        return None if case_list_key(data) is not None or _misspells_cases(data) else "no list of cases"


YAML = _Yaml()


def case_list_key(data: Any) -> str | None:
    """Return the key under which a document lists its cases."""
    return next((key for key in CASE_LIST_KEYS if key in data), None) if isinstance(data, dict) else None


def _has_case_list(data: bytes) -> bool:
    # Without its byte order mark and zero bytes, UTF-16 looks like ASCII.
    return _CASE_LIST.search(data.removeprefix(_BOM).lstrip(b"\xff\xfe").replace(b"\0", b"")) is not None


def _are_cases(data: Seq) -> bool:
    """Whether a list without a key is a file of cases of AgentV (TypeScript)."""
    checks = {"criteria", "expected_output", "assert", "assertions"}
    return bool(data) and all(
        isinstance(case, Map) and {"id", "input"} <= case.keys() and checks & case.keys() for case in data
    )


def _keys(data: Any) -> Collection[str]:
    """Return the keys of the first row of a list."""
    return data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else ()


def _with_environment(data: Any, path: str, folder: str, losses: list[DatasetWarning]) -> Any:
    return insert_environment(data, path, folder, losses=losses) if MARK in read_yaml_file(path) else data


def _parse_cases(file: CaseFile, losses: list[DatasetWarning]) -> Any:
    return _with_environment(parse_yaml_file(file.path), file.path, file.document_folder, losses)


def _bad_row(case: Any) -> BadRow:
    hint = "Each case is a mapping with 'id', 'input' and so on, or the name of a file such as file://cases.yaml"
    return BadRow(f"Expected an object, got {type_word(case)}", hint=hint)


def _misspells_cases(data: Any) -> bool:
    return isinstance(data, dict) and any(
        isinstance(item, dict) and "id" in item and not item.keys().isdisjoint(("input", "input_messages"))
        for key, items in data.items()
        if isinstance(items, list) and nearest(key, CASE_LIST_KEYS)
        for item in items
    )


def _with_name(document: Document, name: str) -> bytes | None:
    """Return the text of a document, with a name added if it has none; None if a name cannot be added."""
    text = Path(document.source.files[0]).read_bytes()
    header: Any = document.header
    if any(isinstance(header.get(key), str) and header[key].strip() for key in ("dataset", "name")):
        return text
    marks = header.marks.values()
    if not marks or any(mark.column for mark in marks) or "dataset" in header:
        return None
    first = min(mark.line for mark in marks)
    lines = text.split(b"\n")
    end = b"\r" if lines[0].endswith(b"\r") else b""
    return b"\n".join([*lines[:first], _to_yaml({"dataset": name}) + end, *lines[first:]])


def _missing_list_hint(path: str, data: Map) -> str:
    if data_paths := formats.data_files(path):
        noun = "that file" if len(data_paths) == 1 else "those files"
        return f"This is the sidecar of {', '.join(data_paths[:3])}: pass {noun} instead"
    if other := hint_for(path, b"", data):
        return other
    if near := next((key for key in data if nearest(key, CASE_LIST_KEYS)), None):
        return f"Did you mean '{nearest(near, CASE_LIST_KEYS)}' instead of '{near}'?"
    return f"List the cases under 'evalcases:' ({', '.join(CASE_LIST_KEYS[1:])} also work)"


def _wrong_list(path: str, data: Map, key: str) -> InvalidDatasetError:
    value = data[key]
    hint = "List the cases, or name a file or folder with cases"
    line, column = data.marks[key].line + 1, data.marks[key].column + 1
    headline = f"Invalid dataset at line {line} in {path}"
    what = f"Field '{key}' must be an array, got {type_word(value)}"
    return InvalidDatasetError(headline, what, hint, path=path, line=line, column=column, field=key)
