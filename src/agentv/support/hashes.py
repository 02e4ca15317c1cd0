"""Hashes of files and folders, the words of a setting that may name a file, and a compact set of hashes."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol

LONGEST_NAME = 1000

_READ_WHOLE_BYTES = 64 * 1024 * 1024


def words_in(text: str) -> list[str]:
    """What in a command, or in another setting, may name a file: the text, its words, and what follows a `=`."""
    if "\n" in text or len(text) > LONGEST_NAME:
        return []
    try:
        words = shlex.split(text)
    except ValueError:  # a quotation mark that nothing closes
        words = text.split()
    values = [value for word in words if (value := word.partition("=")[2])]
    return list(dict.fromkeys((text.removeprefix("file://"), *words, *values)))


def short(path: str) -> str:
    """A path as one would type it here; whole where it leads out of here."""
    below = os.path.relpath(path)
    return os.path.abspath(path) if below.startswith(os.pardir) else below


def file_of(reference: str, folder: str) -> str | None:
    """The file that `file.py:name` or `module:name` names, looked up as they are imported, without importing it."""
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
    """A hash of each file and folder that is there, by its path from `home`, or by its whole path outside of it."""
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
    """A hash of the bytes of a file; of a very large one, of its size and the moment it was written."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        status = os.stat(path)
        if status.st_size > _READ_WHOLE_BYTES:
            digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
            return digest.digest()
        add_file(digest, path)
    except OSError:
        digest.update(b"unreadable")  # whoever uses it will say so
    return digest.digest()


def folder_digest(folder: str) -> str:
    """A hash of the files in a folder: their paths, whether they can be run, their contents, where links lead.

    Of a Git repository in it only what its names point to: the rest follows from that, or is no content.
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
        digest.update(b"unreadable")  # copying it will say so
    return digest.digest()


def add_file(digest: hashlib.blake2b, path: str) -> None:
    """Adds the bytes of a file to a hash, without holding them. Raises OSError."""
    with open(path, "rb") as stream:
        hashlib.file_digest(stream, lambda: digest)


class HashTable:
    """64-bit numbers without an object for each. Hashes can collide: what depends on a repeat must look again."""

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
        """Takes all in. The positions of those that were there before, or earlier in this batch."""
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
        """Grows so that a third of the slots stays free. Known in advance, it saves moving everything every time."""
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


class SeenIds(Protocol):
    """Takes ids in batches and tells which were there before."""

    def repeats(self, ids: Sequence[str]) -> list[int]:
        """The positions in this batch of ids that were seen before, here or earlier; then all are seen."""
        ...

    def expect(self, count: int) -> None:
        """Makes room for so many ids at once."""
        ...


class IdSet:
    """Exact, for when the cases and so their ids are held anyway."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def repeats(self, ids: Sequence[str]) -> list[int]:
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
        pass  # a set grows cheaply


class PackedIds:
    """Hashes without the ids. A repeat it reports must be confirmed: hashes can collide."""

    def __init__(self) -> None:
        self._seen = HashTable()
        self.expect = self._seen.expect

    def repeats(self, ids: Sequence[str]) -> list[int]:
        return self._seen.add(list(map(hash, ids)))
