"""A dataset on disk before it is read: which files it consists of, shards and sidecars included, and its name."""

from __future__ import annotations

import os
import re
import shlex

import msgspec

from agentv.datasets.formats.dataset_format import (
    DatasetFormat,
    detect,
    known_suffixes,
    load_format,
    suffix_of,
    suggested,
)
from agentv.errors import DatasetNotFoundError

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
        raise unsupported(path, known_suffixes())
    return kind


def unsupported(path: str, suffixes: list[str]) -> DatasetNotFoundError:
    """The error for a file in no known format."""
    suffix = suffix_of(path)
    hint = "A dataset is recognized by its content or its extension; this file by neither"
    if suffix.lower() in TABLES:
        made = shlex.quote(base_of(path) + ".jsonl")
        hint = f"Make a dataset of its rows: agentv generate evals {shlex.quote(path)} --out {made}"
    detail = f"The extension {suffix or '(none)'} is not one of {', '.join(suffixes)}"
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
