"""Hash the files of datasets, and notice datasets that change between two passes over their cases."""

import hashlib
import os

from agentv.datasets.formats.dataset_format import Source
from agentv.errors import DatasetChangedError
from agentv.support.hashes import add_file

_Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, size and modification time of each file; None for a missing file."""


class DatasetStamps:
    """Compares datasets with their state when they were read first: by stamp, and by content if the stamp differs.

    Files are found even if user code changes the working directory in the meantime.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, ...]] = {}
        self._stamps: dict[str, _Stamp] = {}
        self._digests: dict[str, str] = {}

    def begin(self, source: Source) -> None:
        """Store the state of a dataset, before it is read."""
        files = self._files[source.path] = tuple(map(os.path.abspath, files_of(source)))
        self._stamps[source.path] = _stamp_of(files)

    def digest(self, source: Source) -> str:
        """Return the hash of a dataset that was read since `begin`. Raises DatasetChangedError."""
        digest = self._digests[source.path] = _digest_of(self._files[source.path])
        if _stamp_of(self._files[source.path]) != self._stamps[source.path]:
            raise _changed(source.path)
        return digest

    def is_complete(self, path: str) -> bool:
        """Whether the dataset at `path` was read to its end."""
        return path in self._digests

    def check(self, path: str) -> None:
        """Raise DatasetChangedError if the dataset at `path` has other content than when it was read first."""
        if not self.is_complete(path):
            return
        if (stamp := _stamp_of(self._files[path])) == self._stamps[path]:
            return
        if None in stamp or _digest_of(self._files[path]) != self._digests[path]:
            raise _changed(path)
        self._stamps[path] = stamp

    def check_all(self) -> None:
        """Raise DatasetChangedError if any dataset has other content than when it was read first."""
        for path in self._files:
            self.check(path)


def files_of(source: Source) -> tuple[str, ...]:
    """Return all files of a dataset: the data files and the sidecar, if any."""
    return (*source.files, *([source.sidecar] if source.sidecar else ()))


def _digest_of(files: tuple[str, ...]) -> str:
    """Return a hash of the bytes of a dataset, including its sidecar and shards."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        add_file(digest, file)
        digest.update(b"\0")
    return digest.hexdigest()


def _stamp_of(files: tuple[str, ...]) -> _Stamp:
    return tuple(map(_stamp, files))


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _changed(path: str) -> DatasetChangedError:
    hint = "Run again when the file no longer changes"
    return DatasetChangedError(f"The dataset {path} changed while it was read", hint=hint, path=path)
