"""Hash the files of datasets, and notice datasets that change between two passes over their cases."""

from __future__ import annotations

import hashlib
import os

from agentv.datasets.formats.dataset_format import Source
from agentv.errors import DatasetChangedError
from agentv.support.hashes import add_file

_Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, size and modification time of each file; None for a missing file."""


class DatasetStamps:
    """Compares datasets with their state when they were read first: by stamp, and by content if the stamp differs."""

    def __init__(self) -> None:
        self._stamps: dict[str, _Stamp] = {}
        self._digests: dict[str, str] = {}
        self._sources: dict[str, Source] = {}

    def begin(self, source: Source) -> None:
        """Store the state of a dataset, before it is read."""
        self._sources[source.path] = source
        self._stamps[source.path] = _stamp_of(source)

    def digest(self, source: Source) -> str:
        """Return the hash of a dataset that was read since `begin`. Raises DatasetChangedError."""
        digest = self._digests[source.path] = digest_of(source)
        if _stamp_of(source) != self._stamps.get(source.path):
            raise _changed(source)
        return digest

    def check(self, source: Source) -> None:
        """Raise DatasetChangedError if a dataset has other content than when it was read first."""
        stamp = _stamp_of(source)
        if stamp == self._stamps.get(source.path) or source.path not in self._digests:
            return
        if None in stamp or digest_of(source) != self._digests[source.path]:
            raise _changed(source)
        self._stamps[source.path] = stamp

    def check_all(self) -> None:
        """Raise DatasetChangedError if any dataset has other content than when it was read first."""
        for source in self._sources.values():
            self.check(source)


def files_of(source: Source) -> tuple[str, ...]:
    """Return all files of a dataset: the data files and the sidecar, if any."""
    return (*source.files, *([source.sidecar] if source.sidecar else ()))


def digest_of(source: Source) -> str:
    """Return a hash of the bytes of a dataset, including its sidecar and shards."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files_of(source):
        add_file(digest, file)
        digest.update(b"\0")
    return digest.hexdigest()


def _stamp_of(source: Source) -> _Stamp:
    return tuple(map(_stamp, files_of(source)))


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _changed(source: Source) -> DatasetChangedError:
    hint = "Run again when the file no longer changes"
    return DatasetChangedError(f"The dataset {source.path} changed while it was read", hint=hint, path=source.path)
