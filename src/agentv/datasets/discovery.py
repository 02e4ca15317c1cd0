"""Paths, folders and globs → datasets: one per file, shards joined, sidecars and files of results set aside."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentv.datasets.case.keys import CASE_LIST_KEYS
from agentv.datasets.formats.jsonl import first_row, sidecar_of
from agentv.datasets.formats.yaml_dataset import case_list_key, parse_yaml_file
from agentv.datasets.source import Source, base_of, data_files, dataset_base, kind_of, require_kind, shard_of
from agentv.errors import DatasetError, DatasetNotFoundError, DatasetParseError, DatasetWarning, InvalidDatasetError
from agentv.settings.diagnostics import nearest
from agentv.support import globs

_MAGIC = re.compile(r"[*?\[{]")
_CASE_LIST = re.compile(rb"""(?m)^["']?(?:%s)["']?\s*:""" % "|".join(CASE_LIST_KEYS).encode())
_WHAT_DATASETS_ARE = "Datasets are .yaml, .yml and .jsonl files with cases"
_SHOWN = 10
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
Warn = Callable[[DatasetWarning], None]
Note = Callable[[str], None]
Fail = Callable[[DatasetError], None]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def _stop(error: DatasetError) -> None:
    raise error


def find_datasets(paths: Paths, warn: Warn, note: Note, fail: Fail = _stop) -> list[Source]:
    """The datasets that `paths` name. `note` is told of files that a folder or glob holds and that are no datasets.

    `fail` is told what is wrong with a file; when it returns, the file is left out and the search goes on.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise DatasetNotFoundError("No dataset was named", hint="Give a file, a folder or a glob")
    files: dict[str, bool] = {}
    for path in [os.fspath(each) for each in given]:
        if os.path.isdir(path):
            files |= {found: files.get(found, False) for found in files_in(path)}
        elif globs.has_magic(path) and not os.path.exists(path):
            files |= {found: files.get(found, False) for found in _in_glob(path)}
        else:
            files[_existing(path)] = True
    named = {path for path, by_name in files.items() if by_name}
    passed_over: list[str] = []
    kept = named | _datasets_only([path for path in files if path not in named], named, passed_over.append, fail)
    sources = list(_joined([path for path in files if path in kept], named, warn, fail))
    if not sources:
        shown = ", ".join(os.fspath(each) for each in given)
        raise DatasetNotFoundError(f"No dataset found in {shown}", _some_of(passed_over), _WHAT_DATASETS_ARE)
    for each in passed_over:
        note(each)
    return sources


def _some_of(passed_over: list[str]) -> str:
    more = len(passed_over) - _SHOWN
    return "\n".join([*passed_over[:_SHOWN], *([f"and {more:,} more"] if more > 0 else [])])


def _existing(path: str) -> str:
    if os.path.exists(path):
        require_kind(path)
    else:
        folder = os.path.dirname(path) or "."
        names = os.listdir(folder) if os.path.isdir(folder) else []
        near = nearest(os.path.basename(path), names)
        hint = f"Did you mean '{os.path.join(os.path.dirname(path), near)}'?" if near else ""
        raise DatasetNotFoundError(f"No such file{'' if kind_of(path) else ' or folder'}: {path}", hint=hint, path=path)
    return path


def files_in(folder: str) -> list[str]:
    """The files below a folder that may be datasets, in path order."""
    found = [
        os.path.join(parent, name)
        for parent in folders_in(folder)
        for name in os.listdir(parent)
        if kind_of(name) and not name.startswith(".") and os.path.isfile(os.path.join(parent, name))
    ]
    return sorted(found, key=lambda path: path.split(os.sep))


def folders_in(folder: str) -> list[str]:
    """A folder and those below it, without hidden ones and those that hold other people's code."""
    found = []
    for parent, folders, _ in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(parent, name))
        found.append(parent)
    return found


def _is_skipped(parent: str, name: str) -> bool:
    if name.startswith(".") or name in _SKIPPED_FOLDERS:
        return True
    return os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))


def _in_glob(pattern: str) -> list[str]:
    """Files that fit; `{a,b}` is ours to expand, the standard library does the rest."""
    fitting = {path for each in _braces(pattern) for path in glob.glob(each, recursive=True) if os.path.isfile(path)}
    files = sorted((path for path in fitting if kind_of(path)), key=lambda path: path.split(os.sep))
    if not files:
        seen = (
            f"{len(fitting)} files fit, none of them a .yaml, .yml or .jsonl" if fitting else "Nothing fits the pattern"
        )
        raise DatasetNotFoundError(f"No dataset found: {pattern}", seen, path=pattern)
    written_out = os.path.dirname(_MAGIC.split(pattern, maxsplit=1)[0])
    return [path for path in files if not _passes_skipped(path, written_out)]


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


def _datasets_only(candidates: list[str], named: set[str], note: Note, fail: Fail) -> set[str]:
    """What a folder or glob found, without sidecars, other YAML and files of results."""
    by_base = {dataset_base(path): path for path in [*candidates, *named] if kind_of(path) == "jsonl"}
    kept = set()
    for path in candidates:
        try:
            reason = _why_not(path, by_base)
        except DatasetError as error:
            fail(error)
            continue
        if reason is None:
            kept.add(path)
        elif reason:
            note(f"{path}: passed over, {reason}")
    return kept


def _why_not(path: str, by_base: dict[str, str]) -> str | None:
    """Why a file is no dataset; empty for a sidecar, which goes without saying; None for a dataset."""
    if kind_of(path) == "jsonl":
        if _holds_results(path):
            return "a file of results"
        if os.path.basename(path) == "cases.jsonl" and os.path.isfile(os.path.join(os.path.dirname(path), "run.json")):
            return "the cases of an earlier run"
        other = by_base[dataset_base(path)]
        if other != path and not (shard_of(path) and shard_of(other)):
            raise _two_of_one_name(path, other)
        return None
    base = base_of(path)
    has_cases = _lists_cases(path)
    if has_cases and base in by_base:
        raise _two_of_one_name(path, by_base[base])
    if has_cases:
        return None
    return "" if sidecar_of(base) == path and data_files(base) else "no list of cases"


def _two_of_one_name(path: str, other: str) -> InvalidDatasetError:
    hint = "Name the one you mean, or rename one of the two"
    return InvalidDatasetError(
        f"Two datasets of one name: {path} and {other}", "Each of them has cases", hint, path=path
    )


def _lists_cases(path: str) -> bool:
    """Whether a YAML file has a list of cases. One that cannot be read counts only if it looks as if it had one, and so
    does one with cases under a misspelt name: passed over, nobody would miss them.
    """
    try:
        data = parse_yaml_file(path)
        return case_list_key(data) is not None or _misspells_cases(data)
    except DatasetParseError:
        # Without its mark and its zeros, text in UTF-16 looks like text.
        if _CASE_LIST.search(Path(path).read_bytes().lstrip(b"\xff\xfe").replace(b"\0", b"")):
            raise
        return False


def _misspells_cases(data: Any) -> bool:
    lists = data.items() if isinstance(data, dict) else ()
    return any(
        isinstance(items, list) and any(map(_looks_like_a_case, items)) and nearest(key, CASE_LIST_KEYS) is not None
        for key, items in lists
    )


def _looks_like_a_case(item: Any) -> bool:
    return isinstance(item, dict) and "id" in item and not item.keys().isdisjoint(("input", "input_messages"))


def _holds_results(path: str) -> bool:
    row = first_row(Source((path,), base_of(path), "jsonl"))
    return isinstance(row, dict) and "score" in row and ("eval_id" in row or "test_id" in row)


def _joined(files: Iterable[str], named: set[str], warn: Warn, fail: Fail) -> Iterator[Source]:
    """Files as sources; the shards of one dataset as one source, at the place of the first."""
    groups: dict[tuple[str, object], list[str]] = {}
    for path in files:
        shard = shard_of(path)
        key = (path, None) if shard is None else (shard.base, shard.count)
        groups.setdefault(key, []).append(path)
    for (base, count), paths in groups.items():
        if count is None:
            yield Source((base,), base_of(base), require_kind(base))
            continue
        shards = sorted(paths, key=lambda path: _shard_index(path))
        try:
            _check_shards(base, int(str(count)), shards, named, warn)
        except DatasetError as error:
            fail(error)
        yield Source(tuple(shards), base, "jsonl")


def _shard_index(path: str) -> int:
    shard = shard_of(path)
    return shard.index if shard else 0


def _check_shards(base: str, count: int, shards: list[str], named: set[str], warn: Warn) -> None:
    there = [_shard_index(path) for path in shards]
    missing = sorted(set(range(count)) - set(there))
    if len(set(there)) != len(there):
        raise InvalidDatasetError(
            f"Two files for one shard of {base}", ", ".join(shards), "Remove one of the two", path=base
        )
    if not missing:
        return
    shown = ", ".join(f"{index:05d}" for index in missing[:5]) + (" …" if len(missing) > 5 else "")
    what = f"{len(missing)} of {count} shards of {base} are missing: {shown}"
    if named.isdisjoint(shards):
        raise DatasetNotFoundError(
            what, hint="Fetch the missing files, or name the shards that you want one by one", path=base
        )
    warn(DatasetWarning(what, path=base))
