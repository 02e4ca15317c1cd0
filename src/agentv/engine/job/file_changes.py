"""What changed in a folder, as a unified diff that `git apply` takes: bounded in size, binary files named only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MAX_BYTES = 256 * 1024
"""How long a diff may become. Files that do not fit any more are named below it."""

MAX_FILE_BYTES = 1024 * 1024
PASSED_OVER = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache"})
"""Folders of tools: what changes there is not what an agent wrote."""

_MAX_CELLS = 200_000_000
"""Lines of one file times lines of the other, above which comparing them takes too long: all are shown as changed."""

_MOST_NAMED = 100
_CONTEXT = 3
_LINK_MODE = 0o120000


class Entry(NamedTuple):
    """A file as it was when it was looked at. Whoever writes to it changes the last of these, whatever else he does."""

    mode: int
    size: int
    modified_ns: int
    changed_ns: int
    inode: int


Snapshot = dict[str, Entry]


def snapshot(folder: str) -> Snapshot:
    """Every file below a folder, by its path from there. Links are files; they are not followed."""
    found: Snapshot = {}
    for path in _files(folder):
        try:
            status = os.lstat(os.path.join(folder, path))
        except OSError:
            continue
        mode = _LINK_MODE if stat.S_ISLNK(status.st_mode) else 0o100755 if status.st_mode & 0o100 else 0o100644
        found[path] = Entry(mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return found


def changes(before: Snapshot, original: str | None, folder: str) -> str:
    """What is different now from a snapshot. `original` has the contents of then; None when there were none."""
    after = snapshot(folder)
    parts: list[str] = []
    left_out: list[str] = []
    size = 0
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        part = _change(path, old, new, original, folder)
        encoded = len(part.encode("utf-8", "replace"))
        if not part:
            continue
        if size + encoded > MAX_BYTES:
            left_out.append(path)
            continue
        parts.append(part)
        size += encoded
    if left_out:
        named = ", ".join(left_out[:_MOST_NAMED]) + (", …" if len(left_out) > _MOST_NAMED else "")
        parts.append(f"# {len(left_out)} more changed, whose diffs are too long: {named}\n")
    return "".join(parts)


def _files(folder: str) -> Iterator[str]:
    # A list of what is still to be looked at, and no recursion: nobody says how deep an agent's folders are.
    below = [""]
    while below:
        parent = below.pop()
        try:
            entries = list(os.scandir(os.path.join(folder, parent)))
        except OSError:
            continue
        for entry in entries:
            path = f"{parent}{entry.name}"
            if entry.is_symlink() or entry.is_file():
                yield path
            elif entry.is_dir() and entry.name not in PASSED_OVER:
                below.append(f"{path}/")


def _change(path: str, old: Entry | None, new: Entry | None, original: str | None, folder: str) -> str:
    """The diff of one file; empty when only times differ."""
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
    texts = (_text(before), _text(after))
    if texts[0] is None or texts[1] is None:
        return f"{head}Binary files {names[0]} and {names[1]} differ\n"
    lines = (_lines(texts[0]), _lines(texts[1]))
    return f"{head}--- {names[0]}\n+++ {names[1]}\n" + "".join(hunks(*lines))


def _content(folder: str, path: str) -> bytes | None:
    """The bytes of a file, where a link leads; None for one that is too large or cannot be read."""
    whole = os.path.join(folder, path)
    try:
        if os.path.islink(whole):
            return os.fsencode(os.readlink(whole))
        if os.path.getsize(whole) > MAX_FILE_BYTES:
            return None
        return Path(whole).read_bytes()
    except OSError:
        return None


def _text(content: bytes | None) -> str | None:
    """The text of a file; None for one that is binary or too large."""
    if content is None or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    """Lines with their ends. Only `\n` ends a line in a diff; `splitlines` knows others."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The hunks of a unified diff between two texts, given as lines with their ends."""
    changed = list(_spans(old, new))
    start = 0
    while start < len(changed):
        end = start + 1
        while end < len(changed) and changed[end].old_start - changed[end - 1].old_end <= 2 * _CONTEXT:
            end += 1
        yield from _hunk(changed[start:end], old, new)
        start = end


class _Span(NamedTuple):
    """Lines of the old text that became lines of the new one."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def _spans(old: Sequence[str], new: Sequence[str]) -> Iterator[_Span]:
    """Where the texts differ. What is the same at both ends is not compared; a middle that is too long is one span."""
    from rapidfuzz.distance import Indel  # late: only a run in a workspace compares files

    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if not left or not right or len(left) * len(right) > _MAX_CELLS:
        if left or right:
            yield _Span(head, head + len(left), head, head + len(right))
        return
    open_span: _Span | None = None
    for code in Indel.opcodes(left, right):
        if code.tag == "equal":
            continue
        span = _Span(*(head + at for at in (code.src_start, code.src_end, code.dest_start, code.dest_end)))
        if open_span is not None and (open_span.old_end, open_span.new_end) == (span.old_start, span.new_start):
            open_span = _Span(open_span.old_start, span.old_end, open_span.new_start, span.new_end)
            continue
        if open_span is not None:
            yield open_span
        open_span = span
    if open_span is not None:
        yield open_span


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines are the same from the start."""
    return next(
        (at for at, (left, right) in enumerate(zip(old, new, strict=False)) if left != right), min(len(old), len(new))
    )


def _hunk(spans: Sequence[_Span], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    first, last = spans[0], spans[-1]
    lead = min(_CONTEXT, first.old_start)
    trail = min(_CONTEXT, len(old) - last.old_end)
    begin, end = first.old_start - lead, last.old_end + trail
    yield f"@@ -{_range(begin, end)} +{_range(first.new_start - lead, last.new_end + trail)} @@\n"
    at = begin
    for span in spans:
        yield from (_line(" ", line) for line in old[at : span.old_start])
        yield from (_line("-", line) for line in old[span.old_start : span.old_end])
        yield from (_line("+", line) for line in new[span.new_start : span.new_end])
        at = span.old_end
    yield from (_line(" ", line) for line in old[at:end])


def _range(begin: int, end: int) -> str:
    length = end - begin
    return f"{begin + 1 if length else begin}" + ("" if length == 1 else f",{length}")


def _line(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _quoted(path: str) -> str:
    """A path as git writes it: in quotes when it has characters that would end it."""
    if path.isprintable() and not set(path) & {'"', "\\"}:
        return path.encode("utf-8", "replace").decode()
    escaped = "".join(
        {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}.get(character)
        or (character if character.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(character)))
        for character in path
    )
    return f'"{escaped}"'
