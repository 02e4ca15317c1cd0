"""What describes a format whose records become one case each."""

from typing import TypedDict


class Signature(TypedDict, total=False):
    """The keys of a file's first records; several are separated by spaces."""

    all: str
    """Keys of every record."""

    any: str
    """Keys of which at least one record has at least one."""

    none: str
    """Keys that no record has."""

    objects: str
    """Keys whose values are objects."""

    lists: str
    """Keys whose values are lists."""

    contains: dict[str, str]
    """Keys whose values are texts with another text in them."""


class RecordKeys(TypedDict, total=False):
    """One format."""

    title: str
    """The name of the tool and of its file, for messages."""

    strength: float
    """How specific the format is, from 0 to 1."""

    fields: str
    """What becomes what, for messages."""

    fits: tuple[Signature, ...]
    """A file has the format if one of these describes its first records."""

    case: dict[str, str]
    """The parts of a case, and where they are. `PARTS` and `READERS` in `keyed_records` list what there is."""

    pages: str
    """Where the records are in a document, such as a page of the tool's API."""

    in_documents: bool
    """Whether a document is one record, or an object of records by id."""

    refused: dict[str, tuple[str, str]]
    """Keys of files of the tool that have no cases: what they are, and what to do."""

    unused: str
    """Keys that have no meaning outside of the tool."""

    losses: dict[str, str]
    """What is reported as lost if a record has one of these keys."""

    skipped: tuple[str, str, str]
    """A key, the value in lower case of records that are left out, and what they are called."""

    flattened: str
    """Objects that tables have as columns, such as `input.question`, or `input_question` next to `example_id`."""

    outcome: str
    """The expected outcome of every case."""
