"""Indexes of the records of a run: which jobs have one, and where the records of a case are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentv.errors import file_errors
from agentv.model.result import JobKey, Result
from agentv.model.values import json_decoder
from agentv.runs.record import RecordKey, ScoreRecord, damaged
from agentv.support.hash_table import HashTable, OffsetTable
from agentv.support.json_values import repair_json

if TYPE_CHECKING:
    from agentv.runs.store import RunStore

_BATCH_BYTES = 512 * 1024
_CASES_REMEMBERED = 256


class DoneJobs:
    """The set of jobs that have a record, in 12 to 24 bytes each.

    It stores hashes of the keys. The probability of a collision among a million jobs is about one in thirty million.
    """

    def __init__(self) -> None:
        self._done = HashTable()

    def __len__(self) -> int:
        return len(self._done)

    def __contains__(self, key: JobKey | tuple[str, str, str, str | None, int]) -> bool:
        return hash(key) in self._done

    @classmethod
    def read(cls, path: Path) -> DoneJobs:
        """Read a `results.jsonl`. A last line without a newline is ignored."""
        jobs = cls()
        for number, lines, fraction in _batches(path):
            try:
                keys = list(map(json_decoder(RecordKey), lines))
            except (msgspec.DecodeError, UnicodeDecodeError):
                keys = [_decode(line, at, path) for at, line in enumerate(lines, number) if not line.isspace()]
            jobs._done.expect(int((len(jobs) + len(keys)) / fraction))
            jobs._done.add([hash((key.dataset_path, key.eval_id, key.target, key.prompt, key.trial)) for key in keys])
        return jobs


def keyed_lines(path: Path) -> Iterator[tuple[JobKey, int, bytes]]:
    """Yield the records of a `results.jsonl` without decoding them: the job, the offset of the line, and the line."""
    start = 0
    for number, lines, _ in _batches(path):
        for at, line in enumerate(lines, number):
            if not line.isspace():
                yield _decode(line, at, path).key, start, line
            start += len(line)


def _batches(path: Path) -> Iterator[tuple[int, list[bytes], float]]:
    """Yield batches of whole lines: the number of the first line, the lines, and the fraction of the file read."""
    number = 1
    if not path.exists():
        return
    with file_errors(f"Cannot read {path}"), open(path, "rb", buffering=_BATCH_BYTES) as file:
        size = os.fstat(file.fileno()).st_size
        while lines := file.readlines(_BATCH_BYTES):
            if not lines[-1].endswith(b"\n"):
                lines.pop()
            yield number, lines, min(1.0, file.tell() / size)
            number += len(lines)


def _decode(line: bytes, number: int, path: Path) -> RecordKey:
    decode: Callable[[bytes], RecordKey] = json_decoder(RecordKey)
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        repaired = repair_json(line)  # half a surrogate pair, as the reader of records accepts it
        if repaired != line:
            return _decode(repaired, number, path)
        raise damaged(path, f"line {number}", error) from error


class AnswerIndex:
    """The records of a run by dataset name and case id, which do not change if the dataset's file is moved.

    The last of several records of a job counts. `jobs` is the number of distinct jobs.
    """

    def __init__(self, run: RunStore) -> None:
        self.run = run
        self.places = lru_cache(_CASES_REMEMBERED)(self._places)
        self._offsets = OffsetTable()
        targets: dict[str, None] = {}
        datasets: dict[str, None] = {}
        jobs = HashTable()
        for offset, record in run.entries(ScoreRecord):
            self._offsets.add(hash((record.dataset, record.eval_id)), offset)
            jobs.add([hash((record.dataset, record.key))])
            targets[record.target] = datasets[record.dataset] = None
        self.targets = tuple(targets)
        self.datasets = tuple(filter(None, datasets))
        self.jobs = len(jobs)
        # Many tools do not store the name of a dataset; the caller checks that the input is the same.
        manifest = run.manifest
        is_imported = manifest is not None and manifest.imported_from is not None
        self._fallbacks = ("", *(self.datasets if is_imported and len(self.datasets) == 1 else ()))

    def __len__(self) -> int:
        return len(self._offsets)

    def find(self, dataset: str, key: JobKey) -> Result | None:
        """Return the record of a job. Target, prompt and trial must match."""
        places = self.places(dataset, key.eval_id, key.dataset_path)
        offset = next((offset for other, offset in places if other[2:] == key[2:]), None)
        return None if offset is None else self.run.read(offset)

    def _places(self, dataset: str, eval_id: str, dataset_path: str) -> list[tuple[JobKey, int]]:
        """Return the jobs of a case that have a record, each with its offset."""
        # Some files of AgentV (TypeScript) omit the dataset.
        for name in dict.fromkeys((dataset, *self._fallbacks)):
            if places := list(self._with_name(name, eval_id)):
                # Prefer the dataset with the same path if several have the same name.
                same = [place for place in places if place[0].dataset_path == dataset_path]
                return list({key[2:]: (key, offset) for key, offset in same or places}.values())
        return []

    def _with_name(self, dataset: str, eval_id: str) -> Iterator[tuple[JobKey, int]]:
        for offset in reversed(list(self._offsets.latest_first(hash((dataset, eval_id))))):
            record = self.run.read(offset, ScoreRecord)
            if (record.dataset, record.eval_id) == (dataset, eval_id):
                yield record.key, offset
