"""Find the files of a run: its folder and its records; for results of another tool, the folder of their import."""

from __future__ import annotations

from pathlib import Path

from agentv.errors import AgentvError, UsageError
from agentv.runs.folder import RunFolder
from agentv.runs.record import RESULTS_FILE, format_of
from agentv.runs.writer import Redact

RECORD_FILES = (RESULTS_FILE, "index.jsonl", ".internal/index.jsonl")
"""The possible files of records in a run folder: our own, then those of AgentV (TypeScript) 4.x and 5.x."""


def run_folder(path: Path, redact: Redact | None = None) -> RunFolder:
    """Return the folder of a run; for results of another tool, the folder that they were imported to.

    A file of records is returned as it is.
    """
    if path.is_dir() and ((path / "run.json").is_file() or any((path / name).is_file() for name in RECORD_FILES)):
        return RunFolder(path, redact)
    if RunFolder(path).is_unstarted:
        raise RunFolder(path).not_a_run()
    found = format_of(path)
    if not getattr(found, "is_imported", False):
        return RunFolder(path, redact)
    from agentv.runs.foreign.import_cache import imported_folder  # late: only results of other tools need it

    return imported_folder(found, path)  # type: ignore[arg-type]


def imported_run(path: Path) -> RunFolder:
    """Return the folder that results of another tool were imported to. Raises UsageError for anything else."""
    if path.is_dir() or getattr(format_of(path), "is_imported", False):
        return run_folder(path)
    raise UsageError(f"Not a run folder: {path}", "It has no run.json")


def records_in(folder: RunFolder) -> Path | None:
    """Return the file of records in a folder; None for a run that stopped before its first record."""
    for name in RECORD_FILES:
        if (folder.path / name).is_file():
            return folder.path / name
    if folder.read_manifest().finished_at is not None:
        detail = f"{folder.manifest_path.name} marks the run as finished, but there is no {folder.results_path.name}"
        raise AgentvError(f"The results of {folder.path} are missing", detail, "Restore the file, or run it again")
    return None
