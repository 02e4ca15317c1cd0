"""Paths, folders and globs → datasets: one per file, shards joined, sidecars and files of results left out."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from agentv.datasets.formats.dataset_format import (
    Source,
    data_files,
    dataset_base,
    detect,
    known_suffixes,
    load_format,
    may_have_sidecar,
    require_format,
    shard_of,
    source_of,
    suffix_of,
    suggested,
)
from agentv.errors import DatasetError, DatasetNotFoundError, DatasetWarning, InvalidDatasetError
from agentv.settings.diagnostics import nearest
from agentv.support import patterns as globs

_MAGIC = re.compile(r"[*?\[{]")
_SHOWN = 10
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
Warn = Callable[[DatasetWarning], None]
Note = Callable[[str], None]
Fail = Callable[[DatasetError], None]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def _stop(error: DatasetError) -> None:
    raise error


def find_datasets(paths: Paths, warn: Warn, note: Note, fail: Fail = _stop) -> list[Source]:
    """The datasets that `paths` name. `note` receives each file of a folder or glob that is not a dataset.

    `fail` receives the error of a file that cannot be used; if it returns, the file is left out and the search goes on.
    """
    given = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(each) for each in paths]
    if not given:
        raise DatasetNotFoundError("No dataset was named", hint="Give a file, a folder or a glob")
    kinds: dict[str, str] = {}
    named: set[str] = set()
    for path in given:
        found: list[tuple[str, str]] = []
        if os.path.isdir(path) and detect(path) is None:
            found = files_in(path)
        elif globs.has_magic(path) and not os.path.exists(path):
            found = _in_glob(path)
        else:
            kinds[path] = _existing(path)
            named.add(path)
        for each, kind in found:
            kinds.setdefault(each, kind)
    passed_over: list[str] = []
    by_base: dict[str, list[str]] = {}
    for path in kinds:
        if may_have_sidecar(path):
            by_base.setdefault(dataset_base(path), []).append(path)
    kept = {
        path: kind
        for path, kind in kinds.items()
        if path in named or _is_dataset(path, kind, by_base, passed_over.append, fail)
    }
    sources = list(_joined(kept, named, warn, fail))
    if not sources:
        more = len(passed_over) - _SHOWN
        shown = "\n".join([*passed_over[:_SHOWN], *([f"and {more:,} more"] if more > 0 else [])])
        hint = f"Datasets are files with cases: {', '.join(known_suffixes())}"
        raise DatasetNotFoundError(f"No dataset found in {', '.join(given)}", shown, hint)
    for each in passed_over:
        note(each)
    return sources


def _existing(path: str) -> str:
    if os.path.exists(path):
        return require_format(path)
    folder = os.path.dirname(path) or "."
    names = os.listdir(folder) if os.path.isdir(folder) else []
    near = nearest(os.path.basename(path), names)
    hint = f"Did you mean '{os.path.join(os.path.dirname(path), near)}'?" if near else ""
    raise DatasetNotFoundError(f"No such file{'' if suggested(path) else ' or folder'}: {path}", hint=hint, path=path)


def files_in(folder: str) -> list[tuple[str, str]]:
    """The files below a folder, and the folders, that may be datasets, each with its format, in path order."""
    found: list[tuple[str, str]] = []
    for parent in folders_in(folder):
        if parent != folder and (kind := detect(parent)):
            found.append((parent, kind))
            continue
        paths = [os.path.join(parent, name) for name in os.listdir(parent) if not name.startswith(".")]
        found += _candidates(path for path in paths if os.path.isfile(path))
    return sorted(found, key=lambda each: each[0].split(os.sep))


def _candidates(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Files whose extension suggests a format, with that format; no other file is opened."""
    for path in paths:
        kind = detect(path, by_extension=True)
        if kind is not None:
            yield path, kind


def folders_in(folder: str) -> list[str]:
    """A folder and those below it, without hidden ones and those that hold other people's code."""
    found = []
    for parent, folders, _ in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(parent, name))
        found.append(parent)
    return found


def _is_skipped(parent: str, name: str) -> bool:
    is_hidden = name.startswith(".") or name in _SKIPPED_FOLDERS
    return is_hidden or os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))


def _in_glob(pattern: str) -> list[tuple[str, str]]:
    """Files that fit; `{a,b}` is ours to expand, the standard library does the rest."""
    fitting = {path for each in _braces(pattern) for path in glob.glob(each, recursive=True) if os.path.isfile(path)}
    found = sorted(_candidates(fitting), key=lambda each: each[0].split(os.sep))
    if not found:
        seen = f"{len(fitting)} files fit, none of them a dataset" if fitting else "Nothing fits the pattern"
        hint = f"Datasets are files with cases: {', '.join(known_suffixes())}" if fitting else ""
        raise DatasetNotFoundError(f"No dataset found: {pattern}", seen, hint, path=pattern)
    written_out = os.path.dirname(_MAGIC.split(pattern, maxsplit=1)[0])
    return [each for each in found if not _passes_skipped(each[0], written_out)]


def _passes_skipped(path: str, written_out: str) -> bool:
    """Whether a file lies in a skipped folder, other than those that the pattern itself spells out."""
    folder = os.path.dirname(path)
    while len(folder) > len(written_out):
        parent, name = os.path.split(folder)
        if name not in (".", "..") and _is_skipped(parent, name):
            return True
        folder = parent
    return False


def _braces(pattern: str) -> Iterator[str]:
    start = pattern.find("{")
    end = pattern.find("}", start)
    if start < 0 or end < 0:
        yield pattern
        return
    for option in pattern[start + 1 : end].split(","):
        yield from _braces(pattern[:start] + option + pattern[end + 1 :])


def _is_dataset(path: str, kind: str, by_base: dict[str, list[str]], note: Note, fail: Fail) -> bool:
    """Whether a file that a folder or glob gave is a dataset, and not a sidecar, settings, or a file of results."""
    try:
        reason = load_format(kind).why_not(path)
        if reason is None:
            _check_name(path, by_base.get(dataset_base(path), []))
    except DatasetError as error:
        fail(error)
        return False
    if reason is not None and not data_files(path):
        note(f"{path}: passed over, {reason}")
    return reason is None


def _check_name(path: str, same_base: list[str]) -> None:
    """Refuse a dataset next to another of its name: one of the two would be taken for the other's sidecar."""
    for other in same_base:
        if other != path and not (shard_of(path) and shard_of(other)):
            headline = f"Two datasets of one name: {path} and {other}"
            hint = "Name the one you mean, or rename one of the two"
            raise InvalidDatasetError(headline, "Each of them has cases", hint, path=path)


def _joined(kinds: dict[str, str], named: set[str], warn: Warn, fail: Fail) -> Iterator[Source]:
    """Files as sources; the shards of one dataset as one source, at the place of the first."""
    groups: dict[tuple[str, int], list[str]] = {}
    for path in kinds:
        shard = shard_of(path)
        groups.setdefault((path, 0) if shard is None else (shard.base, shard.count), []).append(path)
    for (base, count), paths in groups.items():
        if not count:
            yield source_of(base, kinds[base])
            continue
        shards = sorted(paths, key=_shard_index)
        try:
            _check_shards(base, count, shards, named, warn)
        except DatasetError as error:
            fail(error)
        path = shards[0] if len(shards) == 1 else f"{base}-*{suffix_of(shards[0])}"
        yield Source(tuple(shards), base, kinds[shards[0]], path)


def _shard_index(path: str) -> int:
    shard = shard_of(path)
    return shard.index if shard else 0


def _check_shards(base: str, count: int, shards: list[str], named: set[str], warn: Warn) -> None:
    there = [_shard_index(path) for path in shards]
    missing = sorted(set(range(count)) - set(there))
    if len(set(there)) != len(there):
        headline = f"Two files for one shard of {base}"
        raise InvalidDatasetError(headline, ", ".join(shards), "Remove one of the two", path=base)
    if not missing:
        return
    shown = ", ".join(f"{index:05d}" for index in missing[:5]) + (" …" if len(missing) > 5 else "")
    what = f"{len(missing)} of {count} shards of {base} are missing: {shown}"
    if named.isdisjoint(shards):
        hint = "Fetch the missing files, or name the shards that you want one by one"
        raise DatasetNotFoundError(what, hint=hint, path=base)
    warn(DatasetWarning(what, path=base))
