"""Formats of result files: which one a file has, and its records one at a time. Plug-ins add formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from agentv.errors import AgentvError, UsageError
from agentv.model.result import Result
from agentv.registry import RESULT_FORMATS
from agentv.runs.record import RecordError, ScoreRecord, decode_record
from agentv.support.hashes import HashTable

RESULTS_FILE = "results.jsonl"
_HEAD_BYTES = 64 * 1024
_CHECKED_TOGETHER = 256


class ResultFormat(Protocol):
    """One way to store results in a file. `unit` is what a record is called there: a line, a document."""

    extensions: tuple[str, ...]
    unit: str

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether a file that starts with `head` has this format."""

    def records(self, path: Path) -> Iterator[Result]:
        """The results in a file, one at a time. Raises AgentvError for a record that cannot be read."""


class RecordLines:
    """Our own records, one JSON object a line."""

    extensions: tuple[str, ...] = (".jsonl", ".ndjson")
    unit = "line"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        return b'"schema_version"' in first_line(head)

    def records(self, path: Path) -> Iterator[Result]:
        return (record for _, record in decoded_lines(path, lambda line: decode_record(line, path.stem)))


def format_of(path: Path) -> ResultFormat:
    """The format of a result file: its content decides, its extension breaks the tie. Raises UsageError."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise AgentvError(f"Cannot read {path}", error.strerror or str(error)) from error
    known: list[ResultFormat] = []
    for name in RESULT_FORMATS.all_names():
        known.append(RESULT_FORMATS.find(name)())
        if known[-1].sniff(head, path):
            return known[-1]
    for found in known:
        if path.suffix.lower() in found.extensions:
            return found
    extensions = dict.fromkeys(extension for each in known for extension in each.extensions)
    raise UsageError(f"Not a run: {path}", f"Supported files: {', '.join(extensions)}")


def first_line(head: bytes) -> bytes:
    """The first line that is not blank."""
    return head.lstrip().partition(b"\n")[0]


Record = TypeVar("Record", bound=ScoreRecord | Result)


def decoded_lines(path: Path, decode: Callable[[bytes], Record]) -> Iterator[tuple[int, Record]]:
    """Decode each record of a file of lines, with the byte that it starts at. Raises AgentvError for damaged ones."""
    start, jobs = 0, DuplicateCheck(path, "line")
    try:
        with open(path, "rb", buffering=1 << 18) as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    try:
                        record = decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
                    except RecordError as error:
                        # The last line of a run that was killed, or is being written, can be half there.
                        if not line.endswith(b"\n") and path.name == RESULTS_FILE:
                            break
                        raise damaged(path, f"line {number}", error) from error
                    jobs.add(record, number)
                    yield start, record
                start += len(line)
        jobs.finish()
    except OSError as error:
        raise AgentvError(f"Cannot read {path}", error.strerror or str(error)) from error


def damaged(path: Path, place: str, error: RecordError) -> AgentvError:
    """The error for a record that cannot be read."""
    return AgentvError(f"Not a result at {place} in {path}", str(error))


class DuplicateCheck:
    """Refuses a second record of the same job while a file is read, in 12 to 24 bytes a job.

    Rows of other tools have no dataset path and do not number their trials: they may repeat a case.
    """

    def __init__(self, path: Path, unit: str) -> None:
        self._path = path
        self._unit = unit
        self._seen = HashTable()
        self._waiting: list[tuple[str, str, str, str, str | None, int]] = []
        self._numbers: list[int] = []

    def add(self, record: ScoreRecord | Result, number: int) -> None:
        """Check one more record, with its number in the file. A duplicate is refused a little later."""
        path = record.dataset_path
        if path:
            # Not `record.key`, which takes twice the time.
            self._waiting.append((record.dataset, path, record.eval_id, record.target, record.prompt, record.trial))
            self._numbers.append(number)
            if len(self._waiting) == _CHECKED_TOGETHER:
                self.finish()

    def finish(self) -> None:
        """Check the records that wait. Raises AgentvError for a duplicate."""
        for position in self._seen.add(list(map(hash, self._waiting))):
            _, path, id, target, prompt, trial = self._waiting[position]
            asked = "" if prompt is None else f", prompt {prompt}"
            raise AgentvError(
                f"A job is twice in {self._path}, again at {self._unit} {self._numbers[position]}",
                f"{id} of {path}, target {target}{asked}, trial {trial}",
                "Take one of its records out: which one counts cannot be told",
            )
        self._waiting.clear()
        self._numbers.clear()
