"""A dataset on disk before it is read: which files it consists of and what it is called."""

from __future__ import annotations

import os
import re

import msgspec

from agentv.datasets.formats import lines as compressed
from agentv.errors import DatasetNotFoundError
from agentv.registry import READERS

YAML_SUFFIXES = READERS["yaml"][0]
TABLES = {".csv": ",", ".tsv": "\t"}
"""Files of rows, which are no datasets yet, and what is between their columns."""

_SHARD = re.compile(r"(?P<name>.+)-(?P<index>\d{5,})-of-(?P<count>\d{5,})$")


class Source(msgspec.Struct, frozen=True):
    """The files of one dataset, as the user named them, in order. `base` is their path without suffix and shard."""

    files: tuple[str, ...]
    base: str
    kind: str

    @property
    def path(self) -> str:
        """The dataset in one word, for messages and results."""
        return self.files[0] if len(self.files) == 1 else f"{self.base}-*{suffix_of(self.files[0])}"

    @property
    def name(self) -> str:
        """The name it has when it says none."""
        name = os.path.basename(self.base)
        return os.fsencode(name).decode("utf-8", "replace") or "dataset"

    @property
    def folder(self) -> str:
        """The folder next to which the files it names are looked up."""
        return os.path.dirname(self.base) or "."

    @property
    def format_name(self) -> str:
        """The format as messages call it."""
        return self.kind.upper()


def suffix_of(path: str) -> str:
    """The part of a file's name that says its format, as written: `.yaml`, `.jsonl`, `.jsonl.gz`."""
    name = os.path.basename(path)
    stem, last = os.path.splitext(name)
    if last.lower() in compressed.SUFFIXES:
        return os.path.splitext(stem)[1] + last
    return last


def kind_of(path: str) -> str | None:
    """The format that the extension means, whatever its case; None for an unknown one."""
    suffix = suffix_of(path).lower()
    for ending in compressed.SUFFIXES:
        if suffix.endswith(ending):
            # Only lines can be read from a compressed stream.
            return "jsonl" if suffix.removesuffix(ending) in READERS["jsonl"][0] else None
    return next((kind for kind, (suffixes, _) in READERS.items() if suffix in suffixes), None)


def require_kind(path: str) -> str:
    """As `kind_of`, with an error that lists what is supported."""
    kind = kind_of(path)
    if kind is None:
        suffix = suffix_of(path)
        hint = "Datasets are YAML documents or JSON Lines; rename the file if it is one of them"
        if suffix.lower() in TABLES:
            import shlex  # late: only a mistake needs it

            made = shlex.quote(base_of(path) + ".jsonl")
            hint = f"Make a dataset of its rows: agentv generate evals {shlex.quote(path)} --out {made}"
        raise DatasetNotFoundError(
            f"Unsupported file format: {path}",
            f"The extension {suffix or '(none)'} is not one of .yaml, .yml, .jsonl, .ndjson, .jsonl.gz, .jsonl.zst",
            hint,
            path=path,
        )
    return kind


def base_of(path: str) -> str:
    """A path without the suffix that says its format."""
    return path[: -len(suffix_of(path))] if suffix_of(path) else path


class Shard(msgspec.Struct, frozen=True):
    """The parts of a shard's name."""

    base: str
    index: int
    count: int


def shard_of(path: str) -> Shard | None:
    """What `name-00000-of-00008.jsonl` says; None for a file that is no shard."""
    found = _SHARD.match(os.path.basename(base_of(path)))
    if found is None or kind_of(path) != "jsonl":
        return None
    base = os.path.join(os.path.dirname(path), found["name"])
    return Shard(base, int(found["index"]), int(found["count"]))


def dataset_base(path: str) -> str:
    """A path without suffix and shard: what the files of one dataset, and its sidecar, have in common."""
    shard = shard_of(path)
    return shard.base if shard else base_of(path)


def data_files(base: str) -> list[str]:
    """The data files, one or the shards, that a YAML file of this base would be the sidecar of."""
    folder = os.path.dirname(base)
    names = sorted(os.listdir(folder or "."))
    found = [os.path.join(folder, name) for name in names if kind_of(name) == "jsonl"]
    return [path for path in found if dataset_base(path) == base]
