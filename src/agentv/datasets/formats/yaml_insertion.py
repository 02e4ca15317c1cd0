"""Adds one key to cases of a YAML file as text: everything else in the file stays as it is, to the byte."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from agentv.datasets.case.keys import CASE_LIST_KEYS
from agentv.datasets.formats.yaml_parser import YamlError, composed, parse_yaml
from agentv.datasets.formats.yaml_writer import write_mapping
from agentv.model.values import to_json

_BOM = b"\xef\xbb\xbf"
_BESIDE = ("expected_outcome", "outcome", "criteria", "input", "id")
"""The key goes behind the first of these that stands in the case itself, with a value that is one scalar."""


class CannotInsert(ValueError):
    """A file or case that text cannot be put into; the message says why."""


class _Insertion(NamedTuple):
    place: int
    text: str


def insert_key(data: bytes, key: str, values: Mapping[str, Any]) -> bytes:
    """The file with `key` in each case whose id is in `values`. Cases that have the key are left alone.

    Line ends, indentation, comments, anchors, a byte order mark and the lack of a last newline stay.
    """
    bom = _BOM if data.startswith(_BOM) else b""
    try:
        text = data[len(bom) :].decode("utf-8")
    except UnicodeDecodeError:
        raise CannotInsert("it is not written in UTF-8") from None
    root = composed(text)
    insertions = [
        _insertion(text, case, key, value, layout)
        for case, layout in _cases(text, root)
        if _own(case, key) is None and (value := values.get(_id(case))) is not None
    ]
    new = text
    for place, added in sorted(insertions, reverse=True):
        new = new[:place] + added + new[place:]
    if insertions and not _says_the_same(text, new, key):
        raise CannotInsert("the text would not mean the same any more")
    return bom + new.encode("utf-8")


def _says_the_same(old: str, new: str, key: str) -> bool:
    """Whether both texts are the same but for the key: nobody's dataset is changed on trust."""
    before, after = _read(old), _read(new)
    return before is not None and after is not None and _without(before, key) == _without(after, key)


def _read(text: str) -> Any:
    try:
        return parse_yaml(text.encode("utf-8"))
    except YamlError:
        return None


def _without(document: Any, key: str) -> Any:
    if not isinstance(document, dict):
        return document
    return {
        name: [{k: v for k, v in case.items() if k != key} if isinstance(case, dict) else case for case in value]
        if name in CASE_LIST_KEYS and isinstance(value, list)
        else value
        for name, value in document.items()
    }


class _Layout(NamedTuple):
    """How far a list stands in from its key, and its items from their dashes."""

    dash: int
    item: int


def _cases(text: str, root: Any) -> list[tuple[Any, _Layout]]:
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value in CASE_LIST_KEYS and isinstance(value, yaml.SequenceNode):
            return [(case, _layout(text, key, value)) for case in value.value if isinstance(case, yaml.MappingNode)]
    return []


def _layout(text: str, key: Any, cases: Any) -> _Layout:
    """That of the list of cases, so that new lists look as the old ones do."""
    first = cases.value[0]
    line = text[text.rfind("\n", 0, first.start_mark.index) + 1 : first.start_mark.index]
    dash = line.find("-")
    if cases.flow_style or dash < 0 or line.strip() != "-":
        return _Layout(2, 2)
    return _Layout(max(0, dash - key.start_mark.column), max(2, first.start_mark.column - dash))


def _own(case: Any, key: str) -> Any:
    return next((value for name, value in case.value if name.value == key), None)


def _id(case: Any) -> str:
    found = _own(case, "id")
    return found.value if isinstance(found, yaml.ScalarNode) else ""


def _insertion(text: str, case: Any, key: str, value: Any, layout: _Layout) -> _Insertion:
    if case.flow_style:
        end = _end_in_text(case, len(case.value) - 1)
        if end is None:
            raise CannotInsert(f"the case '{_id(case)}' ends in an alias inside braces; write it out")
        quoted = f"{key}: {to_json(value).decode()}"
        return _Insertion(end, f", {quoted}")
    for name in _BESIDE:
        for index, (found, node) in enumerate(case.value):
            if found.value == name and isinstance(node, yaml.ScalarNode):
                end = _end_in_text(case, index)
                if end is not None:
                    return _after_line(text, end, node, _column(text, case), key, value, layout)
    raise CannotInsert(f"the case '{_id(case)}' has no plain key of its own to put it behind")


def _column(text: str, case: Any) -> int:
    """Where the keys of a case begin; the first may be written with a question mark before it."""
    mark = case.value[0][0].start_mark
    before = text[mark.index - mark.column : mark.index]
    return before.rindex("?") if before.rstrip().endswith("?") else int(mark.column)


def _end_in_text(case: Any, index: int) -> int | None:
    """Where a value ends; None for an alias, whose marks are those of what it stands for."""
    key, node = case.value[index]
    following = case.value[index + 1][0].start_mark.index if index + 1 < len(case.value) else case.end_mark.index
    inside = key.end_mark.index <= node.start_mark.index and node.end_mark.index <= following
    return node.end_mark.index if inside else None


def _after_line(text: str, end: int, node: Any, column: int, key: str, value: Any, layout: _Layout) -> _Insertion:
    """On lines of its own, behind the last line of a value and what is commented there."""
    if node.style in ("|", ">"):
        # The value of a block ends before the next key; blank lines behind it belong to whatever follows.
        end = len(text[:end].rstrip(" \n\r") if not _keeps_blank_lines(text, node) else text[:end].rstrip(" "))
    newline = "\r\n" if "\r\n" in text else "\n"
    block = _block(key, value, column, layout, newline)
    line_end = text.find("\n", max(0, end - 1) if text[max(0, end - 1) : end] == "\n" else end)
    if line_end < 0:
        return _Insertion(len(text), newline + block.removesuffix(newline))
    return _Insertion(line_end + 1, block)


def _keeps_blank_lines(text: str, node: Any) -> bool:
    head = text[node.start_mark.index : text.find("\n", node.start_mark.index)]
    return "+" in head.split("#", 1)[0]


def _block(key: str, value: Any, column: int, layout: _Layout, newline: str) -> str:
    stream = io.BytesIO()
    write_mapping({key: value}, stream)
    first, *rest = stream.getvalue().decode("utf-8").rstrip("\n").split("\n")
    lines = [" " * column + first]
    for line in rest:
        dash, item = (line[:1], line[2:]) if line.startswith("- ") else (" ", line[2:])
        lines.append(" " * (column + layout.dash) + dash.ljust(layout.item) + item)
    return newline.join(lines) + newline
