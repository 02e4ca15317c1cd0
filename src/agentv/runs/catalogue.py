"""List the runs in a folder with their state and figures, and remove runs."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from agentv.errors import AgentvError, file_errors
from agentv.model.manifest import TargetSummary
from agentv.runs.folder import RunFolder, is_locked
from agentv.runs.store import RECORD_FILES, RunStore

_UNKNOWN = datetime.min.replace(tzinfo=UTC)

State = Literal["finished", "unfinished", "running", "foreign", "unreadable"]


class RunEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. `done` of its `jobs` have a record; the figures come from its summary or, without one, its records.

    `name` is the argument that commands accept as RUN; a folder's name may differ from its run id.
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
        """The start time; None if unknown."""
        try:
            found = datetime.fromisoformat(self.started_at or "")
        except ValueError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=UTC)


def find_runs(folder: Path | str) -> list[RunEntry]:
    """Return the runs in a folder, newest first."""
    folder = Path(folder)
    found = [_entry(path) for path in folder.iterdir() if _is_run(path)] if folder.is_dir() else []
    return sorted(found, key=lambda entry: (entry.began or _UNKNOWN, entry.run_id), reverse=True)


def remove_run(entry: RunEntry) -> None:
    """Delete a run folder. Raises UsageError if a process is writing to it."""
    folder = RunFolder.open(entry.path)
    with folder.lock(), file_errors(f"Cannot remove {folder.path}"):
        shutil.rmtree(folder.path)


def is_removable(entry: RunEntry) -> bool:
    """Return whether a run may be removed: not if it is in progress, from another tool, or a symbolic link."""
    return entry.state in ("finished", "unfinished") and not Path(entry.path).is_symlink()


def _is_run(path: Path) -> bool:
    if path.is_file():
        return path.name.startswith("eval_") and path.suffix in (".jsonl", ".ndjson", ".yaml", ".yml")
    return any((path / name).is_file() for name in ("run.json", *RECORD_FILES))


def _entry(path: Path) -> RunEntry:
    bare = RunEntry(run_id=path.name if path.is_dir() else path.stem, path=str(path), state="unreadable")
    folder = RunFolder(path)
    try:
        if not folder.manifest_path.is_file():
            return _foreign(bare, RunStore.open(path))
        manifest = folder.read_manifest()
    except AgentvError:
        return bare
    finished = manifest.finished_at is not None
    targets = _targets(folder, finished)
    done = sum(target.scored + target.errors + target.unscored for target in targets.values())
    return msgspec.structs.replace(
        bare,
        run_id=manifest.run_id,
        state="running" if is_locked(path) else "finished" if finished else "unfinished",
        started_at=manifest.started_at,
        jobs=manifest.counts.jobs if manifest.counts else None,
        done=done if targets else _lines(folder.results_path),
        exit_code=manifest.exit_code,
        git_commit=manifest.git_commit,
        datasets=tuple(entry.name for entry in manifest.datasets),
        targets=targets,
    )


def _targets(folder: RunFolder, finished: bool) -> dict[str, TargetSummary]:
    """Return the stored figures of a run; for a finished run without readable ones, compute them from its records."""
    with suppress(AgentvError):
        return folder.read_summary().targets
    with suppress(AgentvError):
        return RunStore.open(folder.path).figures().summary.targets if finished else {}
    return {}


def _foreign(bare: RunEntry, run: RunStore) -> RunEntry:
    """Describe a run of AgentV (TypeScript) from its records; it has no manifest."""
    figures = run.figures()
    first = next(run.records(), None)
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
    """Count the records of an unfinished run without decoding them."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
