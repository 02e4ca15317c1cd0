"""The runs that a folder keeps: what each is, how it stands, and which may be removed."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from agentv.errors import AgentvError
from agentv.model.manifest import TargetSummary
from agentv.runs.folder import RunFolder, is_locked
from agentv.runs.opened_run import OpenedRun
from agentv.runs.store import FoundRun, runs_in

_UNKNOWN = datetime.min.replace(tzinfo=UTC)

State = Literal["finished", "unfinished", "running", "foreign", "unreadable"]


class RunEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. `done` of its `jobs` have a record; figures are those of its summary, of its records when it has none.

    `name` is what commands find it by: a folder may have any name, whatever id the run in it has.
    """

    run_id: str
    name: str = ""
    path: str
    state: State
    started_at: str | None = None
    jobs: int | None = None
    done: int | None = None
    exit_code: int | None = None
    git_commit: str | None = None
    datasets: tuple[str, ...] = ()
    targets: dict[str, TargetSummary] = {}

    @property
    def began(self) -> datetime | None:
        """When it began; None where nobody knows."""
        try:
            found = datetime.fromisoformat(self.started_at or "")
        except ValueError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=UTC)


def entries(folder: Path | str) -> list[RunEntry]:
    """The runs in a folder, the newest first: by when they began, for a folder may have any name."""
    found = map(_entry, runs_in(folder))
    return sorted(found, key=lambda entry: (entry.began or _UNKNOWN, entry.run_id), reverse=True)


def remove(entry: RunEntry) -> None:
    """Deletes a run's folder. Raises UsageError when a process writes to it: it holds the lock while it is deleted."""
    folder = RunFolder.open(entry.path)
    with folder.lock():
        try:
            shutil.rmtree(folder.path)
        except OSError as error:
            raise AgentvError(f"Cannot remove {folder.path}", error.strerror or str(error)) from error


def removable(entry: RunEntry) -> bool:
    """Whether a run is ours to remove: not one in progress, not AgentV's, and no link to somewhere else."""
    return entry.state in ("finished", "unfinished") and not Path(entry.path).is_symlink()


def _entry(run: FoundRun) -> RunEntry:
    path, manifest = str(run.path), run.manifest
    if manifest is None:
        return _foreign(run)
    folder = RunFolder(run.path)
    finished = manifest.finished_at is not None
    targets = _targets(folder, finished)
    done = sum(target.scored + target.errors + target.unscored for target in targets.values())
    return RunEntry(
        run_id=manifest.run_id,
        path=path,
        state="running" if is_locked(run.path) else "finished" if finished else "unfinished",
        started_at=manifest.started_at,
        jobs=manifest.counts.jobs if manifest.counts else None,
        done=done if targets else _lines(folder.results_path),
        exit_code=manifest.exit_code,
        git_commit=manifest.git_commit,
        datasets=tuple(entry.name for entry in manifest.datasets),
        targets=targets,
    )


def _targets(folder: RunFolder, finished: bool) -> dict[str, TargetSummary]:
    """The figures that a run kept; those of its records where it finished and they cannot be read."""
    with suppress(AgentvError):
        return folder.read_summary().targets
    with suppress(AgentvError):
        return OpenedRun(folder.path).figures().summary.targets if finished else {}
    return {}


def _foreign(run: FoundRun) -> RunEntry:
    """A run of AgentV's, which has no manifest: all there is to say of it is in its records."""
    bare = RunEntry(run_id=run.run_id, path=str(run.path), state="unreadable")
    try:
        opened = OpenedRun(run.path)
        figures = opened.figures()
        first = next(opened.results(), None)
    except AgentvError:
        return bare
    return msgspec.structs.replace(
        bare,
        state="foreign",
        started_at=first.timestamp if first else None,
        jobs=figures.jobs,
        done=figures.done,
        datasets=(first.dataset,) if first and first.dataset else (),
        targets=figures.summary.targets,
    )


def _lines(path: Path) -> int:
    """The records of a run that has not ended, counted without being read."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
