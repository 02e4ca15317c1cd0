"""Find the datasets in files, folders and globs. Shards form one dataset; sidecars and results files are left out."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from agentv.datasets.detection import MAPPED, detect, unsupported
from agentv.datasets.formats import dataset_format as formats
from agentv.errors import DatasetError, DatasetNotFoundError, DatasetWarning, InvalidDatasetError, UsageError
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import nearest
from agentv.registry import FOREIGN_FOLDERS, FOREIGN_FORMATS, FORMATS
from agentv.support import patterns as globs

_MAGIC = lazy_regex(r"[*?\[{]")
_SHOWN = 10
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
Warn = Callable[[DatasetWarning], None]
Note = Callable[[str], None]
Fail = Callable[[DatasetError], None]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def _stop(error: DatasetError) -> None:
    raise error


class GivenFormat(msgspec.Struct, frozen=True):
    """The format that the user gave for named files, and a field map as text. Empty: recognized by the content."""

    kind: str = ""
    fields: str = ""

    def __post_init__(self) -> None:
        tables = (FORMATS, FOREIGN_FORMATS, FOREIGN_FOLDERS)
        if self.kind and not any(self.kind in table.all_names() for table in tables):
            raise UsageError(f"Unknown format '{self.kind}'", hint=FOREIGN_FORMATS.suggestion(self.kind))


_ANY_FORMAT = GivenFormat()
_READ_TWICE = "A dataset is read more than once: to recognize its format, to check it, and to run it"


def find_datasets(
    paths: Paths, warn: Warn, note: Note, fail: Fail = _stop, given_format: GivenFormat = _ANY_FORMAT
) -> list[formats.Source]:
    """Return the datasets at `paths`. `note` receives each file of a folder or glob that is not a dataset.

    `fail` receives the error for a file that cannot be used; if it returns, the search continues without that file.
    """
    arguments = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(item) for item in paths]
    if not arguments:
        raise DatasetNotFoundError("No dataset given", hint="Pass a file, a folder or a glob")
    kinds: dict[str, str] = {}
    user_paths: set[str] = set()
    for path in arguments:
        matches: list[tuple[str, str]] = []
        if os.path.isdir(path) and detect(path) is None:
            matches = _files_in(path)
        elif globs.has_magic(path) and not os.path.exists(path):
            matches = _in_glob(path)
        else:
            kinds[path] = _existing(path, given_format)
            user_paths.add(path)
        if matches and given_format != _ANY_FORMAT:
            raise UsageError(
                f"A format or a field map needs files, and {path} is a folder or a pattern", hint="Name the files"
            )
        for item, kind in matches:
            kinds.setdefault(item, kind)
    skipped: list[str] = []
    by_base: dict[str, list[str]] = {}
    for path in kinds:
        if formats.may_have_sidecar(path):
            by_base.setdefault(formats.dataset_base(path), []).append(path)
    datasets = {
        path: kind
        for path, kind in kinds.items()
        if path in user_paths or _is_dataset(path, kind, by_base, skipped.append, fail)
    }
    sources = _without_included(list(_joined(datasets, user_paths, warn, fail)), user_paths)
    if given_format.fields:
        sources = [msgspec.structs.replace(source, fields=given_format.fields) for source in sources]
    if not sources:
        more = len(skipped) - _SHOWN
        detail = "\n".join([*skipped[:_SHOWN], *([f"and {more:,} more"] if more > 0 else [])])
        raise DatasetNotFoundError(f"No dataset found in {', '.join(arguments)}", detail, _formats_hint())
    for item in skipped:
        note(item)
    return sources


def _formats_hint() -> str:
    suffixes = ", ".join(formats.known_suffixes())
    return f"Datasets are files with cases: {suffixes}. Pass other files, such as .csv, by name"


def _existing(path: str, file_format: GivenFormat) -> str:
    if os.path.exists(path):
        if not os.path.isfile(path) and not os.path.isdir(path):
            hint = "Write the data to a file first, and name the file"
            raise DatasetNotFoundError(f"Cannot read {path}: it is a pipe or a device", _READ_TWICE, hint, path=path)
        if file_format.kind or file_format.fields:
            return file_format.kind or MAPPED
        if (kind := detect(path)) is None:
            raise unsupported(path)
        return kind
    folder = os.path.dirname(path) or "."
    names = os.listdir(folder) if os.path.isdir(folder) else []
    near = nearest(os.path.basename(path), names)
    hint = f"Did you mean '{os.path.join(os.path.dirname(path), near)}'?" if near else ""
    raise DatasetNotFoundError(
        f"No such file{'' if formats.suggested(path) else ' or folder'}: {path}", hint=hint, path=path
    )


def _files_in(folder: str) -> list[tuple[str, str]]:
    """Return the files and folders below a folder that may be datasets, with their formats, in path order."""
    matches: list[tuple[str, str]] = []
    for parent in folders_in(folder):
        if parent != folder and (kind := detect(parent)):
            matches.append((parent, kind))
            continue
        paths = [os.path.join(parent, name) for name in os.listdir(parent) if not name.startswith(".")]
        matches += _candidates(path for path in paths if os.path.isfile(path))
    return sorted(matches, key=lambda each: each[0].split(os.sep))


def _candidates(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the files whose extension suggests a format, with that format. Other files are not opened."""
    for path in paths:
        if (kind := detect(path, by_extension=True)) is not None:
            yield path, kind


def folders_in(folder: str) -> Iterator[str]:
    """Yield a folder and its subfolders, without hidden folders, virtual environments and installed packages."""
    for parent, folders, _ in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(parent, name))
        yield parent


def _is_skipped(parent: str, name: str) -> bool:
    is_hidden = name.startswith(".") or name in _SKIPPED_FOLDERS
    return is_hidden or os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))


def _in_glob(pattern: str) -> list[tuple[str, str]]:
    """Return the files that match a pattern."""
    matching = globs.glob_files(pattern.replace(os.sep, "/"))
    matches = sorted(_candidates(matching), key=lambda each: each[0].split(os.sep))
    if not matches:
        noun = "file matches, but it is not a dataset" if len(matching) == 1 else "files match, but none is a dataset"
        what = f"{len(matching)} {noun}" if matching else "No file matches the pattern"
        hint = _formats_hint() if matching else ""
        raise DatasetNotFoundError(f"No dataset found: {pattern}", what, hint, path=pattern)
    literal = os.path.dirname(_MAGIC.split(pattern, maxsplit=1)[0])
    return [match for match in matches if not _is_in_skipped(match[0], literal)]


def _is_in_skipped(path: str, literal: str) -> bool:
    """Whether a file is in a skipped folder that is not part of `literal`, the literal start of the pattern."""
    folder = os.path.dirname(path)
    while len(folder) > len(literal):
        parent, name = os.path.split(folder)
        if name not in (".", "..") and _is_skipped(parent, name):
            return True
        folder = parent
    return False


def _is_dataset(path: str, kind: str, by_base: dict[str, list[str]], note: Note, fail: Fail) -> bool:
    """Whether a file found in a folder or by a glob is a dataset, not a sidecar, a settings or a results file."""
    try:
        fmt = formats.load_format(kind)
        reason = fmt.why_not(path)
        same_base = by_base.get(formats.dataset_base(path), [])
        if reason is None and same_base:
            _check_name(path, [other for other in same_base if other not in fmt.files(path)])
    except DatasetError as error:
        fail(error)
        return False
    if reason is not None and not formats.data_files(path):
        note(f"{path}: passed over, {reason}")
    return reason is None


def _without_included(sources: list[formats.Source], user_paths: set[str]) -> list[formats.Source]:
    """Leave out datasets whose cases another dataset lists, unless the user named them."""
    owners: dict[str, set[str]] = {}
    for source in sources:
        for file in source.files:
            owners.setdefault(os.path.normpath(file), set()).add(source.path)
    return [
        source
        for source in sources
        if source.path in user_paths or any(owners[os.path.normpath(file)] == {source.path} for file in source.files)
    ]


def _check_name(path: str, same_base: list[str]) -> None:
    """Reject two datasets with the same name: one could be the other's sidecar."""
    for other in same_base:
        if other != path and not (formats.shard_of(path) and formats.shard_of(other)):
            headline = f"Two datasets with the same name: {path} and {other}"
            hint = "Pass the file you want, or rename one of the two"
            raise InvalidDatasetError(headline, "Both contain cases", hint, path=path)


def _joined(kinds: dict[str, str], user_paths: set[str], warn: Warn, fail: Fail) -> Iterator[formats.Source]:
    """Yield a source for each file, and one source for the shards of a dataset."""
    groups: dict[tuple[str, int], dict[str, int]] = {}
    for path in kinds:
        shard = formats.shard_of(path) or formats.Shard(path, 0, 0)
        groups.setdefault((shard.base, shard.count), {})[path] = shard.index
    for (base, count), indexes in groups.items():
        if not count:
            yield formats.source_of(base, kinds[base])
            continue
        try:
            _check_shards(base, count, indexes, user_paths, warn)
        except DatasetError as error:
            fail(error)
        shards = sorted(indexes, key=lambda path: indexes[path])
        path = shards[0] if len(shards) == 1 else f"{base}-*{formats.suffix_of(shards[0])}"
        yield formats.Source(tuple(shards), base, kinds[shards[0]], path)


def _check_shards(base: str, count: int, shards: dict[str, int], user_paths: set[str], warn: Warn) -> None:
    present = set(shards.values())
    missing = sorted(set(range(count)) - present)
    if len(present) != len(shards):
        headline = f"Two files for the same shard of {base}"
        raise InvalidDatasetError(headline, ", ".join(sorted(shards)), "Remove one of the two", path=base)
    if not missing:
        return
    examples = ", ".join(f"{index:05d}" for index in missing[:5]) + (" …" if len(missing) > 5 else "")
    what = f"{len(missing)} of {count} shards of {base} {'is' if len(missing) == 1 else 'are'} missing: {examples}"
    if user_paths.isdisjoint(shards):
        hint = "Download the missing files, or pass the shards that you want to use"
        raise DatasetNotFoundError(what, hint=hint, path=base)
    warn(DatasetWarning(what, path=base))
