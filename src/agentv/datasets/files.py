"""Find and read the files that a dataset names, inside its project only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentv.model.message import FilePart, ImagePart
from agentv.model.values import hash_bytes
from agentv.settings.project import is_inside, is_too_wide, project_root, roots_as_written
from agentv.support import patterns as globs
from agentv.support.hashes import folder_digest, relative_path
from agentv.support.patterns import upward
from agentv.trust.roots import advice, is_trusted

if TYPE_CHECKING:
    from agentv.model.origin import Origin

MAX_FILE_BYTES = 64 * 1024 * 1024
_CACHE_SIZE = 4096
_REFUSED_HINT = (
    "A dataset may read only files inside its project, and no hidden ones such as .env. The project is the nearest "
    "folder with .git, else the outermost with .agentv/config.yaml, else the nearest with SKILL.md. Pass "
    "--allow-outside-files if you trust the dataset"
)
_SHOWN_FOLDERS = (
    *((".agentv", name) for name in ("assertions", "environments", "evaluators", "graders", "judges")),
    *((".agentv", name) for name in ("prompts", "templates", "workspaces")),
    *((".agentv", "default-test.yaml"), (".github",), (".claude", "skills"), (".agents", "skills")),
)
"""Hidden folders and files that datasets may read: templates, instructions, skills, and defaults of AgentV 5."""

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
    """A file that cannot be used: the problem, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Found(msgspec.Struct, frozen=True):
    """A file or folder that was found: its real path and a hash of its contents."""

    path: str
    digest: str


class FileFinder:
    """Finds files for one dataset: next to it, in its parent folders up to the root, or in the working directory."""

    def __init__(self, base_dir: str, root: str, *, allow_outside: bool = False) -> None:
        self._root = os.path.realpath(root)
        self._base = os.path.realpath(base_dir)
        self._allow_outside = allow_outside
        self._folders = upward(base_dir, root)
        here = os.path.realpath(os.getcwd())
        if here not in self._folders and is_inside(here, self._root):
            self._folders.append(here)
        self._cache: dict[tuple[str, bool], Found] = {}

    def find(self, value: str, *, is_folder: bool = False) -> Found:
        """Return the file or folder that `value` names. Raises FileError if it is missing or outside the project."""
        if (file := self._cache.get((value, is_folder))) is None:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            real = self._real_path(value, is_folder)
            digest = folder_digest(real) if is_folder else hash_bytes(_read(real, value))
            file = self._cache[value, is_folder] = Found(real, digest)
        return file

    def find_settings(self, value: str) -> Found:
        """Return a file with settings that may run programs: that of a trusted dataset must be trusted as well."""
        file = self.find(value)
        if is_trusted(self._base) and not is_trusted(file.path):
            hint = advice(file.path)
            raise FileError(f"File '{value}' is outside your project, may run programs, and is not trusted", hint)
        return file

    def below(self, folder: str, value: str) -> str:
        """Return a name for `find` that means `value` relative to a folder inside the project."""
        inside = relative_path(os.path.join(os.path.realpath(folder), value), self._root)
        return "/" + inside.replace(os.sep, "/")

    def _real_path(self, value: str, is_folder: bool) -> str:
        noun = "Folder" if is_folder else "File"
        if not value.strip() or "\0" in value:
            bad, empty = f"'{value}' is not a valid {noun.lower()} name", f"The {noun.lower()} name is empty"
            raise FileError(bad if value.strip() else empty)
        exists = os.path.isdir if is_folder else os.path.isfile
        tried, refused = [], ""
        for candidate in self._candidates(value):
            tried.append(candidate)
            real = os.path.realpath(candidate)
            if not exists(real):
                continue
            why = "" if self._allow_outside else refusal(real, self._base, self._root)
            if not why:
                return real
            refused = refused or why
        if refused:
            raise FileError(f"{noun} '{value}' {refused} and was not read", _REFUSED_HINT)
        if tried and os.path.exists(tried[0]):
            raise FileError(f"'{value}' is {'a file, not a folder' if is_folder else 'a folder, not a file'}")
        raise FileError(f"{noun} '{value}' was not found", "Looked for " + ", ".join(tried))

    def _candidates(self, value: str) -> list[str]:
        if value.startswith(("/", "\\")):
            inside = os.path.join(self._root, value.lstrip("/\\"))
            return [inside, value] if self._allow_outside else [inside]
        return list(dict.fromkeys(os.path.normpath(os.path.join(folder, value)) for folder in self._folders))


def refusal(real: str, base_dir: str, root: str) -> str:
    """Return why a dataset in `base_dir` must not read a file; empty if it may. All are real paths."""
    if is_too_wide(root):
        return f"is in {root}, which is never a project,"
    if not is_inside(real, root):
        return f"is outside the project root {root}"
    # A dataset that is itself in a hidden folder may read the files next to it.
    start = base_dir if is_inside(real, base_dir) else root
    return "is hidden" if _is_hidden(os.path.relpath(real, start)) else ""


def _is_hidden(below: str) -> bool:
    """Whether a relative path has a part that starts with a dot, outside folders made for agents to read."""
    parts = tuple(part for part in below.split(os.sep) if part != os.curdir)
    hidden = [at for at, part in enumerate(parts) if part.startswith(".")]
    if hidden and any(parts[hidden[0] : hidden[0] + len(prefix)] == prefix for prefix in _SHOWN_FOLDERS):
        hidden = hidden[1:]
    return bool(hidden)


def check_not_linked_outside(path: str) -> None:
    """Raise FileError if a dataset is a link to a file outside its project, or below such a link."""
    real = os.path.realpath(path)
    if not os.path.exists(real) or real == os.path.normpath(os.path.abspath(path)) or path.startswith("/dev/"):
        return
    for root in roots_as_written(path):
        if not is_inside(real, os.path.realpath(root)):
            hint = "Pass the file itself, or --allow-outside-files if you trust the link"
            raise FileError(f"It is a link to {real}, outside the project root {root}", hint)


def finder_of(origin: Origin, *, own: bool = False) -> FileFinder:
    """Return the finder for files of cases; with `own`, for files that the user names for a dataset from outside."""
    if own and origin.is_foreign:
        return FileFinder(origin.work_dir, project_root(origin.work_dir))
    return FileFinder(origin.base_dir or ".", origin.root or ".")


def read_text(part: FilePart) -> str:
    """Read the UTF-8 text file of a part with line endings as `\\n`. Raises FileError, also if the file changed."""
    value = part.value
    try:
        text = _read_unchanged(part).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"File '{value}' is not UTF-8 text (byte {error.start})"
        raise FileError(what, "For an image, use a part of type 'image'") from None
    return text.replace("\r\n", "\n")


def read_image(part: ImagePart) -> str:
    """Read the image file of a part as a data URI. Raises FileError, also if the file changed."""
    if (media_type := _IMAGE_TYPES.get(os.path.splitext(part.path)[1].lower())) is None:
        raise FileError(
            f"Image '{part.value}' has an unknown extension", f"Known extensions: {', '.join(_IMAGE_TYPES)}"
        )
    from base64 import b64encode  # late: few cases have images

    return f"data:{media_type};base64,{b64encode(_read_unchanged(part)).decode('ascii')}"


def is_address(value: str) -> bool:
    """Whether an image is given as a URL rather than as a file."""
    return value.startswith(("https://", "http://", "data:"))


def is_guideline(path: str, root: str, patterns: tuple[str, ...]) -> bool:
    """Whether a file's path below the root matches one of the project's guideline patterns."""
    if not patterns:
        return False
    below = os.path.relpath(path, os.path.realpath(root)).replace(os.sep, "/")
    return any(globs.matches(pattern, below) for pattern in patterns)


def _read_unchanged(part: FilePart | ImagePart) -> bytes:
    data = _read(part.path, part.value)
    if part.digest and hash_bytes(data) != part.digest:
        raise FileError(f"File '{part.value}' changed after the dataset was read", "Run again with the changed file")
    return data


def _read(path: str, value: str) -> bytes:
    try:
        if os.path.getsize(path) > MAX_FILE_BYTES:
            raise FileError(f"File '{value}' is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB")
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"File '{value}' cannot be read: {error.strerror}") from None
