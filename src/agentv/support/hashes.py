"""Hashes of files and folders, and file names in settings."""

import hashlib
import os
import shlex
import sys
from collections.abc import Iterable

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
    below = relative_path(path)
    return os.path.abspath(path) if below.startswith(os.pardir) else below


def relative_path(path: str | os.PathLike[str], start: str = os.curdir) -> str:
    """Return a relative path, or an absolute one between two drives of Windows."""
    try:
        return os.path.relpath(path, start)
    except ValueError:
        return os.path.abspath(path)


def leaves_folder(path: str) -> bool:
    """Whether a path, relative to a folder, may lead out of it. On Windows, `C:x` and `/x` are not absolute paths."""
    normal = os.path.normpath(path)
    return bool(os.path.splitdrive(normal)[0]) or normal.split(os.sep)[0] in ("", os.pardir)


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
    hashes: dict[str, str] = {}
    home = os.path.realpath(home)
    for path in map(os.path.realpath, paths):
        below = relative_path(path, home).replace(os.sep, "/")
        name = path if below.startswith("../") else below
        if name in hashes:
            continue
        if os.path.isfile(path):
            hashes[name] = file_digest(path).hex()
        elif os.path.isdir(path):
            hashes[name] = folder_digest(path)
    return hashes


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
