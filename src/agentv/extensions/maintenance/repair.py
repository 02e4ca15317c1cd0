"""Repair a run folder: keep what is whole, put the rest aside, and let a resume run what was lost."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import AgentvError, file_errors, plural
from agentv.model.manifest import RunManifest
from agentv.model.result import Result
from agentv.runs.damage import Damage, ScannedLine, check_run, scan_cases, scan_records
from agentv.runs.folder import RunFolder, content_digest, resume_obstacle, write_whole
from agentv.runs.store import RunStore
from agentv.support.private_files import open_file

_ASIDE = ".damaged"
_KEY = re.compile(rb'^  "(\w+)": ', re.MULTILINE)
_UNIMPORTANT = (
    *("finished_at", "exit_code", "counts", "git_commit", "git_branch", "versions"),
    *("digests", "checksum", "lost"),
)
"""Fields without which a run can be resumed."""


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair did. If the run `needs_resume`, jobs or cases were lost. `obstacle` is why it cannot be resumed.

    `lost_fields` are the fields of `run.json` that could not be restored.
    """

    path: str
    changes: tuple[str, ...] = ()
    needs_resume: bool = False
    obstacle: str = ""
    lost_fields: tuple[str, ...] = ()


def repair_run(path: Path | str) -> RepairResult:
    """Repair a run folder. Each file is replaced atomically, and damaged parts are kept in a file next to it.

    A repair that is killed can be repeated. Raises UsageError if there is no run, or if a process is writing to it.
    """
    folder = RunFolder(path)
    check_run(path)  # raises UsageError if there is no run
    with folder.lock():
        folder.remove_temporary_files()
        health = check_run(path)
        if not health.problems:
            return RepairResult(path=str(path))
        return _Repair(folder, health.problems).run()


class _Repair:
    """The state of a repair."""

    def __init__(self, folder: RunFolder, problems: tuple[Damage, ...]) -> None:
        self._folder = folder
        self._problems = problems
        self._changes: list[str] = []
        self._has_losses = any(problem.kind == "missing" for problem in problems)

    def run(self) -> RepairResult:
        folder = self._folder
        manifest = self._manifest()
        self._lines(folder.cases_path, scan_cases)
        self._lines(folder.results_path, scan_records)
        if self._has_losses:
            manifest = msgspec.structs.replace(manifest, finished_at=None, exit_code=None)
        # The summary is computed with the repaired manifest, and its hash becomes part of it.
        folder.write_manifest(manifest)
        self._summary()
        names = (folder.cases_path, folder.results_path, folder.summary_path)
        digests = {file.name: content_digest(file) for file in names if file.exists()}
        folder.write_manifest(msgspec.structs.replace(manifest, digests=digests))
        return RepairResult(
            path=str(folder.path),
            changes=tuple(self._changes),
            needs_resume=manifest.finished_at is None,
            obstacle=resume_obstacle(manifest),
            lost_fields=manifest.lost,
        )

    def _found(self, path: Path) -> list[Damage]:
        return [problem for problem in self._problems if problem.file == path.name]

    def _manifest(self) -> RunManifest:
        path = self._folder.manifest_path
        if not self._found(path):
            return self._folder.read_manifest()
        if path.exists():
            self._put_aside(path, path.read_bytes())
            try:
                manifest = self._folder.read_manifest()
                self._changes.append(f"{path.name}: accepted its changed values; a copy is in {path.name}{_ASIDE}")
                return manifest
            except AgentvError:
                manifest = restored_manifest(path.read_bytes(), self._folder)
        else:
            manifest = restored_manifest(b"", self._folder)
        self._changes.append(f"{path.name}: restored, except {', '.join(manifest.lost) or 'nothing'}")
        return manifest

    def _lines(self, path: Path, scan: Callable[[Path], Iterator[ScannedLine]]) -> None:
        problems = self._found(path)
        if not path.exists():
            if problems:
                write_whole(path, b"")
                self._changes.append(f"{path.name}: created, because it was missing")
            return
        if any(problem.line is not None for problem in problems):
            bad = [line.data for line in scan(path) if line.problem]
            self._put_aside(path, b"".join(line if line.endswith(b"\n") else line + b"\n" for line in bad))
            write_whole(path, (line.data for line in scan(path) if not line.problem))
            self._changes.append(f"{path.name}: moved {plural(len(bad), 'line')} to {path.name}{_ASIDE}")
        elif any(problem.kind == "changed" for problem in problems):
            self._changes.append(f"{path.name}: accepted its changed content; all lines are readable")

    def _summary(self) -> None:
        path = self._folder.summary_path
        run = RunStore.open(self._folder.path)
        has_changed = any(self._found(file) for file in (path, self._folder.results_path))
        if path.exists() and not has_changed:
            return
        if path.exists():
            self._put_aside(path, path.read_bytes())
        self._folder.write_summary(run.figures().summary)
        self._changes.append(f"{path.name}: computed again from the records")

    def _put_aside(self, path: Path, data: bytes) -> None:
        """Append damaged data to a file next to `path`, on disk before the file itself is changed."""
        aside = path.with_name(path.name + _ASIDE)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with file_errors(f"Cannot write {aside}"), open(open_file(aside, flags), "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def restored_manifest(data: bytes, folder: RunFolder) -> RunManifest:
    """Return the manifest with the fields that can still be read; the first record provides required ones."""
    types = {field.encode_name: field.type for field in msgspec.structs.fields(RunManifest)}
    fields: dict[str, Any] = {}
    lost: dict[str, None] = {}
    marks = list(_KEY.finditer(data))
    for mark, after in zip(marks, (*marks[1:], None), strict=False):
        name = mark[1].decode()
        try:
            text = data[mark.end() : len(data) if after is None else after.start()].strip()
            fields[name] = msgspec.json.decode(_value(text, is_last=after is None), type=types[name])
        except (KeyError, ValueError):
            lost[name] = None
    if not marks:
        lost["all fields"] = None
    elif not data.rstrip().endswith(b"}"):
        lost[f"all fields after {marks[-1][1].decode()}"] = None
    first = _first_record(folder)
    fields.setdefault("run_id", first.run_id if first else folder.path.name)
    fields.setdefault("started_at", first.timestamp if first else "")
    missing = [name for name in lost if name not in _UNIMPORTANT]
    return RunManifest(**{**fields, "lost": tuple(missing), "checksum": "", "digests": {}})


def _value(text: bytes, *, is_last: bool) -> bytes:
    """Return the text of a field's value without what separates it from the next field or ends the file."""
    return text.removesuffix(b"}").rstrip() if is_last else text.removesuffix(b",")


def _first_record(folder: RunFolder) -> Result | None:
    for line in scan_records(folder.results_path):
        if not line.problem:
            return msgspec.json.decode(line.data, type=Result)
    return None
