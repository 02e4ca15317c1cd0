"""The folder of a run: its files, its id, its lock, and manifests written completely or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from agentv.errors import EXIT_USAGE, AgentvError, UsageError, file_errors
from agentv.model.manifest import RunManifest, RunSummary
from agentv.model.result import SCHEMA_VERSION
from agentv.runs.writer import Redact

LOCK_NAME = ".lock"


class FolderLock:
    """An exclusive lock on a run folder, released by `close` or when the process ends. The lock file holds its id."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._file = -1
        while self._file < 0:
            self._file = self._take()
        os.ftruncate(self._file, 0)
        os.write(self._file, str(os.getpid()).encode())

    def close(self) -> None:
        """Release the lock; a second time does nothing."""
        if self._file < 0:
            return
        with suppress(OSError):
            self._path.unlink()
        os.close(self._file)
        self._file = -1

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def _take(self) -> int:
        """Lock the file; returns -1 if its last holder removed it in the meantime."""
        with file_errors(f"Cannot write to {self._path.parent}"):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _try_lock(file):
            holder = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise UsageError(
                f"The run folder is in use: {self._path.parent}",
                f"Process {holder or 'unknown'} is writing to it",
                "Wait until it ends, or end it; then go on with --resume",
            )
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), os.stat(self._path)):
                return file
        os.close(file)
        return -1


def is_locked(folder: Path) -> bool:
    """Whether a process is writing to a folder."""
    try:
        file = os.open(folder / LOCK_NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(file)
    finally:
        os.close(file)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        # Locked bytes cannot be read there, so it is one far behind the number of the process.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks: better a run without one than none
        return True


RESULTS_FOLDER = Path(".agentv", "results")

_TEMPORARY = ".tmp"
Document = TypeVar("Document", RunManifest, RunSummary)


def new_run_id(now: datetime | None = None) -> str:
    """A new run id: the time in UTC, so that ids sort by start, and four hex digits."""
    moment = now or datetime.now(UTC)
    return f"{moment.astimezone(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


class RunFolder:
    """The files of one run. `redact` removes secrets from everything written through it."""

    def __init__(self, path: Path | str, redact: Redact | None = None) -> None:
        self.path = Path(path)
        self.redact = redact
        self.manifest_path = self.path / "run.json"
        self.cases_path = self.path / "cases.jsonl"
        self.results_path = self.path / "results.jsonl"
        self.summary_path = self.path / "summary.json"

    @classmethod
    def create(cls, path: Path | str, redact: Redact | None = None) -> RunFolder:
        """Create a folder with its parents. An empty one may exist; raises UsageError for any other."""
        folder = cls(path, redact)
        if folder.path.exists() and not folder.path.is_dir():
            raise UsageError(f"Not a folder: {folder.path}", hint="Name another place with --out")
        with file_errors(f"Cannot create the run folder {folder.path}"):
            folder.path.mkdir(parents=True, exist_ok=True)
            names = os.listdir(folder.path)
        # A lock and half a manifest are what a process leaves that was killed before its run began.
        if any(name != LOCK_NAME and not name.endswith(_TEMPORARY) for name in names):
            hint = "Go on with the run that is there with --resume, or name another folder with --out"
            raise UsageError(f"The run folder exists already: {folder.path}", hint=hint)
        return folder

    @classmethod
    def open(cls, path: Path | str, redact: Redact | None = None) -> RunFolder:
        """Open the folder of a run. Raises UsageError when there is no run in it."""
        folder = cls(path, redact)
        if not folder.manifest_path.is_file():
            raise UsageError(f"Not a run folder: {folder.path}", f"There is no {folder.manifest_path.name} in it")
        return folder

    def lock(self) -> FolderLock:
        """Lock the folder for writing. Raises UsageError when another process has locked it."""
        return FolderLock(self.path)

    def remove_temporary_files(self) -> None:
        """Delete the temporary files of processes that were killed. Hold the lock."""
        for path in self.path.glob(f".*{_TEMPORARY}"):
            path.unlink(missing_ok=True)

    def read_manifest(self) -> RunManifest:
        return _read(self.manifest_path, RunManifest)

    def write_manifest(self, manifest: RunManifest) -> None:
        self._write(self.manifest_path, manifest)

    def read_summary(self) -> RunSummary:
        return _read(self.summary_path, RunSummary)

    def write_summary(self, summary: RunSummary) -> None:
        self._write(self.summary_path, summary)

    def _write(self, path: Path, document: RunManifest | RunSummary) -> None:
        data = msgspec.json.encode(document)
        if self.redact is not None:
            data = self.redact(data)
        write_whole(path, msgspec.json.format(data, indent=2) + b"\n")


def write_whole(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file, whole or in pieces, so that it always has the old or the new content, even after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        with file_errors(f"Cannot write {path}"):
            with open(temporary, "wb") as file:
                file.writelines((data,) if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            if os.name == "posix":  # elsewhere a folder cannot be opened
                handle = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def run_folders(root: Path | str) -> Iterator[RunFolder]:
    """The runs under `.agentv/results` of a project, the newest first."""
    results = Path(root) / RESULTS_FOLDER
    for name in sorted(os.listdir(results), reverse=True) if results.is_dir() else ():
        if (results / name / "run.json").is_file():
            yield RunFolder(results / name)


def last_unfinished(root: Path | str, *, rescored: bool = False) -> RunFolder | None:
    """The newest unfinished run; one that a process is writing to only if there is no other.

    `rescored` are runs that score the answers of others.
    """
    busy = None
    for folder in run_folders(root):
        try:
            manifest = folder.read_manifest()
        except AgentvError:
            continue  # a manifest of another version: not ours to go on with
        if (manifest.rescored_from is not None) != rescored or manifest.finished_at or resume_obstacle(manifest):
            continue
        if not is_locked(folder.path):
            return folder
        busy = busy or folder
    return busy


def resume_obstacle(manifest: RunManifest) -> str:
    """Why a run cannot be resumed; empty when it can."""
    if manifest.exit_code == EXIT_USAGE:
        return "It ended because of its own options"
    if manifest.rescored_from is None and not manifest.paths:
        return "Its cases were given by a program"
    given = [entry.name for entry in manifest.targets if not entry.settings]
    return f"Its target '{given[0]}' was given by a program" if given and manifest.rescored_from is None else ""


def _read(path: Path, kind: type[Document]) -> Document:
    try:
        with file_errors(f"Cannot read {path}"):
            document = msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AgentvError(f"Cannot read {path}", str(error)) from error
    if document.schema_version > SCHEMA_VERSION:
        detail = f"schema_version is {document.schema_version}, and this agentv reads {SCHEMA_VERSION}"
        raise AgentvError(f"Cannot read {path}", detail, "Update agentv")
    return document
