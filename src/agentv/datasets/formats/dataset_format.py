"""The interface of dataset formats, the rows they produce, and format detection.

Each format is one module and one entry of `FORMATS`. Formats produce raw rows; cases are built elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import msgspec

from agentv.errors import DatasetError, DatasetNotFoundError, DatasetWarning, InvalidCaseError, UsageError
from agentv.lazy_regex import lazy_regex
from agentv.model.case import EvalCase
from agentv.model.message import Message
from agentv.registry import FOREIGN_FOLDERS, FOREIGN_FORMATS, FORMATS, Registry
from agentv.settings.format_choice import DEFAULT_STRENGTH
from agentv.support.lines import MAX_LINE_BYTES, SUFFIXES, compression_error, open_lines

if TYPE_CHECKING:
    from agentv.datasets.foreign.foreign_format import MappedFile
    from agentv.trust.inventory import UseKind

_TOKENS = lazy_regex(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:]')

HEAD_BYTES = 16 * 1024
"""How much of a file `sniff` receives."""


class PlainRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """A row in the most common shape, type-checked by the parser. Any other row is a dict."""

    id: str
    expected_outcome: str
    input: str | tuple[Message, ...]
    expected_output: str | tuple[Message, ...] | dict[str, Any] | None = None
    conversation_id: str | None = None
    metadata: dict[str, Any] | None = None
    tags: tuple[str, ...] | None = None


class BadRow(msgspec.Struct, frozen=True):
    """A row that could not be parsed: the problem, its column, a hint, and what could be read of it, with its id."""

    what: str
    column: int | None = None
    hint: str = ""
    row: dict[str, Any] = {}


Row = PlainRow | dict[str, Any] | BadRow | None
"""None for a blank line."""


class Batch(msgspec.Struct, frozen=True):
    """Rows on consecutive lines of one file: row `i` is on `line + i`. `lines` has the JSON text of each, if known.

    `warnings` are about the rows as they are in the file.
    """

    file: str
    line: int
    rows: list[Row]
    lines: Sequence[Any] = ()
    warnings: Sequence[DatasetWarning] = ()


class ReadOptions(msgspec.Struct, frozen=True):
    """How to read rows. With `plain`, a format may return PlainRows, which is several times faster."""

    plain: bool = False
    max_line_bytes: int = MAX_LINE_BYTES


def _nothing_lost(what: str) -> None:
    raise NotImplementedError(f"{what} would be lost")


class Document(msgspec.Struct, frozen=True):
    """An open dataset: its settings, the file they are in, and what is known before its rows are read.

    `lists_tests`: the cases are under `tests`, as in AgentV (TypeScript). `is_agentmark`: the rows look like
    AgentMark's. `cases` is the list of rows, for formats that parse a file as a whole. `mapped` counts what was made of
    another tool's file.
    """

    source: Source
    header: dict[str, Any] = {}
    header_path: str | None = None
    lists_tests: bool = False
    is_agentmark: bool = False
    cases: Any = None
    warnings: tuple[DatasetWarning, ...] = ()
    mapped: MappedFile | None = None


class WrittenRow(msgspec.Struct, frozen=True):
    """A row to write: as data, as its JSON text if the source has it, and as the case that it describes."""

    data: dict[str, Any] | PlainRow
    text: bytes | None
    case: EvalCase


class Content(msgspec.Struct, frozen=True):
    """A dataset to write: its settings and its rows.

    `document` is the source if it has the same format, so that its text can be kept. `lose` receives the name of
    something that the format cannot express.
    """

    header: dict[str, Any]
    rows: Iterator[WrittenRow]
    document: Document | None = None
    lose: Callable[[str], None] = _nothing_lost


class SuiteGate(msgspec.Struct, frozen=True):
    """What every case of a suite of AgentV (TypeScript) has to reach, and how it combines the scores of trials.

    `threshold` is None if the suite sets none, and that of the suite `owner` if it is not its own. With `by_verdict`, a
    case with a limit of its own has to reach that one. `strategy` is that of `combined_score`.
    """

    threshold: float | None = None
    strategy: str = "mean"
    by_verdict: bool = False
    owner: str = ""


class DatasetFormat:
    """Base class of dataset formats. Subclasses define at least `sniff` and `read`; `FORMATS` names an instance."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """Extensions that suggest the format; the content decides."""

    has_sidecar: ClassVar[bool] = False
    """Settings are in a YAML file of the same name next to the data."""

    can_be_sharded: ClassVar[bool] = False
    writes_plain_rows: ClassVar[bool] = False
    """Whether `write` accepts PlainRows."""

    writes: ClassVar[tuple[str, ...]] = ()
    """Extensions of the files that `convert --to` can write in this format of another tool."""

    is_lossless: ClassVar[bool] = True
    """Whether `write` keeps everything, so that the file can be compared with its source."""

    can_be_compressed: ClassVar[bool] = False

    refuses_cases: ClassVar[bool] = False
    """Whether an invalid case becomes a job that ends in an error, so that the rest of the file can be used."""

    in_folders: ClassVar[bool] = True
    """Whether a file is taken as a dataset if only its folder was named."""

    is_folder: ClassVar[bool] = False
    """A dataset is a folder; `sniff` receives its path and an empty head."""

    strength: ClassVar[float] = DEFAULT_STRENGTH
    """How specific the format is, from 0 to 1. If several recognize a file, the strongest reads it."""

    def sniff(self, head: bytes, path: str) -> bool:
        """Whether a file that begins with `head` (decompressed) is a dataset in this format."""
        raise NotImplementedError

    def fit(self, head: bytes, path: str) -> float:
        """Return how well the format fits a file, from 0 to `strength`."""
        return self.strength if self.sniff(head, path) else 0.0

    def files(self, path: str) -> tuple[str, ...]:
        """Return the files of the dataset at `path`."""
        return (path,)

    def open(self, source: Source) -> Document:
        """Read everything but the rows and the sidecar. Raises DatasetError."""
        return Document(source)

    def read(self, document: Document, options: ReadOptions) -> Iterator[Batch]:
        """Read the rows. May be called any number of times."""
        raise NotImplementedError

    def targets(self, source: Source) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return the targets that a dataset brings along, as entries of a targets file. Paths in them are absolute."""
        return []

    def programs(self, source: Source) -> Iterable[tuple[UseKind, str]]:  # noqa: ARG002
        """Return the code and the commands that reading the cases runs, with their kinds. Nothing is run for it."""
        return ()

    def regression_tolerance(self, source: Source) -> float | None:  # noqa: ARG002
        """Return the largest drop of the score of a case against a baseline that a dataset allows, if it has one."""
        return None

    def suite_gate(self, source: Source) -> SuiteGate | None:  # noqa: ARG002
        """Return the gate of a suite of AgentV (TypeScript); None for any other dataset."""
        return None

    def write(self, content: Content, path: str) -> None:  # noqa: ARG002
        """Write a dataset to `path`, and its sidecar if the format has one."""
        raise UsageError(f"Cannot write {path}", "This format is read-only")

    def insert(self, data: bytes, key: str, values: Mapping[str, Any]) -> bytes:  # noqa: ARG002
        """Add `key` to the cases whose ids are in `values`, and leave the rest of the file as it is."""
        raise ValueError("this dataset format is read-only")

    def why_not(self, path: str) -> str | None:  # noqa: ARG002
        """Return the reason why a file found in a folder is not a dataset; None if it is one."""
        return None

    def lint(self, document: Document, options: ReadOptions) -> Iterator[DatasetError]:  # noqa: ARG002
        """Report problems that do not prevent loading, for `agentv validate`."""
        return iter(())

    def row_error(self, row: BadRow, path: str, line: int) -> DatasetError:
        """Return the error for a row that could not be parsed."""
        headline = f"Invalid eval case at line {line} in {path}"
        return InvalidCaseError(headline, row.what, row.hint, path=path, line=line, column=row.column)


def load_format(name: str) -> DatasetFormat:
    """Return the format of this name, built-in or from a plug-in."""
    tables = (FORMATS, FOREIGN_FORMATS, FOREIGN_FOLDERS)
    nearest_first = (Registry.kernel_names, Registry.names, Registry.all_names)
    fmt = next((table for names in nearest_first for table in tables if name in names(table)), FORMATS).find(name)
    if not isinstance(fmt, DatasetFormat):
        raise UsageError(f"The plug-in '{name}' is not an instance of {__name__}.DatasetFormat")
    return fmt


def suffix_of(path: str) -> str:
    """Return the extension that suggests a file's format, as written: `.yaml`, `.jsonl`, `.jsonl.gz`."""
    stem, last = os.path.splitext(os.path.basename(path))
    return os.path.splitext(stem)[1] + last if last.lower() in SUFFIXES else last


def known_suffixes() -> list[str]:
    """Return the extensions of all formats, including compressed ones."""
    formats = [load_format(name) for name in FORMATS.all_names()]
    plain = [suffix for fmt in formats for suffix in fmt.suffixes]
    return plain + [fmt.suffixes[0] + ending for fmt in formats if fmt.can_be_compressed for ending in SUFFIXES]


def usable(names: Iterable[str] | None = None) -> Iterator[tuple[str, DatasetFormat]]:
    """Yield all formats, without plug-ins that cannot be loaded; those are reported if no other format fits."""
    for name in FORMATS.all_names() if names is None else names:
        with suppress(UsageError):
            yield name, load_format(name)


def suggested(path: str) -> list[str]:
    """Return the formats for a file's extension; others only if none of the kernel has it."""
    suffix = suffix_of(path).lower()
    ending = next((ending for ending in SUFFIXES if suffix.endswith(ending)), "")
    suffix = suffix.removesuffix(ending)
    for names in (FORMATS.kernel_names, FORMATS.all_names):
        matches = [
            name
            for name, fmt in usable(names())
            if suffix in fmt.suffixes and (not ending or fmt.can_be_compressed) and not fmt.is_folder
        ]
        if matches:
            return matches
    return []


def read_head(path: str) -> bytes:
    """Return the first bytes of a file, decompressed; empty if it cannot be read, which its reader will report."""
    try:
        with open_lines(path) as stream:
            return stream.read(HEAD_BYTES)
    except Exception:  # decompression raises various types
        return b""


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file, decompressed. Raises DatasetError, also for damage that is found while it is read."""
    try:
        with open_lines(path) as stream:
            yield stream
    except Exception as error:
        if damage := compression_error(path, error):
            raise damage from None
        if isinstance(error, OSError):
            raise DatasetNotFoundError(f"Cannot read {path}: {error.strerror or error}", path=path) from None
        raise


def object_keys(head: bytes) -> set[str]:
    """Return the keys of the JSON object at the start of a file, as far as `head` goes."""
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


SIDECAR_SUFFIXES = (".yaml", ".yml")
_SHARD = lazy_regex(r"(?P<name>.+)-(?P<index>\d{5,})-of-(?P<count>\d{5,})$")


class Source(msgspec.Struct, frozen=True):
    """The files of one dataset, in order, as the user named them. `base` is their path without suffix and shard.

    `path` identifies the dataset in messages and results; `kind` is the name of its format. `fields` is the field map
    that the user gave, as text.
    """

    files: tuple[str, ...]
    base: str
    kind: str
    path: str
    fields: str = ""

    @property
    def format(self) -> DatasetFormat:
        """The format of the dataset."""
        return load_format(self.kind)

    @property
    def name(self) -> str:
        """The dataset's default name."""
        return os.fsencode(os.path.basename(self.base)).decode("utf-8", "replace") or "dataset"

    @property
    def folder(self) -> str:
        """The folder where files that the dataset names are looked up first."""
        return os.path.dirname(self.base) or "."

    @property
    def sidecar(self) -> str | None:
        """The sidecar, if the format has sidecars and the file exists."""
        sidecar = sidecar_of(self.base) if self.format.has_sidecar else None
        return None if sidecar in self.files else sidecar


def source_of(path: str, kind: str, fields: str = "") -> Source:
    """Return the source for a dataset that is a single file or folder."""
    fmt = load_format(kind)
    return Source(fmt.files(path), path.rstrip("/") if fmt.is_folder else base_of(path), kind, path, fields)


def base_of(path: str) -> str:
    """Return a path without the extension that suggests its format."""
    return path.removesuffix(suffix_of(path))


class Shard(msgspec.Struct, frozen=True):
    """The parts of a shard's file name."""

    base: str
    index: int
    count: int


def shard_of(path: str) -> Shard | None:
    """Parse a shard's file name such as `name-00000-of-00008.jsonl`; None for a file that is not a shard."""
    name = os.path.basename(base_of(path))
    match = _SHARD.match(name) if "-of-" in name else None
    if match is None or not any(load_format(name).can_be_sharded for name in suggested(path)):
        return None
    return Shard(os.path.join(os.path.dirname(path), match["name"]), int(match["index"]), int(match["count"]))


def dataset_base(path: str) -> str:
    """Return a path without extension and shard number: the prefix that a dataset's files and its sidecar share."""
    shard = shard_of(path)
    return shard.base if shard else base_of(path)


def may_have_sidecar(path: str) -> bool:
    """Whether a file's extension suggests a format with sidecars."""
    return any(load_format(name).has_sidecar for name in suggested(path))


def sidecar_of(base: str) -> str | None:
    """Return the sidecar of a dataset with this base, if the file exists."""
    return next((base + suffix for suffix in SIDECAR_SUFFIXES if os.path.isfile(base + suffix)), None)


def data_files(path: str) -> list[str]:
    """Return the data files (one file, or shards) that a sidecar belongs to; empty if the file is not a sidecar."""
    base = base_of(path)
    if sidecar_of(base) != path:
        return []
    folder = os.path.dirname(base)
    files = [os.path.join(folder, name) for name in sorted(os.listdir(folder or ".")) if may_have_sidecar(name)]
    return [file for file in files if dataset_base(file) == base]
