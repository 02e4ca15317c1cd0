"""Nodes of a parsed prompt: blocks and inline content of Markdown, and the tags and expressions of MDX."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

PHRASING = frozenset(
    ("text", "emphasis", "strong", "inlineCode", "link", "image", "break", "textTag", "textExpression")
)
"""Types of inline content."""

_MOST_COPIES = 200_000


class MdxError(Exception):
    """A part of the text that cannot be parsed, with its line counted from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class Node:
    """One node, as in mdast: its type, its children or its text, and its settings such as the depth of a heading."""

    type: str
    children: list[Node] = field(default_factory=list)
    value: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    line: int = 1

    @property
    def is_tag(self) -> bool:
        """Whether the node is a tag of MDX, in a line of its own or in a text."""
        return self.type in ("flowTag", "textTag")

    @property
    def is_expression(self) -> bool:
        """Whether the node is an expression in braces."""
        return self.type in ("flowExpression", "textExpression")


class Copies:
    """Copies nodes for components and loops, up to a limit: those of a short prompt can multiply without end."""

    def __init__(self) -> None:
        self._count = count()

    def of(self, nodes: list[Node], line: int) -> list[Node]:
        """Return a copy of nodes. Raises MdxError beyond the limit."""
        if any(next(self._count) >= _MOST_COPIES for _ in (None, *descendants(nodes))):
            raise MdxError(f"Components and loops have more than {_MOST_COPIES:,} blocks together", line)
        return copy.deepcopy(nodes)


def descendants(nodes: list[Node]) -> Iterator[Node]:
    """Yield nodes and those in them."""
    for node in nodes:
        yield node
        yield from descendants(node.children)


def text_node(value: str) -> Node:
    """Return a text."""
    return Node("text", value=value)


def utf16_length(text: str) -> int:
    """Return the length of a text in JavaScript."""
    return len(text) + sum(character > "\uffff" for character in text)
