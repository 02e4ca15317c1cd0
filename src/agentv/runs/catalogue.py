"""List the runs of a project or folder with their state and figures, tag runs, and remove them."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from agentv.errors import AgentvError, file_errors
from agentv.runs.folder import RECORD_FILES, RESULTS_FOLDER, RunFolder, resume_obstacle
from agentv.runs.folder_lock import is_locked
from agentv.runs.record import format_of
from agentv.runs.store import RunStore
from agentv.runs.target_summary import TargetSummary

_FOREIGN_FILES = (".eval", ".json", ".jsonl")
_UNKNOWN = datetime.min.replace(tzinfo=UTC)

State = Literal["finished", "unfinished", "running", "foreign", "unreadable"]


class RunEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. The figures come from its summary or, without one, its records."""

    run_id: str
    name: str = ""
    """The argument that commands accept as RUN; a folder's name may differ from its run id."""

    path: str
    state: State
    started_at: str | None = None
    jobs: int | None = None
    done: int | None = None
    """The number of its jobs with a record."""

    exit_code: int | None = None
    git_commit: str | None = None
    git_branch: str | None = None
    experiment: str | None = None
    tags: tuple[str, ...] = ()
    """Names of this run in its project."""

    datasets: tuple[str, ...] = ()
    targets: dict[str, TargetSummary] = {}
    target_names: tuple[str, ...] = ()
    """Known before there are figures."""

    problem: str = ""
    """Why an unreadable run cannot be read."""

    @property
    def began(self) -> datetime | None:
        """The start time; None if unknown."""
        try:
            start = datetime.fromisoformat(self.started_at or "")
        except ValueError:
            return None
        return start if start.tzinfo else start.replace(tzinfo=UTC)


class JournalLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run outside the results folder; or a tag and the run it names, None if the tag was removed.

    The path is relative to the project if the run is inside it.
    """

    path: str | None = None
    tag: str | None = None


class RunJournal:
    """The list of a project's runs made with `--out`, and its tags. Lines are only appended; the last one counts."""

    def __init__(self, root: Path | str) -> None:
        self._root = os.path.realpath(root)
        self._file = Path(root, ".agentv", "runs.jsonl")
        self.folders: dict[str, None] = {}
        self.tags: dict[str, str] = {}
        for line in self._lines():
            if line.path is not None:
                path = os.path.join(self._root, line.path)
                self.folders[path] = None
                if line.tag is not None:
                    self.tags[line.tag] = path
            elif line.tag is not None:
                self.tags.pop(line.tag, None)

    def add_run(self, path: Path | str) -> None:
        """Add a run outside the results folder, unless it is in the system's temporary folder.

        A project that cannot be written to is left alone.
        """
        import tempfile  # late: only runs with `--out` need it

        real = os.path.realpath(path)
        stored_path = self._stored(real)
        is_temporary = os.path.isabs(stored_path) and real.startswith(os.path.realpath(tempfile.gettempdir()) + os.sep)
        is_listed = os.path.dirname(real) == os.path.realpath(self._file.parent / "results") or real in self.folders
        if not is_temporary and not is_listed:
            with suppress(OSError):
                self._append(JournalLine(path=stored_path))

    def tag(self, tag: str, path: Path | str | None) -> None:
        """Let a tag name this run, or with None no run."""
        with file_errors(f"Cannot write {self._file}"):
            self._append(JournalLine(tag=tag, path=None if path is None else self._stored(os.path.realpath(path))))

    def tags_of(self, path: Path | str) -> tuple[str, ...]:
        """Return the tags of a run."""
        real = os.path.realpath(path) if self.tags else ""
        return tuple(sorted(tag for tag, tagged in self.tags.items() if os.path.realpath(tagged) == real))

    def _stored(self, real: str) -> str:
        return os.path.relpath(real, self._root) if real.startswith(self._root + os.sep) else real

    def _append(self, line: JournalLine) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def _lines(self) -> Iterable[JournalLine]:
        try:
            lines = self._file.read_bytes().splitlines()
        except OSError:
            return
        for line in lines:
            with suppress(msgspec.DecodeError):  # a line that was cut off
                yield msgspec.json.decode(line, type=JournalLine)


def find_runs(folder: Path | str) -> list[RunEntry]:
    """Return the runs in a folder, newest first, with results of other tools."""
    return newest_first(map(read_entry, paths_in(folder)))


def project_runs(root: Path | str, *, figures: bool = True) -> list[RunEntry]:
    """Return all runs of a project, newest first: those in its results folder, and those made with `--out`."""
    journal = RunJournal(root)
    read = read_entry if figures else _entry
    entries = newest_first(map(read, project_paths(root, journal)))
    return [msgspec.structs.replace(entry, tags=journal.tags_of(entry.path)) for entry in entries]


def last_unfinished(root: Path | str, *, rescored: bool = False) -> RunFolder | None:
    """Return the newest unfinished run of a project, preferably one that no process is writing to.

    With `rescored`, only rescored runs count, otherwise only others.
    """
    folders = []
    for entry in project_runs(root, figures=False):
        folder = RunFolder(entry.path)
        if entry.state in ("unfinished", "running"):
            manifest = folder.read_manifest()
            is_other = manifest.finished_at or (manifest.rescored_from is not None) != rescored
            if not is_other and not resume_obstacle(manifest):
                folders.append(folder)
    return next((folder for folder in folders if not is_locked(folder.path)), folders[0] if folders else None)


def paths_in(folder: Path | str) -> list[Path]:
    """Return the paths of the runs in a folder, and of results of other tools."""
    return [*_runs_in(Path(folder)), *_imports_in(Path(folder))]


def project_paths(root: Path | str, journal: RunJournal) -> list[Path]:
    """Return the paths of all runs of a project."""
    others = (Path(path) for path in journal.folders)
    paths = {os.path.realpath(path): path for path in (*others, *_runs_in(Path(root, RESULTS_FOLDER)))}
    return [path for path in paths.values() if _is_run(path)]


def newest_first(entries: Iterable[RunEntry]) -> list[RunEntry]:
    """Sort runs by the time when they started."""
    return sorted(entries, key=lambda entry: (entry.began or _UNKNOWN, entry.run_id), reverse=True)


def is_run(path: Path) -> bool:
    """Return whether a path is one run: a run folder, a file of records, or results of another tool."""
    return _is_run(path) or _is_foreign(path)


def _runs_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _is_run(path)] if folder.is_dir() else []


def _imports_in(folder: Path) -> list[Path]:
    """Return the results of other tools in a folder."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return [path for path in paths if not path.name.startswith(".") and _is_foreign(path)]


def _is_foreign(path: Path) -> bool:
    if _is_run(path) or not (path.is_dir() or (path.is_file() and path.suffix.lower() in _FOREIGN_FILES)):
        return False  # nothing is read from pipes and devices
    try:
        state = path.stat()
    except OSError:  # deleted meanwhile, or a broken link
        return False
    return _has_foreign_format(path, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=4096)
def _has_foreign_format(path: Path, stamp: tuple[int, int]) -> bool:  # noqa: ARG001  # of a changed file
    with suppress(AgentvError):
        return getattr(format_of(path), "is_imported", False) is True
    return False


def remove_run(entry: RunEntry) -> None:
    """Delete a run folder. Raises UsageError if a process is writing to it."""
    import shutil  # late: every run imports this module, and few remove one

    folder = RunFolder.open(entry.path)
    with folder.lock() as lock, file_errors(f"Cannot remove {folder.path}"):
        if sys.platform == "win32":  # which cannot remove an open file
            lock.close()
        shutil.rmtree(folder.path)


def is_removable(entry: RunEntry) -> bool:
    """Return whether a run may be removed: not if it is tagged, in progress, from another tool, or a symbolic link."""
    return entry.state in ("finished", "unfinished") and not entry.tags and not Path(entry.path).is_symlink()


def _is_run(path: Path) -> bool:
    if path.is_file():
        return path.name.startswith("eval_") and path.suffix in (".jsonl", ".ndjson", ".yaml", ".yml")
    return any((path / name).is_file() for name in ("run.json", *RECORD_FILES))


def _entry(path: Path) -> RunEntry:
    """Return a run without its figures."""
    bare = msgspec.structs.replace(bare_entry(path), state="unreadable")
    folder = RunFolder(path)
    try:
        if not folder.manifest_path.is_file():
            first = next(RunStore.open(path).records(), None)
            return msgspec.structs.replace(bare_entry(path), started_at=first.timestamp if first else None)
        manifest = folder.read_manifest()
    except AgentvError as error:
        return msgspec.structs.replace(bare, problem=_problem(error))
    finished = manifest.finished_at is not None
    experiment = manifest.options.get("experiment")
    return msgspec.structs.replace(
        bare,
        run_id=manifest.run_id,
        state="running" if is_locked(path) else "finished" if finished else "unfinished",
        started_at=manifest.started_at,
        jobs=manifest.counts.jobs if manifest.counts else None,
        exit_code=manifest.exit_code,
        git_commit=manifest.git_commit,
        git_branch=manifest.git_branch,
        experiment=experiment if isinstance(experiment, str) else None,
        datasets=tuple(entry.name for entry in manifest.datasets),
        target_names=tuple(entry.name for entry in manifest.targets),
    )


def _problem(error: AgentvError) -> str:
    return ": ".join(filter(None, (error.headline, error.detail)))


def bare_entry(path: Path) -> RunEntry:
    """Return a run of another tool, or a file of records, without reading it."""
    return RunEntry(run_id=path.name if path.is_dir() else path.stem, path=str(path), state="foreign")


def read_entry(path: Path) -> RunEntry:
    """Return a run with its figures; an unreadable one with the reason."""
    entry = _entry(path)
    if entry.state == "unreadable":
        return entry
    try:
        if entry.state == "foreign":
            return _foreign(entry, RunStore.open(entry.path))
        folder = RunFolder(entry.path)
        targets = _targets(folder, folder.read_manifest().finished_at is not None)
    except AgentvError as error:
        return msgspec.structs.replace(entry, state="unreadable", problem=_problem(error))
    count = sum(target.scored + target.errors + target.unscored for target in targets.values())
    return msgspec.structs.replace(entry, targets=targets, done=count if targets else _lines(folder.results_path))


def _targets(folder: RunFolder, finished: bool) -> dict[str, TargetSummary]:
    """Return the stored figures of a run; for a finished run without readable ones, compute them from its records."""
    with suppress(AgentvError):
        return folder.read_summary().targets
    with suppress(AgentvError):
        return RunStore.open(folder.path).figures().summary.targets if finished else {}
    return {}


def _foreign(bare: RunEntry, run: RunStore) -> RunEntry:
    """Describe a run of another tool from its records."""
    figures = run.figures()
    first = next(run.records(), None)
    names = (first.dataset,) if first and first.dataset else ()
    return msgspec.structs.replace(
        bare,
        jobs=figures.jobs,
        done=figures.done,
        datasets=names if run.manifest is None else tuple(entry.name for entry in run.manifest.datasets),
        targets=figures.summary.targets,
    )


def _lines(path: Path) -> int:
    """Count the records of an unfinished run without decoding them."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
