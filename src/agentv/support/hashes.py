"""Hashes of files and folders, file names in settings, and a compact set of hashes."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from array import array
from collections.abc import Iterable, Sequence

LONGEST_NAME = 1000

_READ_WHOLE_BYTES = 64 * 1024 * 1024


def words_in(text: str) -> list[str]:
    """Return the strings in a command or another setting that may name a file: the text, its words, and `=` values."""
    if "\n" in text or len(text) > LONGEST_NAME:
        return []
    try:
        words = shlex.split(text)
    except ValueError:  # an unclosed quotation mark
        words = text.split()
    values = [value for word in words if (value := word.partition("=")[2])]
    return list(dict.fromkeys((text.removeprefix("file://"), *words, *values)))


def short(path: str) -> str:
    """Return a path relative to the working directory; absolute if it is outside."""
    below = os.path.relpath(path)
    return os.path.abspath(path) if below.startswith(os.pardir) else below


def file_of(reference: str, folder: str) -> str | None:
    """Return the file of `file.py:name` or `module:name`, looked up like an import, without importing it."""
    place = reference.rpartition(":")[0]
    if place.endswith(".py"):
        return os.path.join(folder, place)
    parts = os.path.join(*place.split(".")) if place else ""
    for parent in (*sys.path, folder):
        for ending in (".py", os.sep + "__init__.py"):
            path = os.path.join(parent, parts + ending)
            if parts and os.path.isfile(path):
                return path
    return None


def contents(paths: Iterable[str], home: str) -> dict[str, str]:
    """Return a hash of each existing file and folder, by its path relative to `home`, or absolute if it is outside."""
    found: dict[str, str] = {}
    home = os.path.realpath(home)
    for path in map(os.path.realpath, paths):
        below = os.path.relpath(path, home).replace(os.sep, "/")
        name = path if below.startswith("../") else below
        if name in found:
            continue
        if os.path.isfile(path):
            found[name] = file_digest(path).hex()
        elif os.path.isdir(path):
            found[name] = folder_digest(path)
    return found


def file_digest(path: str) -> bytes:
    """Return a hash of a file's contents; for a very large file, of its size and modification time."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        status = os.stat(path)
        if status.st_size > _READ_WHOLE_BYTES:
            digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
            return digest.digest()
        add_file(digest, path)
    except OSError:
        digest.update(b"unreadable")  # reported when the file is used
    return digest.digest()


def folder_digest(folder: str) -> str:
    """Return a hash of the files in a folder: their paths, contents, executable bits and link targets.

    Of a `.git` folder only the refs are hashed: they determine the rest.
    """
    digest = hashlib.blake2b(digest_size=16)
    for parent, folders, files in os.walk(folder):
        if os.path.basename(parent) == ".git":
            folders[:] = [name for name in folders if name == "refs"]
            files = [name for name in files if name in ("HEAD", "packed-refs")]
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in sorted((*files, *links)):
            path = os.path.join(parent, name)
            below = os.path.relpath(path, folder).replace(os.sep, "/")
            digest.update(f"{below}\0".encode("utf-8", "surrogateescape") + _entry_digest(path))
    return digest.hexdigest()


def _entry_digest(path: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    try:
        if os.path.islink(path):
            digest.update(b"link " + os.fsencode(os.readlink(path)))
        elif os.path.isfile(path):
            digest.update(b"run " if os.access(path, os.X_OK) else b"file ")
            add_file(digest, path)
    except OSError:
        digest.update(b"unreadable")  # reported when the folder is copied
    return digest.digest()


def add_file(digest: hashlib.blake2b, path: str) -> None:
    """Add the contents of a file to a hash, in constant memory. Raises OSError."""
    with open(path, "rb") as stream:
        hashlib.file_digest(stream, lambda: digest)


class HashTable:
    """A compact set of 64-bit hashes. Verify the repeats it reports: hashes can collide."""

    def __init__(self) -> None:
        self._slots = array("q", bytes(8 * 4096))
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def __contains__(self, code: int) -> bool:
        slots, mask = self._slots, len(self._slots) - 1
        slot = code & mask
        while held := slots[slot]:
            if held == code:
                return True
            slot = (slot + 1) & mask
        return False

    def add(self, codes: Sequence[int]) -> list[int]:
        """Add hashes; return the positions of those that were present before, also earlier in this batch."""
        if (self._used + len(codes)) * 3 > len(self._slots) * 2:
            self.expect(self._used + len(codes))
        slots, mask = self._slots, len(self._slots) - 1
        repeated = []
        for position, code in enumerate(codes):
            slot = code & mask
            while held := slots[slot]:
                if held == code:
                    repeated.append(position)
                    break
                slot = (slot + 1) & mask
            else:
                slots[slot] = code
        self._used += len(codes) - len(repeated)
        return repeated

    def expect(self, count: int) -> None:
        """Grow for `count` hashes, with a third of the slots free. Calling this early avoids repeated moves."""
        size = len(self._slots)
        while count * 3 > size * 2:
            size *= 2
        if size == len(self._slots):
            return
        slots, mask = array("q", bytes(8 * size)), size - 1
        for code in filter(None, self._slots):
            slot = code & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = code
        self._slots = slots


class IdSet:
    """The ids seen so far, for callers that keep the ids anyway."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def repeats(self, ids: Sequence[str]) -> list[int]:
        """Add ids; return the positions of those that were seen before, also earlier in this batch."""
        before = len(self._seen)
        if self._seen.isdisjoint(ids):
            self._seen.update(ids)
            if len(self._seen) == before + len(ids):
                return []
            return [position for position, id in enumerate(ids) if id in ids[:position]]
        found = []
        for position, id in enumerate(ids):
            if id in self._seen:
                found.append(position)
            self._seen.add(id)
        return found

    def expect(self, count: int) -> None:
        """Do nothing: a set grows cheaply."""


class PackedIds(HashTable):
    """Hashes of the ids seen so far. Verify the repeats it reports: hashes can collide."""

    def repeats(self, ids: Sequence[str]) -> list[int]:
        """Add ids; return the positions of those that were seen before, also earlier in this batch."""
        return self.add(list(map(hash, ids)))
