"""The batches of a run on disk: written before and after each is submitted, so that a resumed run finds them again."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from agentv.runs.writer import ResultWriter
from agentv.support.private_files import make_folder
from agentv.targets.apis.batch_api import Submission


class BatchLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log: first the label and the ids of the requests, later the batch that the provider created.

    A batch that the provider rejected `is_void`: its requests may be submitted again.
    """

    label: str
    target: str
    batch: str | None = None
    ids: tuple[str, ...] = ()
    at_s: float = 0.0
    is_void: bool = False


class LoggedBatch:
    """A submitted batch, or one that may have been submitted before the run was killed."""

    def __init__(self, submission: Submission, batch: str | None = None) -> None:
        self.submission = submission
        self.batch = batch


_decode = msgspec.json.Decoder(BatchLine).decode


class BatchLog:
    """The batches of one target. Each process writes its own file, and reads those of all."""

    def __init__(self, folder: str, target: str) -> None:
        self._folder = Path(folder)
        self._target = target
        self._file: ResultWriter | None = None
        self.batches: dict[str, LoggedBatch] = {}
        self._of_id: dict[str, LoggedBatch] = {}
        for line in self._lines():
            self._apply(line)

    def find(self, id: str) -> LoggedBatch | None:
        """Return the batch of a request."""
        return self._of_id.get(id)

    @property
    def known(self) -> set[str]:
        """The ids of all batches that are known to exist."""
        return {entry.batch for entry in self.batches.values() if entry.batch is not None}

    def intend(self, label: str, ids: list[str]) -> LoggedBatch:
        """Write that a batch is about to be submitted."""
        self._write(BatchLine(label, self._target, ids=tuple(ids), at_s=time.time()))
        return self.batches[label]

    def created(self, label: str, batch: str) -> None:
        """Write the provider's id of a batch."""
        self._write(BatchLine(label, self._target, batch))

    def void(self, label: str) -> None:
        """Write that a batch does not exist."""
        self._write(BatchLine(label, self._target, is_void=True))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, line: BatchLine) -> None:
        if self._file is None:
            make_folder(str(self._folder))
            self._file = ResultWriter(self._folder / f"{os.getpid()}-{self._target_file}.jsonl")
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.sync()
        self._apply(line)

    @property
    def _target_file(self) -> str:
        return "".join(char if char.isalnum() else "-" for char in self._target)[:40]

    def _apply(self, line: BatchLine) -> None:
        if line.ids:
            entry = self.batches[line.label] = LoggedBatch(Submission(line.label, frozenset(line.ids), line.at_s))
            self._of_id.update(dict.fromkeys(line.ids, entry))
        elif line.label in self.batches and line.is_void:
            gone = self.batches.pop(line.label)
            for id in gone.submission.ids:
                if self._of_id.get(id) is gone:
                    del self._of_id[id]
        elif line.label in self.batches:
            self.batches[line.label].batch = line.batch

    def _lines(self) -> Iterator[BatchLine]:
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else ():
            for line in path.read_bytes().split(b"\n"):
                with suppress(msgspec.DecodeError):  # an incomplete last line
                    entry = _decode(line)
                    if entry.target == self._target:
                        yield entry
