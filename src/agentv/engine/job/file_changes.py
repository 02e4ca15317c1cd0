"""Diff a folder against a snapshot, in the format of `git diff`: limited in size, without binary contents."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from typing import NamedTuple

from agentv.support.private_files import open_folder, read_file

MAX_BYTES = 256 * 1024
"""The maximum size of a diff. Files that do not fit are listed at its end."""

MAX_FILE_BYTES = 1024 * 1024
IGNORED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache"})
"""Folders of tools, whose contents are not written by the agent."""

MAX_LINES = 5000
"""The maximum number of lines to compare. Larger files are listed at the end of the diff."""

_MAX_LISTED = 100
_CONTEXT = 3
_LINK_MODE = 0o120000
_NUMBERS = re.compile(r"([-+])(\d+)")


class Entry(NamedTuple):
    """The metadata of a file. Any write changes `changed_ns`."""

    mode: int
    size: int
    modified_ns: int
    changed_ns: int
    inode: int


Snapshot = dict[str, Entry]


def snapshot(folder: str) -> Snapshot:
    """Return the metadata of every file below a folder, by relative path. Links are not followed."""
    entries: Snapshot = {}
    for path in _files(folder):
        try:
            status = os.lstat(os.path.join(folder, path))
        except OSError:
            continue
        mode = _LINK_MODE if stat.S_ISLNK(status.st_mode) else 0o100755 if status.st_mode & 0o100 else 0o100644
        entries[path] = Entry(mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return entries


def changes(before: Snapshot, original: str | None, folder: str) -> str:
    """Return the diff since a snapshot. `original` is a copy of the old contents; None if there were none."""
    after = snapshot(folder)
    parts: list[str] = []
    left_out: list[str] = []
    size = 0
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        try:
            part = _change(path, old, new, original, folder)
        except ValueError:
            left_out.append(path)
            continue
        encoded = len(part.encode("utf-8", "replace"))
        if size + encoded > MAX_BYTES:
            left_out.append(path)
        else:
            parts.append(part)
            size += encoded
    if left_out:
        names = ", ".join(left_out[:_MAX_LISTED]) + (", …" if len(left_out) > _MAX_LISTED else "")
        parts.append(f"# {len(left_out)} more changed, but their diffs are too long: {names}\n")
    return "".join(parts)


def _files(folder: str) -> Iterator[str]:
    # Iterative, because folders may be nested deeper than the recursion limit.
    below = [""]
    while below:
        parent = below.pop()
        try:
            files, folders = _entries(folder, parent)
        except OSError:
            continue
        yield from (f"{parent}{name}" for name in files)
        below += [f"{parent}{name}/" for name in folders if name not in IGNORED_FOLDERS]


def _entries(folder: str, parent: str) -> tuple[list[str], list[str]]:
    """Return the names of the files and of the folders in a folder below `folder`, without following links."""
    opened = open_folder(folder, parent)
    try:
        with os.scandir(os.path.join(folder, parent) if opened is None else opened) as entries:
            rows = [(entry.name, entry.is_dir(follow_symlinks=False), _is_shown(entry)) for entry in entries]
    finally:
        if opened is not None:
            os.close(opened)
    return [name for name, _, is_visible in rows if is_visible], [name for name, is_folder, _ in rows if is_folder]


def _is_shown(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_file(follow_symlinks=False)


def _change(path: str, old: Entry | None, new: Entry | None, original: str | None, folder: str) -> str:
    """Return the diff of one file; empty if only its times differ."""
    before = b"" if old is None or original is None else _content(original, path)
    after = b"" if new is None else _content(folder, path)
    same_mode = old is not None and new is not None and old.mode == new.mode
    if same_mode and before is not None and before == after:
        return ""
    a, b = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    head = f"diff --git {a} {b}\n"
    if old is None and new is not None:
        head += f"new file mode {new.mode:o}\n"
    elif new is None and old is not None:
        head += f"deleted file mode {old.mode:o}\n"
    elif old is not None and new is not None and not same_mode:
        head += f"old mode {old.mode:o}\nnew mode {new.mode:o}\n"
    names = (a if old else "/dev/null", b if new else "/dev/null")
    if before is not None and before == after:
        return head
    old_lines, new_lines = _lines(before), _lines(after)
    if old_lines is None or new_lines is None:
        return f"{head}Binary files {names[0]} and {names[1]} differ\n"
    return f"{head}--- {names[0]}\n+++ {names[1]}\n" + "".join(hunks(old_lines, new_lines))


def _content(folder: str, path: str) -> bytes | None:
    """Return the bytes of a file, or the target of a link; None if it is too large or cannot be read."""
    parent, _, name = path.rpartition("/")
    opened = None
    try:
        opened = open_folder(folder, parent)
        place = os.path.join(folder, path) if opened is None else name
        if stat.S_ISLNK(os.lstat(place, dir_fd=opened).st_mode):
            return os.fsencode(os.readlink(place, dir_fd=opened))
        return read_file(place, MAX_FILE_BYTES, opened)
    except OSError:
        return None
    finally:
        if opened is not None:
            os.close(opened)


def _lines(content: bytes | None) -> list[str] | None:
    """Split a file into lines, only at `\n` as in a diff; None if it is binary or too large."""
    if content is None or b"\0" in content:
        return None
    try:
        return io.StringIO(content.decode(), newline="\n").readlines()
    except UnicodeDecodeError:
        return None


def hunks(old: list[str], new: list[str]) -> Iterator[str]:
    """Yield the hunks of a unified diff between two lists of lines. Raises ValueError if they are too long."""
    # Skip equal lines at both ends, except for the context of a hunk.
    head = max(0, _common(old, new) - _CONTEXT)
    tail = max(0, _common(old[head:][::-1], new[head:][::-1]) - _CONTEXT)
    old_part, new_part = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(old_part), len(new_part)) > MAX_LINES and min(len(old_part), len(new_part)) > _CONTEXT:
        raise ValueError("too many lines to compare")
    for line in islice(unified_diff(old_part, new_part, n=_CONTEXT), 2, None):
        if line.startswith("@@"):
            line = _NUMBERS.sub(lambda match: f"{match[1]}{int(match[2]) + head}", line)
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _common(old: list[str], new: list[str]) -> int:
    """Return the number of equal lines at the start."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (old_line, new_line) in pairs if old_line != new_line), min(len(old), len(new)))


def _quoted(path: str) -> str:
    """Return a path as git writes it: quoted if it has special characters."""
    if path.isprintable() and not set(path) & {'"', "\\"}:
        return path.encode("utf-8", "replace").decode()
    escaped = "".join(
        {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}.get(character)
        or (character if character.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(character)))
        for character in path
    )
    return f'"{escaped}"'
