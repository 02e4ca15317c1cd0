"""The runs that the page lists, and their ids: requests name runs by id, never by path."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from agentv.errors import AgentvError, UsageError
from agentv.extensions.view.appended_records import file_stamp
from agentv.runs.catalogue import (
    RunEntry,
    RunJournal,
    bare_entry,
    is_run,
    newest_first,
    paths_in,
    project_paths,
    read_entry,
)
from agentv.runs.folder import RESULTS_FOLDER
from agentv.runs.folder_lock import may_be_locked
from agentv.runs.record import format_of

_STAMPED = ("run.json", "summary.json")
_MOST_BYTES = 32 << 20


class UnknownRunError(AgentvError):
    """A run that is not in the list."""


class ListedRun(NamedTuple):
    """A run of the list."""

    id: str
    entry: RunEntry

    @property
    def data(self) -> dict[str, Any]:
        """The run as the page reads it."""
        fields = {name: getattr(self.entry, name) for name in self.entry.__struct_fields__}
        prompts = dict.fromkeys(name for target in self.entry.targets.values() for name in target.prompts)
        return {"id": self.id, **fields, "prompts": list(prompts)}


class _Known(NamedTuple):
    stamp: object
    entry: RunEntry


Place = Callable[[], Iterable[Path]]
"""Return the paths of the runs in a place, which may change."""


class RunList:
    """The runs in some places. `refresh` reads only runs that are new or changed.

    `name` returns the shortest RUN argument for a path. `root` is the project whose tags are shown.
    """

    def __init__(self, places: Sequence[Place], *, root: str, name: Callable[[str], str]) -> None:
        self._places = places
        self._root = root
        self._name = name
        self._known: dict[str, _Known] = {}
        self._runs: dict[str, ListedRun] = {}
        self._lock = Lock()

    def refresh(self) -> bool:
        """Look for new, changed and deleted runs. Return whether there are any."""
        with self._lock:
            journal = RunJournal(self._root)
            by_path: dict[str, _Known] = {}
            for path in (path for place in self._places for path in place()):
                real = os.path.realpath(path)
                by_path.setdefault(real, self._entry(path, self._known.get(real), journal))
            entries = newest_first(item.entry for item in by_path.values())
            runs = {id: ListedRun(id, entry) for entry in entries for id in (run_id_of(entry.path),)}
            is_changed = runs != self._runs
            self._known, self._runs = by_path, runs
            return is_changed

    def runs(self) -> list[ListedRun]:
        """Return the runs as of the last refresh, newest first."""
        return list(self._runs.values())

    def find(self, id: str) -> ListedRun:
        """Return the run with this id. Raises UnknownRunError."""
        if (run := self._runs.get(id)) is None:
            moved = "It may have been deleted, moved or renamed"
            raise UnknownRunError("This run is not in the list", moved, "Go back to the list of runs")
        return run

    def _entry(self, path: Path, previous: _Known | None, journal: RunJournal) -> _Known:
        stamp = _stamp_of(path, None if previous is None else previous.entry)
        if previous is not None and previous.stamp == stamp:
            entry = previous.entry
        else:
            entry = bare_entry(path) if _is_large(path) else read_entry(path)
            entry = msgspec.structs.replace(entry, name=self._name(entry.path))
        tags = journal.tags_of(path)
        return _Known(stamp, entry if entry.tags == tags else msgspec.structs.replace(entry, tags=tags))


def run_id_of(path: Path | str) -> str:
    """Return the id of a run on the page, which stays the same while the run has this path."""
    return hashlib.blake2b(os.path.realpath(path).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()


def _stamp_of(path: Path, entry: RunEntry | None) -> object:
    """Return a value that changes when the entry of a run has to be read again."""
    if not (path / "run.json").is_file():
        return file_stamp(path), *(file_stamp(path / name) for name in ("results.jsonl", "index.jsonl"))
    is_over = entry is not None and entry.state in ("finished", "unreadable")
    is_running = not is_over and may_be_locked(path)
    return *(file_stamp(path / name) for name in _STAMPED), is_running


def _is_large(path: Path) -> bool:
    """Return whether a run without a manifest is listed without its figures, which would take long."""
    return path.is_file() and file_stamp(path)[1] > _MOST_BYTES


def places_of(paths: Sequence[str], root: str) -> list[Place]:
    """Return the places that arguments name: runs, folders of runs, and projects; without any, the project.

    Raises UsageError for a file that is not a run.
    """
    return [_place(Path(path)) for path in paths] or [_project(root)]


def _place(path: Path) -> Place:
    if path.is_dir() and not is_run(path):
        if (path / RESULTS_FOLDER).is_dir():
            return _project(str(path))
        return lambda: paths_in(path)
    if not path.is_dir() and not path.is_file():
        raise UsageError(f"Not a run: {path}", "It is neither a file nor a folder")
    if path.is_file():
        format_of(path)
    return lambda: [path] if path.exists() else []


def _project(root: str) -> Place:
    return lambda: project_paths(root, RunJournal(root))
