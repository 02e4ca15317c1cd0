"""The seam of dataset formats: what a format is, the rows it hands on, and how files are matched to formats.

Knows nothing of cases; a row is whatever a person wrote. Each format is one module and one row of `FORMATS`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, ClassVar

import msgspec

from agentv.datasets.formats.lines import MAX_LINE_BYTES, SUFFIXES, open_lines
from agentv.errors import DatasetError, DatasetNotFoundError, DatasetWarning, InvalidCaseError, UsageError
from agentv.model.message import Message
from agentv.registry import FORMATS

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:]')

HEAD_BYTES = 16 * 1024
"""How much of a file `sniff` sees."""


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
    """Rows on consecutive lines of one file: row `i` is on `line + i`. `lines` is the JSON text of each, if known."""

    file: str
    line: int
    rows: list[Row]
    lines: Sequence[Any] = ()


class ReadOptions(msgspec.Struct, frozen=True):
    """How rows are read. With `plain`, rows in the common shape may come as PlainRows, at several times the speed."""

    plain: bool = False
    max_line_bytes: int = MAX_LINE_BYTES


class Document(msgspec.Struct, frozen=True):
    """A dataset that was opened: its settings, where they are written, and what is known before its rows are read.

    `lists_tests`: the document uses AgentV 4.x's words. `is_agentmark`: the rows look like AgentMark's. `cases` is the
    list of rows where the format has to hold it whole. `warnings` are about the files around the rows.
    """

    source: Source
    header: dict[str, Any] = {}
    header_path: str | None = None
    lists_tests: bool = False
    is_agentmark: bool = False
    cases: Any = None
    warnings: tuple[DatasetWarning, ...] = ()


class Content(msgspec.Struct, frozen=True):
    """What a format writes: settings, and rows as data, each with its JSON text where the source has it.

    `document` is what it was read from, if that has the same format, so that its text can be kept.
    """

    header: dict[str, Any]
    rows: Iterator[tuple[dict[str, Any], bytes | None]]
    document: Document | None = None


class DatasetFormat:
    """One dataset format. A subclass gives the facts and at least `sniff` and `read`; its instance is in `FORMATS`."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """Extensions that suggest the format; the content decides."""

    has_sidecar: ClassVar[bool] = False
    """Settings are in a YAML file of the same name next to it."""

    can_be_sharded: ClassVar[bool] = False
    can_be_compressed: ClassVar[bool] = False

    is_folder: ClassVar[bool] = False
    """A dataset is a folder; `sniff` gets its path and no head."""

    def sniff(self, head: bytes, path: str) -> bool:
        """Whether a file that begins with `head`, decompressed, is a dataset in this format."""
        raise NotImplementedError

    def files(self, path: str) -> tuple[str, ...]:
        """The files that the dataset at `path` consists of."""
        return (path,)

    def open(self, source: Source) -> Document:
        """Read what is around the rows, or known before them; sidecars are not read here. Raises DatasetError."""
        return Document(source)

    def read(self, document: Document, options: ReadOptions) -> Iterator[Batch]:
        """Read the rows from the start, any number of times."""
        raise NotImplementedError

    def write(self, content: Content, path: str) -> None:  # noqa: ARG002
        """Write a dataset to `path`, and its sidecar where the format has one."""
        raise UsageError(f"Cannot write {path}", "Datasets of this format can only be read")

    def insert(self, data: bytes, key: str, values: Mapping[str, Any]) -> bytes:  # noqa: ARG002
        """Add `key` to the cases of a file whose ids are in `values`, leaving everything else as it is."""
        raise ValueError("datasets of this format can only be read")

    def why_not(self, path: str) -> str | None:  # noqa: ARG002
        """Why a file found in a folder is not a dataset after all; None if it is one."""
        return None

    def lint(self, document: Document, options: ReadOptions) -> Iterator[DatasetError]:  # noqa: ARG002
        """Problems in the text that reading does not mind; for `agentv validate`."""
        return iter(())

    def row_error(self, row: BadRow, path: str, line: int) -> DatasetError:
        """The error for a row that could not be parsed."""
        headline = f"Invalid eval case at line {line} in {path}"
        return InvalidCaseError(headline, row.what, row.hint, path=path, line=line, column=row.column)


def load_format(name: str) -> DatasetFormat:
    """Return the format of this name, which is a row of the registry or a plug-in's."""
    found = FORMATS.find(name)
    if not isinstance(found, DatasetFormat):
        raise UsageError(f"The plug-in '{name}' is not an instance of {__name__}.DatasetFormat")
    return found


def suffix_of(path: str) -> str:
    """The part of a file's name that suggests its format, as written: `.yaml`, `.jsonl`, `.jsonl.gz`."""
    stem, last = os.path.splitext(os.path.basename(path))
    return os.path.splitext(stem)[1] + last if last.lower() in SUFFIXES else last


def known_suffixes() -> list[str]:
    """The extensions of all formats, compressed ones included."""
    formats = [load_format(name) for name in FORMATS.all_names()]
    plain = [suffix for each in formats for suffix in each.suffixes]
    return plain + [each.suffixes[0] + ending for each in formats if each.can_be_compressed for ending in SUFFIXES]


def _usable() -> Iterator[tuple[str, DatasetFormat]]:
    """All formats. A plug-in that cannot be loaded is left out; it is reported if no other format fits."""
    for name in FORMATS.all_names():
        with suppress(UsageError):
            yield name, load_format(name)


def suggested(path: str) -> list[str]:
    """The formats that a file's extension suggests, in the registry's order; plug-ins only if no built-in has it."""
    suffix = suffix_of(path).lower()
    ending = next((ending for ending in SUFFIXES if suffix.endswith(ending)), "")
    suffix = suffix.removesuffix(ending)
    found: list[str] = []
    for name, each in _usable():
        if found and name not in FORMATS.names():
            break
        if suffix in each.suffixes and (not ending or each.can_be_compressed) and not each.is_folder:
            found.append(name)
    return found


def detect(path: str, *, by_extension: bool = False) -> str | None:
    """The format of a file or folder: the first that recognizes the content, those that the extension suggests first.

    One that no format recognizes has the format that its extension suggests, so that its reader says what is wrong.
    With `by_extension` only those that the extension suggests are asked.
    """
    if os.path.isdir(path):
        return next((name for name, each in _usable() if each.is_folder and each.sniff(b"", path)), None)
    likely = suggested(path)
    if by_extension and len(likely) < 2:
        return likely[0] if likely else None
    head = read_head(path)
    others = (name for name, each in _usable() if name not in likely and not each.is_folder)
    names: Iterable[str] = likely if by_extension else chain(likely, others)
    found = next((name for name in names if load_format(name).sniff(head, path)), None)
    return found or (likely[0] if likely else None)


def read_head(path: str) -> bytes:
    """The first bytes of a file, decompressed; empty for one that cannot be read, which its reader will report."""
    try:
        with open_lines(path) as stream:
            return stream.read(HEAD_BYTES)
    except Exception:  # compressed data raises what it likes
        return b""


def object_keys(head: bytes) -> set[str]:
    """The keys of the JSON object that a file begins with, as far as `head` goes; empty if it is something else."""
    keys: set[str] = set()
    if not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return keys
    depth, last = 0, b""
    for token in _TOKENS.findall(head):
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if not depth:
                break
        elif token == b":" and depth == 1:
            keys.add(last[1:-1].decode("utf-8", "replace"))
        last = token
    return keys


TABLES = {".csv": ",", ".tsv": "\t"}
"""Tables, which `agentv generate evals` turns into datasets, and the delimiter of their columns."""

SIDECAR_SUFFIXES = (".yaml", ".yml")
_SHARD = re.compile(r"(?P<name>.+)-(?P<index>\d{5,})-of-(?P<count>\d{5,})$")


class Source(msgspec.Struct, frozen=True):
    """The files of one dataset, as the user named them, in order. `base` is their path without suffix and shard.

    `path` names the dataset in messages and results; `kind` is the name of its format.
    """

    files: tuple[str, ...]
    base: str
    kind: str
    path: str

    @property
    def format(self) -> DatasetFormat:
        """The format that reads it."""
        return load_format(self.kind)

    @property
    def name(self) -> str:
        """The dataset's name unless its settings give one."""
        return os.fsencode(os.path.basename(self.base)).decode("utf-8", "replace") or "dataset"

    @property
    def folder(self) -> str:
        """The folder in which the files it names are looked up first."""
        return os.path.dirname(self.base) or "."

    @property
    def sidecar(self) -> str | None:
        """The file with its settings, if the format has one and it exists."""
        sidecar = sidecar_of(self.base) if self.format.has_sidecar else None
        return None if sidecar in self.files else sidecar


def source_of(path: str, kind: str) -> Source:
    """The dataset that is one file, or one folder."""
    found = load_format(kind)
    return Source(found.files(path), path.rstrip("/") if found.is_folder else base_of(path), kind, path)


def require_format(path: str) -> str:
    """The format of an existing file by its content and extension. Raises DatasetNotFoundError if there is none."""
    kind = detect(path)
    if kind is None:
        raise unsupported(path)
    return kind


def unsupported(path: str) -> DatasetNotFoundError:
    """The error for a file in no known format."""
    suffix = suffix_of(path)
    hint = "A dataset is recognized by its content or its extension; this file by neither"
    if suffix.lower() in TABLES:
        made = shlex.quote(base_of(path) + ".jsonl")
        hint = f"Make a dataset of its rows: agentv generate evals {shlex.quote(path)} --out {made}"
    detail = f"The extension {suffix or '(none)'} is not one of {', '.join(known_suffixes())}"
    return DatasetNotFoundError(f"Unsupported file format: {path}", detail, hint, path=path)


def base_of(path: str) -> str:
    """A path without the suffix that suggests its format."""
    return path.removesuffix(suffix_of(path))


class Shard(msgspec.Struct, frozen=True):
    """The parts of a shard's name."""

    base: str
    index: int
    count: int


def shard_of(path: str) -> Shard | None:
    """The shard that `name-00000-of-00008.jsonl` is; None for a file that is not a shard."""
    found = _SHARD.match(os.path.basename(base_of(path)))
    if found is None or not any(load_format(name).can_be_sharded for name in suggested(path)):
        return None
    return Shard(os.path.join(os.path.dirname(path), found["name"]), int(found["index"]), int(found["count"]))


def dataset_base(path: str) -> str:
    """A path without suffix and shard: what the files of one dataset, and its sidecar, have in common."""
    shard = shard_of(path)
    return shard.base if shard else base_of(path)


def may_have_sidecar(path: str) -> bool:
    """Whether a file's extension suggests a format with sidecars."""
    return any(load_format(name).has_sidecar for name in suggested(path))


def sidecar_of(base: str) -> str | None:
    """The sidecar next to a dataset of this base, if there is one."""
    return next((base + suffix for suffix in SIDECAR_SUFFIXES if os.path.isfile(base + suffix)), None)


def data_files(path: str) -> list[str]:
    """The data files, one or the shards, that a file is the sidecar of; none if it is not a sidecar."""
    base = base_of(path)
    if sidecar_of(base) != path:
        return []
    folder = os.path.dirname(base)
    found = [os.path.join(folder, name) for name in sorted(os.listdir(folder or ".")) if may_have_sidecar(name)]
    return [each for each in found if dataset_base(each) == base]
