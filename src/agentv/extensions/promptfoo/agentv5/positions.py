"""Positions in a suite of AgentV (TypeScript) 5: of the tests as they are written, and of what a message quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentv.errors import InvalidDatasetError
from agentv.support.yaml.yaml_parser import Map, Seq, locate

_QUOTED = re.compile(r"'([^']+)'")


def with_positions(value: Any, node: Any) -> Any:
    """Return a value with the positions of the node that it was made of. Items before those of a list have none."""
    if isinstance(node, Map) and isinstance(value, dict):
        return node.with_values({key: with_positions(item, node.get(key)) for key, item in value.items()})
    if isinstance(node, Seq) and isinstance(value, list) and len(value) >= len(node):
        before = len(value) - len(node)
        items = Seq([*value[:before], *map(with_positions, value[before:], node)])
        items.start, items.marks = node.start, [node.start] * before + list(node.marks)
        return items
    return value


def placed_list(items: list[Any]) -> list[Any]:
    """Return a list of nodes with their positions, if all of them have one."""
    if not items or not all(isinstance(item, Map) for item in items):
        return items
    placed = Seq(items)
    placed.marks = [item.start for item in items]
    placed.start = placed.marks[0]
    return placed


def placed_row(row: dict[str, Any], node: Any, names: dict[str, str]) -> dict[str, Any]:
    """Return a row at the position of a node. `names` are keys of the row, and those of the node they were made of."""
    if not isinstance(node, Map):
        return row
    placed = Map(row)
    placed.start = node.start
    placed.marks = {**node.marks, **{key: node.marks[source] for key, source in names.items() if source in node.marks}}
    return placed


def error_at(path: str, message: str, document: Any) -> InvalidDatasetError:
    """Return the error of a file, at the line of the last key or value that its message quotes."""
    for quoted in reversed(_QUOTED.findall(message)):
        keys = tuple(quoted.split("."))
        places = [keys, *(place for place, text in _texts(document, ()) if quoted in (text, text[-len(quoted) :]))]
        for place in places:
            mark = locate(document, place)
            if mark is not None and _exists(document, place):
                headline = f"Invalid dataset at line {mark.line} in {path}"
                return InvalidDatasetError(headline, message, path=path, line=mark.line, column=mark.column)
    return InvalidDatasetError(f"Cannot read {path}", message, path=path)


def _exists(node: Any, place: tuple[Any, ...]) -> bool:
    try:
        for step in place:
            node = node[step]
    except (LookupError, TypeError):
        return False
    return bool(place)


def _texts(node: Any, place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield all texts in a document, each with its place."""
    if isinstance(node, str):
        yield place, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from _texts(item, (*place, key))
