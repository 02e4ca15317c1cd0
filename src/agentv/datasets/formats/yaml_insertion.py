"""Adds one key to cases of a YAML file as text: every other byte of the file stays as it is."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import yaml

from agentv.datasets.case.keys import CASE_LIST_KEYS
from agentv.datasets.formats.yaml_parser import YamlError, composed, parse_yaml
from agentv.datasets.formats.yaml_writer import write_mapping
from agentv.model.values import to_json

_BOM = b"\xef\xbb\xbf"
_NEXT_TO = ("expected_outcome", "outcome", "criteria", "input", "id")
"""The key goes below the first of these whose value is written in the case itself, outside of a block scalar."""


def insert_key(data: bytes, key: str, values: Mapping[str, Any]) -> bytes:
    """The file with `key` in each case whose id is in `values`, unless it has the key. Raises ValueError."""
    bom = _BOM if data.startswith(_BOM) else b""
    try:
        text = data[len(bom) :].decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not written in UTF-8") from None
    new = text
    for case in reversed(_cases(composed(text))):
        own = {name.value: value for name, value in case.value}
        id = own["id"].value if isinstance(own.get("id"), yaml.ScalarNode) else ""
        if key not in own and values.get(id) is not None:
            place, added = _insertion(text, case, key, values[id])
            new = new[:place] + added + new[place:]
    # The file of the user is not changed on trust.
    if new != text and _without(text, key) != _without(new, key):
        raise ValueError("the text would not mean the same any more")
    return bom + new.encode("utf-8")


def _cases(root: Any) -> list[Any]:
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value in CASE_LIST_KEYS and isinstance(value, yaml.SequenceNode):
            return [case for case in value.value if isinstance(case, yaml.MappingNode)]
    return []


def _insertion(text: str, case: Any, key: str, value: Any) -> tuple[int, str]:
    """Where the key goes in the text of a case, and its text: first inside braces, else on lines of its own."""
    if case.flow_style:
        return text.index("{", case.start_mark.index) + 1, f'"{key}": {to_json(value).decode()}, '
    own = {name.value: (name, node) for name, node in case.value if isinstance(node, yaml.ScalarNode)}
    for name, node in (own[each] for each in _NEXT_TO if each in own):
        # The marks of an alias are those of what it stands for.
        if node.style not in ("|", ">") and node.start_mark.index >= name.end_mark.index <= case.end_mark.index:
            newline = "\r\n" if "\r\n" in text else "\n"
            block = _block(key, value, _column(text, name), newline)
            end = text.find("\n", node.end_mark.index)
            return (len(text), newline + block.removesuffix(newline)) if end < 0 else (end + 1, block)
    raise ValueError("a case has no plain key of its own to put it below")


def _column(text: str, name: Any) -> int:
    """Where the keys of a case begin; they may be written with a question mark before them."""
    mark = name.start_mark
    before = text[mark.index - mark.column : mark.index]
    return before.rindex("?") if before.rstrip().endswith("?") else int(mark.column)


def _block(key: str, value: Any, column: int, newline: str) -> str:
    stream = io.BytesIO()
    write_mapping({key: value}, stream)
    first, *rest = stream.getvalue().decode("utf-8").rstrip("\n").split("\n")
    return "".join(f"{' ' * column}{line}{newline}" for line in (first, *(f"  {line}" for line in rest)))


def _without(text: str, key: str) -> Any:
    """What a document means, but for the key in its cases; the text itself if it cannot be read."""
    try:
        document = parse_yaml(text.encode("utf-8"))
    except YamlError:
        return text
    for name in CASE_LIST_KEYS:
        for case in document.get(name, ()):
            if isinstance(case, dict):
                case.pop(key, None)
    return document
