"""The label file: one label per line, appended by several programs at the same time."""

import os
from functools import partial
from pathlib import Path

import msgspec

from agentv.errors import AgentvError, file_errors
from agentv.extensions.judge.labels import Label, Labels
from agentv.runs.folder_lock import wait_for_lock
from agentv.runs.writer import ResultWriter, incomplete_line
from agentv.support.private_files import open_file

_TORN_LINE = b'{"schema_version":'
"""How a line begins that a killed process wrote in part. A last line that begins differently is not ours to remove."""

_decode = msgspec.json.Decoder(Label).decode


class LabelFile:
    """A label file. Each label is on disk when `add` returns. Other programs may add labels meanwhile."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with file_errors(f"Cannot create {self.path.parent}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stamp: tuple[int, ...] | None = None
        self._labels = Labels(())
        self._refresh()
        if os.path.lexists(self.path):
            with file_errors(f"Cannot write {self.path}"):
                os.close(open_file(self.path, os.O_RDWR))

    @property
    def labels(self) -> Labels:
        """The labels in the file, read again if the file has changed."""
        self._refresh()
        return self._labels

    def add(self, *labels: Label) -> None:
        """Append labels. Raises AgentvError if the file is not a label file; it is then unchanged."""
        lock = partial(_lock, path=self.path)
        with ResultWriter(self.path, next_step="run the same command again", lock=lock) as writer:
            writer.write_all([msgspec.json.encode(label) + b"\n" for label in labels])
            writer.sync()

    def _refresh(self) -> None:
        if (stamp := _stamp(self.path)) != self._stamp:
            self._labels = Labels(read_labels(self.path))
            self._stamp = stamp


def read_labels(path: Path | str) -> list[Label]:
    """Read a label file; empty if it does not exist. A last line that a killed process left incomplete is ignored."""
    path = Path(path)
    if not path.is_file():
        return []
    labels = []
    with file_errors(f"Cannot read {path}"), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace() or _is_torn(line):
                continue
            try:
                labels.append(_decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise AgentvError(f"{path}, line {number} is not a valid label", str(error)) from None
    return labels


def _lock(file: int, path: Path) -> None:
    """Wait until no other program writes to the file, and complete a last line that lacks only its newline."""
    wait_for_lock(file, path)
    line = incomplete_line(file)
    if not line or _is_torn(line):
        return
    try:
        _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AgentvError(f"{path}: the last line is not a valid label", str(error), "Name another file") from None
    os.write(file, b"\n")


def _is_torn(line: bytes) -> bool:
    if line.endswith(b"\n") or not (line.startswith(_TORN_LINE) or _TORN_LINE.startswith(line)):
        return False
    try:
        _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns
