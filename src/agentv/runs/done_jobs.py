"""Find the jobs of a run that have a record: one fast pass that decodes keys only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agentv.errors import AgentvError
from agentv.model.result import JobKey
from agentv.runs.record import RecordKey, decode_key
from agentv.support.hash_set import HashTable

_BATCH_BYTES = 512 * 1024


class DoneJobs:
    """The jobs that have a record, in 12 to 24 bytes each.

    A hash stands for each key; among a million jobs the chance that two share one is about one in thirty million.
    """

    def __init__(self) -> None:
        self._done = HashTable()

    def __len__(self) -> int:
        return len(self._done)

    def __contains__(self, key: JobKey | tuple[str, str, str, str | None, int]) -> bool:
        return hash(key) in self._done

    @classmethod
    def read(cls, path: Path) -> DoneJobs:
        """Read a `results.jsonl`. A last line without its newline counts as not written."""
        done = cls()
        for number, lines, fraction in _batches(path):
            try:
                keys = list(map(decode_key, lines))
            except (msgspec.DecodeError, UnicodeDecodeError):
                keys = [_decode(line, at, path) for at, line in enumerate(lines, number) if not line.isspace()]
            done._done.expect(int((len(done) + len(keys)) / fraction))
            done._done.add([hash((key.dataset_path, key.eval_id, key.target, key.prompt, key.trial)) for key in keys])
        return done


def keyed_lines(path: Path) -> Iterator[tuple[JobKey, int, bytes]]:
    """The records of a `results.jsonl` as they are: the job, the byte where the line starts, and the line."""
    start = 0
    for number, lines, _ in _batches(path):
        for at, line in enumerate(lines, number):
            if not line.isspace():
                yield _decode(line, at, path).key, start, line
            start += len(line)


def _batches(path: Path) -> Iterator[tuple[int, list[bytes], float]]:
    """Read whole lines in batches: the number of the first, the lines, and the fraction of the file read so far."""
    number = 1
    try:
        with open(path, "rb", buffering=_BATCH_BYTES) as file:
            size = os.fstat(file.fileno()).st_size
            while lines := file.readlines(_BATCH_BYTES):
                if not lines[-1].endswith(b"\n"):
                    lines.pop()
                yield number, lines, min(1.0, file.tell() / size)
                number += len(lines)
    except FileNotFoundError:
        return
    except OSError as error:
        raise AgentvError(f"Cannot read {path}", error.strerror or str(error)) from error


def _decode(line: bytes, number: int, path: Path) -> RecordKey:
    try:
        return decode_key(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "Take the line out to have its job run again"
        raise AgentvError(f"Not a result record at line {number} in {path}", str(error), hint) from error
