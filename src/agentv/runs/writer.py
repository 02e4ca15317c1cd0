"""Append whole lines to a file. Written lines survive a kill; a torn last line is removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NoReturn

from agentv.errors import AgentvError, UsageError, file_errors
from agentv.registry import RESULT_FORMATS

SYNC_INTERVAL_S = 1.0
"""How much work a power cut can lose. A killed process loses nothing that was written."""

MOST_PENDING, PENDING_S = 32, 0.005
"""How many lines wait for one `flush`, and for how long: what a killed process can lose of the jobs that ended."""

Redact = Callable[[bytes], bytes]

_BLOCK = 64 * 1024
_sync = getattr(os, "fdatasync", os.fsync)


class ResultWriter:
    """Appends lines of JSON to one file, and creates it if necessary. One writer per file: hold the folder's lock.

    `cut_bytes` is the length of a torn last line that was removed; its job has no record. `go_on` completes the hint of
    an error message.
    """

    def __init__(self, path: Path | str, redact: Redact | None = None, *, go_on: str = "go on with --resume") -> None:
        self.path = Path(path)
        self._go_on = go_on
        self._redact = redact
        self._torn = False
        self._pending: list[bytes] = []
        self._synced_at = monotonic()
        self._written_at = 0.0
        with file_errors(f"Cannot write {self.path}"):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._file = os.open(self.path, flags, 0o666)
        try:
            self.cut_bytes = self._cut_torn_line()
        except OSError as error:
            os.close(self._file)
            self._fail(error)

    def write(self, line: bytes) -> None:
        """Append a line that ends in a newline. Raises AgentvError on failure; then nothing of it is in the file."""
        self.write_all([line])

    def write_all(self, lines: list[bytes]) -> None:
        """Append lines with one system call. If that fails, the lines in the file are complete."""
        self.flush()
        self._append(b"".join(lines if self._redact is None else map(self._redact, lines)))

    def add(self, line: bytes) -> bool:
        """Append a line, together with others if they follow quickly. Returns whether the caller must call `flush`."""
        self._pending.append(line if self._redact is None else self._redact(line))
        if len(self._pending) < MOST_PENDING and monotonic() - self._written_at < PENDING_S:
            return len(self._pending) == 1
        self.flush()
        return False

    def flush(self) -> None:
        """Write the lines that wait, with one system call. Raises AgentvError on failure."""
        if self._pending:
            lines, self._pending = self._pending, []
            self._append(b"".join(lines))

    def _append(self, line: bytes) -> None:
        try:
            if self._torn:
                self._cut_torn_line()
            written = os.write(self._file, line)
            while written < len(line):
                self._torn = True
                written += os.write(self._file, line[written:])
            self._torn = False
        except OSError as error:
            self._torn = True
            with suppress(OSError):
                self._cut_torn_line()
            self._fail(error)
        self._written_at = monotonic()
        if self._written_at - self._synced_at >= SYNC_INTERVAL_S:
            self.sync()

    def sync(self) -> None:
        """Flush to disk, so that everything written survives a power cut."""
        self._synced_at = monotonic()
        try:
            _sync(self._file)
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Sync and close; a second time does nothing."""
        if self._file < 0:
            return
        try:
            self.flush()
            self.sync()
        finally:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> ResultWriter:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def _cut_torn_line(self) -> int:
        """Remove what follows the last newline; returns its length. While that fails, nothing more is written."""
        size = os.fstat(self._file).st_size
        end = end_of_last_line(self._file, size)
        if end < size:
            os.ftruncate(self._file, end)
        self._torn = False
        return size - end

    def _fail(self, error: OSError) -> NoReturn:
        raise AgentvError(
            f"Cannot write {self.path}",
            error.strerror or str(error),
            f"What was written before is whole; make room or mend the cause, then {self._go_on}",
        ) from error


def end_of_last_line(file: int, size: int) -> int:
    """The offset after the last newline; 0 when there is none."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        os.lseek(file, start, os.SEEK_SET)
        block = os.read(file, end - start)
        found = block.rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".yaml": "yaml", ".yml": "yaml"}
_REPORTS = (".csv", ".html", ".md", ".parquet", ".xml")
_OTHER_FILES = (".gz", ".json", ".log", ".tsv", ".txt", ".xlsx", ".zst")


def places_of(out: str | None, said: str | None = None) -> tuple[str | None, tuple[str, str] | None]:
    """The run folder that `--out` names, or the file of records and its format: by `--format`, else by extension."""
    extension = os.path.splitext(out or "")[1].lower()
    file_format = said or _FORMATS.get(extension)
    if out is None or (file_format is None and (os.path.isdir(out) or extension not in (*_REPORTS, *_OTHER_FILES))):
        return out, None
    if file_format is None:
        hint = f"Run first, then: agentv report RUN {out}" if extension in _REPORTS else "Say which with --format"
        raise UsageError(f"Cannot write {out}", "A file of records ends in .jsonl or .yaml; else it is a folder", hint)
    if os.path.isdir(out):
        raise UsageError(f"Cannot write {out}", "It is a folder")
    if not os.path.isdir(os.path.dirname(out) or "."):
        raise UsageError(f"Cannot write {out}", f"There is no folder {os.path.dirname(out)}")
    return None, (out, file_format)


def export_records(results: Path, target: str, file_format: str) -> None:
    """Write all records to a file: `jsonl` as they are, `yaml` one document each.

    An existing file is replaced when the new one is complete; what is not a file, such as a pipe, is written to.
    """
    path = Path(os.path.realpath(target))
    in_place = path.exists() and not path.is_file()
    written = path if in_place else path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with file_errors(f"Cannot write {target}"):
            with results.open("rb") as lines, written.open("wb") as stream:
                if file_format == "yaml":
                    RESULT_FORMATS.find("agentv-yaml").write(lines, stream)
                else:
                    shutil.copyfileobj(lines, stream)
            if not in_place:
                os.replace(written, path)
    finally:
        if not in_place:
            with suppress(OSError):
                written.unlink(missing_ok=True)
