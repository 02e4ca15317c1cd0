"""Files that a dataset names: where they are looked up, and the border they must not cross."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from agentv.support import patterns as globs
from agentv.support.hashes import folder_digest
from agentv.support.patterns import upward

MAX_FILE_BYTES = 64 * 1024 * 1024
CONFIG_FILE = os.path.join(".agentv", "config.yaml")
_PROJECT_MARKS = (CONFIG_FILE, os.path.join(".agentv", "targets.yaml"))
_CACHE_SIZE = 4096

_IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
    ".bmp": "image/bmp",
    ".pdf": "application/pdf",
}


class FileError(Exception):
    """A file that cannot be used: what is wrong, and what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Found(NamedTuple):
    """A file that was found inside the border: its real path and a hash of its bytes."""

    path: str
    digest: str


def project_root(folder: str) -> str:
    """The folder a dataset may read from: see `docs/how-to/datasets.md`, Files."""
    return _project_root(os.path.realpath(folder))


@lru_cache(maxsize=256)
def _project_root(folder: str) -> str:
    parents = [folder, *map(str, Path(folder).parents)]
    for parent in parents:
        if os.path.exists(os.path.join(parent, ".git")):
            return parent
    for parent in reversed(parents):
        if any(os.path.isfile(os.path.join(parent, mark)) for mark in _PROJECT_MARKS):
            return parent
    return folder


class FileFinder:
    """Finds the files one dataset names: next to it, in each parent up to the root, in the working directory."""

    def __init__(self, base_dir: str, root: str, *, allow_outside: bool = False) -> None:
        self._root = os.path.realpath(root)
        self._allow_outside = allow_outside
        self._folders = upward(base_dir, root)
        here = os.path.realpath(os.getcwd())
        if here not in self._folders and self._inside(here):
            self._folders.append(here)
        self._cache: dict[tuple[str, str], Found] = {}

    def find(self, value: str) -> Found:
        """The file that `value` names. Raises FileError when there is none, or none that may be read."""
        return self._found("File", value)

    def find_folder(self, value: str) -> Found:
        """The folder that `value` names, with a hash of all that is in it. Raises FileError as `find` does."""
        return self._found("Folder", value)

    def _found(self, noun: str, value: str) -> Found:
        if (noun, value) not in self._cache:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            of_file = noun == "File"
            real = self._real_path(value, noun, os.path.isfile if of_file else os.path.isdir)
            digest = hashlib.blake2b(_read(real, value), digest_size=16).hexdigest() if of_file else folder_digest(real)
            self._cache[noun, value] = Found(real, digest)
        return self._cache[noun, value]

    def _real_path(self, value: str, noun: str, is_one: Callable[[str], bool]) -> str:
        if not value.strip() or "\0" in value:
            bad, empty = f"'{value}' is not the name of a {noun.lower()}", f"The name of the {noun.lower()} is empty"
            raise FileError(bad if value.strip() else empty)
        tried, outside = [], False
        for candidate in self._candidates(value):
            tried.append(candidate)
            real = os.path.realpath(candidate)
            if not is_one(real):
                continue
            if self._inside(real) or self._allow_outside:
                return real
            outside = True
        if outside:
            hint = (
                "A dataset reads only files inside its project: the nearest folder with .git, else the outermost with "
                ".agentv/config.yaml. --allow-outside-files lifts that for files you trust"
            )
            raise FileError(f"{noun} '{value}' is outside the project root {self._root}, and was not read", hint)
        if tried and os.path.exists(tried[0]):
            raise FileError(f"'{value}' is {'a folder, not a file' if noun == 'File' else 'a file, not a folder'}")
        raise FileError(f"{noun} '{value}' was not found", "Looked for " + ", ".join(tried))

    def _candidates(self, value: str) -> list[str]:
        if value.startswith(("/", "\\")):
            inside = os.path.join(self._root, value.lstrip("/\\"))
            return [inside, value] if self._allow_outside else [inside]
        return list(dict.fromkeys(os.path.normpath(os.path.join(folder, value)) for folder in self._folders))

    def _inside(self, real: str) -> bool:
        return real == self._root or real.startswith(self._root.rstrip(os.sep) + os.sep)


def read_text(path: str, value: str) -> str:
    """The text of a file that was found: UTF-8, line ends as `\\n`."""
    try:
        text = _read(path, value).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"File '{value}' is not UTF-8 text (byte {error.start})"
        raise FileError(what, "Use a part of type 'image'?") from None
    return text.replace("\r\n", "\n")


def read_image(path: str, value: str) -> str:
    """An image file as a data URI with its media type."""
    media_type = _IMAGE_TYPES.get(os.path.splitext(path)[1].lower())
    if media_type is None:
        raise FileError(f"Image '{value}' has an unknown extension", f"Known: {', '.join(_IMAGE_TYPES)}")
    return f"data:{media_type};base64,{base64.b64encode(_read(path, value)).decode('ascii')}"


def is_address(value: str) -> bool:
    """Whether an image is given as an address rather than as a file."""
    return value.startswith(("https://", "http://", "data:"))


def is_guideline(path: str, root: str, patterns: tuple[str, ...]) -> bool:
    """Whether a file's path below the root fits one of the project's guideline patterns."""
    if not patterns:
        return False
    below = os.path.relpath(path, os.path.realpath(root)).replace(os.sep, "/")
    return any(globs.matches(pattern, below) for pattern in patterns)


def _read(path: str, value: str) -> bytes:
    try:
        if os.path.getsize(path) > MAX_FILE_BYTES:
            raise FileError(f"File '{value}' is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB")
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"File '{value}' cannot be read: {error.strerror}") from None
