"""What a reader hands on: batches of rows with their lines, before anything is known of cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from agentv.datasets.source import Source
from agentv.model.message import Message


class PlainRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A row in the most common shape, checked while it was parsed. Any other row comes as a dict."""

    id: str
    expected_outcome: str
    input: str | tuple[Message, ...]
    expected_output: str | tuple[Message, ...] | dict[str, Any] | None = None
    conversation_id: str | None = None
    metadata: dict[str, Any] | None = None
    tags: tuple[str, ...] | None = None


class BadRow(msgspec.Struct, frozen=True):
    """A row that could not be parsed: what was found, at which column, and what to do."""

    what: str
    column: int | None = None
    hint: str = ""


Row = PlainRow | dict[str, Any] | BadRow | None
"""None stands for a blank line."""


class Batch(msgspec.Struct, frozen=True):
    """Rows on consecutive lines of one file: row `i` stands on `line + i`. `lines` is what PlainRows were read from."""

    file: str
    line: int
    rows: list[Row]
    lines: Sequence[Any] = ()


class Document(msgspec.Struct, frozen=True):
    """A dataset that was opened: the keys around its cases, where they stand, and its rows.

    `lists_tests` tells a document in AgentV 4.x's words; `cases` is the list when the format has to hold it whole;
    `first_row` is there for formats whose cases have no document around them.
    """

    source: Source
    header: dict[str, Any]
    header_path: str | None = None
    lists_tests: bool = False
    cases: Any = None
    first_row: Any = None


class Reader(Protocol):
    """The module of a format: `open_document` reads what is around the cases, `batches` the cases from the start."""

    def open_document(self, source: Source) -> Document: ...

    def batches(self, document: Document, *, plain: bool, max_line_bytes: int) -> Iterator[Batch]: ...
