"""The run folder: its files, run id, and atomically written manifest and summary."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from agentv.errors import EXIT_USAGE, AgentvError, UsageError, file_errors
from agentv.model.manifest import RunManifest
from agentv.model.result import SCHEMA_VERSION
from agentv.model.values import hash_bytes
from agentv.registry import service
from agentv.runs.folder_lock import LOCK_NAME, FolderLock
from agentv.runs.record import RESULTS_FILE, format_of, repair_hint
from agentv.runs.summary import RunSummary
from agentv.runs.writer import Redact
from agentv.support.hashes import add_file, relative_path
from agentv.support.private_files import PRIVATE_FILE, make_folder, replace_file

RESULTS_FOLDER = Path(".agentv", "results")

_TEMPORARY = ".tmp"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
Document = TypeVar("Document", RunManifest, RunSummary)


def new_run_id(now: datetime | None = None) -> str:
    """Return a new run id: the time in UTC, so that ids sort by start, and four hex digits."""
    moment = now or datetime.now(UTC)
    return f"{moment.astimezone(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def new_run_path(results: Path) -> Path:
    """Return the path of a new run in a folder of runs. Two runs of the same second may draw the same digits."""
    while (path := results / new_run_id()).exists():
        pass
    return path


class NewerVersionError(AgentvError):
    """A file that a newer version of agentv wrote."""


class RunFolder:
    """The files of one run. `redact` removes secrets from everything written through it.

    `shown` is the path in messages of a folder that is `located`.
    """

    def __init__(self, path: Path | str, redact: Redact | None = None) -> None:
        self.path = self.shown = Path(path)
        self.redact = redact
        self.manifest_path = self.path / "run.json"
        self.cases_path = self.path / "cases.jsonl"
        self.results_path = self.path / RESULTS_FILE
        self.summary_path = self.path / "summary.json"

    @classmethod
    def create(cls, path: Path | str, redact: Redact | None = None) -> RunFolder:
        """Create a folder with its parents. Raises UsageError if it exists and is not empty."""
        folder = cls(path, redact)
        if folder.path.exists() and not folder.path.is_dir():
            raise UsageError(f"Not a folder: {folder.path}", hint="Choose another path with --out")
        with file_errors(f"Cannot create the run folder {folder.path}", "Choose another folder with --out"):
            make_folder(folder.path)
            names = os.listdir(folder.path)
        if not _is_empty(names):
            hint = "Continue its run with --resume, or choose another folder with --out"
            raise UsageError(f"The run folder already exists: {folder.path}", hint=hint)
        return folder

    @classmethod
    def open(cls, path: Path | str, redact: Redact | None = None) -> RunFolder:
        """Open a run folder. Raises UsageError if it has no manifest."""
        folder = cls(path, redact)
        if not folder.manifest_path.is_file():
            raise folder.not_a_run()
        return folder

    @property
    def is_unstarted(self) -> bool:
        """Whether a run was stopped here before its first job."""
        return self.path.is_dir() and bool(names := os.listdir(self.path)) and _is_empty(names)

    def not_a_run(self) -> UsageError:
        """Build the error for a folder without a manifest: another folder, or a run that was stopped at once."""
        if self.is_unstarted:
            hint = f"Start it again with: agentv eval DATASET --out {shlex.quote(str(self.path))}"
            return UsageError(f"The run {self.path} has no records yet: it was stopped before its first job", hint=hint)
        return UsageError(f"Not a run folder: {self.path}", f"It has no {self.manifest_path.name}")

    def located(self) -> RunFolder:
        """Return the same folder with an absolute path: user code may change the working directory."""
        folder = RunFolder(self.path.absolute(), self.redact)
        folder.shown = self.shown
        return folder

    def lock(self) -> FolderLock:
        """Lock the folder for writing. Raises UsageError if another process has locked it."""
        return FolderLock(self.path)

    def remove_temporary_files(self) -> None:
        """Delete temporary files of killed processes. The caller must hold the lock."""
        for path in self.path.glob(f".*{_TEMPORARY}"):
            path.unlink(missing_ok=True)

    def read_manifest(self) -> RunManifest:
        """Return the manifest. Raises AgentvError if it cannot be read; its checksum is not compared."""
        return msgspec.structs.replace(_read(self.manifest_path, RunManifest), checksum="")

    def write_manifest(self, manifest: RunManifest) -> None:
        """Write the manifest with its checksum."""
        data = self._encoded(msgspec.structs.replace(manifest, checksum=""))
        whole = b'%b,"checksum":"%b"}' % (data[:-1], _checksum(data).encode())
        write_whole(self.manifest_path, msgspec.json.format(whole, indent=2) + b"\n")

    def read_summary(self) -> RunSummary:
        return _read(self.summary_path, RunSummary)

    def write_summary(self, summary: RunSummary) -> str:
        """Write the summary, and return the hash of its file."""
        data = msgspec.json.format(self._encoded(summary), indent=2) + b"\n"
        write_whole(self.summary_path, data)
        return hash_bytes(data)

    def _encoded(self, document: RunManifest | RunSummary) -> bytes:
        data = msgspec.json.encode(document)
        return data if self.redact is None else self.redact(data)


def _is_empty(names: Iterable[str]) -> bool:
    """Whether a folder has no run: a process that is killed before it starts leaves a lock and temporary files."""
    return all(name == LOCK_NAME or name.endswith(_TEMPORARY) for name in names)


def _checksum(data: bytes) -> str:
    """Return the hash of a manifest's values, without its own checksum."""
    fields = msgspec.json.decode(data)
    fields.pop("checksum", None)
    return hash_bytes(msgspec.json.encode(fields))


def is_unchanged(data: bytes) -> bool:
    """Return whether a readable manifest has the values that were written, according to its checksum, if it has one."""
    try:
        checksum = msgspec.json.decode(data).get("checksum")
        return checksum is None or checksum == _checksum(data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # in a field that is not read
        return False


def content_digest(path: Path) -> str:
    """Return the hash of a file, in constant memory."""
    digest = hashlib.blake2b(digest_size=16)
    with file_errors(f"Cannot read {path}"):
        add_file(digest, str(path))
    return digest.hexdigest()


def write_whole(path: Path, data: bytes | Iterable[bytes], *, is_private: bool = True) -> None:
    """Write a file atomically, also in case of a power failure. `data` may come in pieces."""
    with whole_file(path, is_private=is_private) as file:
        file.writelines((data,) if isinstance(data, bytes) else data)


@contextmanager
def whole_file(path: Path, *, is_private: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing. The previous file stays until the new one is complete."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        with file_errors(f"Cannot write {path}"):
            with _new_file(temporary, is_private) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            replace_file(temporary, path)
            if sys.platform != "win32":  # which cannot open a folder
                handle = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _new_file(path: Path, is_private: bool) -> BinaryIO:
    path.unlink(missing_ok=True)  # left by a killed process with the same id, or a link
    return open(os.open(path, _NEW, PRIVATE_FILE if is_private else 0o666), "wb")


def resume_obstacle(manifest: RunManifest) -> str:
    """Return why a run cannot be resumed; empty if it can."""
    if manifest.exit_code == EXIT_USAGE:
        return "It stopped because of invalid options, or because files that its cases name changed"
    if manifest.lost:
        return f"Its run.json was damaged, and these fields could not be restored: {', '.join(manifest.lost)}"
    if manifest.imported_from is not None:
        return f"It was imported from {manifest.imported_from.format}"
    if manifest.rescored_from is None and not manifest.paths:
        return "Its cases were passed from Python"
    unnamed = [entry.name for entry in manifest.targets if not entry.settings]
    return f"Its target '{unnamed[0]}' was passed from Python" if unnamed and manifest.rescored_from is None else ""


def _read(path: Path, kind: type[Document]) -> Document:
    if path.exists() and not path.is_file():  # a pipe would block, and a device has no end
        raise AgentvError(f"Cannot read {path}", "It is not a regular file", repair_hint(path.parent))
    try:
        with file_errors(f"Cannot read {path}"):
            document = msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AgentvError(f"Cannot read {path}", str(error), repair_hint(path.parent)) from error
    if document.schema_version > SCHEMA_VERSION:
        detail = f"schema_version is {document.schema_version}, but this version of agentv reads {SCHEMA_VERSION}"
        raise NewerVersionError(f"Cannot read {path}", detail, "Update agentv")
    return document


_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".yaml": "yaml", ".yml": "yaml"}
_REPORTS = (".csv", ".html", ".md", ".parquet", ".xml")
_OTHER_FILES = (".gz", ".json", ".log", ".tsv", ".txt", ".xlsx", ".zst")


def output_paths(out: str | None, file_format: str | None = None) -> tuple[str | None, tuple[str, str] | None]:
    """Return the run folder named by `--out`, or a file of records and its format: `--format`, or by extension."""
    extension = os.path.splitext(out or "")[1].lower()
    file_format = file_format or _FORMATS.get(extension)
    if out is None or (file_format is None and (os.path.isdir(out) or extension not in (*_REPORTS, *_OTHER_FILES))):
        return out, None
    if file_format is None:
        is_report = extension in _REPORTS
        hint = f"Run first, then: agentv report RUN {out}" if is_report else "Choose a format with --format"
        raise UsageError(f"Cannot write {out}", "Records are written to a folder, or a .jsonl or .yaml file", hint)
    if os.path.isdir(out):
        raise UsageError(f"Cannot write {out}", "It is a folder")
    if not os.path.isdir(os.path.dirname(out) or "."):
        raise UsageError(f"Cannot write {out}", f"The folder {os.path.dirname(out)} does not exist")
    return None, (os.path.abspath(out), file_format)  # a target may change the working directory


def _yaml_document(line: bytes) -> bytes:
    import yaml  # late: only `--format yaml` needs it

    options: dict[str, Any] = {"encoding": "utf-8", "explicit_start": True, "allow_unicode": True, "sort_keys": False}
    document: bytes = yaml.dump(msgspec.json.decode(line), Dumper=yaml.CSafeDumper, **options)
    return document


def export_records(results: Path, target: str, file_format: str) -> None:
    """Write all records to a file: `jsonl` as they are, `yaml` as one document each.

    An existing file is replaced atomically; anything else, such as a pipe, is written to directly.
    """
    path = Path(os.path.realpath(target))
    with file_errors(f"Cannot write {target}"), results.open("rb") as lines:
        data = map(_yaml_document, lines) if file_format == "yaml" else lines
        if path.is_file() or not path.exists():
            write_whole(path, data, is_private=False)  # the user chose the place, and the umask applies
        else:
            with path.open("wb") as stream:
                stream.writelines(data)


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
    fmt = format_of(path)
    if not getattr(fmt, "is_imported", False):
        return RunFolder(path, redact)
    folder: RunFolder = service("run-import", f"Reading {path}")(fmt, path)
    return folder


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


def short_path(path: Path | str) -> str:
    """Return a path relative to the current folder if it is below it."""
    relative = relative_path(path)
    return str(path) if relative.startswith("..") else relative
