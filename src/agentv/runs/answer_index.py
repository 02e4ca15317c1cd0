"""Find the records of a run by case, to answer from them again. Holds a hash and an offset for each record."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache

from agentv.model.result import JobKey, Result
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore
from agentv.support.hash_set import HashTable

_LOWEST_64_BITS = 2**64 - 1
_CASES_REMEMBERED = 256


class AnswerIndex:
    """The records of a run by dataset name and case id, which hold wherever the dataset's file is now.

    Of several records of one job the last counts. `jobs` is the number of distinct jobs.
    """

    def __init__(self, run: RunStore) -> None:
        self.run = run
        self._find_places = lru_cache(_CASES_REMEMBERED)(self._places)
        targets: dict[str, None] = {}
        datasets: dict[str, None] = {}
        jobs = HashTable()
        # One number for hash and offset sorts without a key for each; an offset takes less than 64 bits.
        both: list[int] = []
        for offset, record in run.entries(ScoreRecord):
            both.append(_hash(record.dataset, record.eval_id) << 64 | offset)
            jobs.add([hash((record.dataset, record.key))])
            targets[record.target] = datasets[record.dataset] = None
        both.sort()
        self._hashes = array("Q", (each >> 64 for each in both))
        self._offsets = array("Q", (each & _LOWEST_64_BITS for each in both))
        self.targets = tuple(targets)
        self.datasets = tuple(filter(None, datasets))
        self.jobs = len(jobs)

    def __len__(self) -> int:
        return len(self._offsets)

    def places(self, dataset: str, eval_id: str, dataset_path: str) -> list[tuple[JobKey, int]]:
        """The jobs of a case that have a record, each with its offset."""
        return self._find_places(dataset, eval_id, dataset_path)

    def find(self, dataset: str, key: JobKey) -> Result | None:
        """The record of a job; its target, prompt and trial must match."""
        places = self._find_places(dataset, key.eval_id, key.dataset_path)
        offset = next((offset for found, offset in places if found[2:] == key[2:]), None)
        return None if offset is None else self.run.read(offset)

    def _places(self, dataset: str, eval_id: str, dataset_path: str) -> list[tuple[JobKey, int]]:
        # AgentV leaves the dataset out of some files.
        for name in dict.fromkeys((dataset, "")):
            found = list(self._with_name(name, eval_id))
            if found:
                # Of several datasets of one name, the one with the same path goes first.
                same = [place for place in found if place[0].dataset_path == dataset_path]
                return list({key[2:]: (key, offset) for key, offset in same or found}.values())
        return []

    def _with_name(self, dataset: str, eval_id: str) -> Iterator[tuple[JobKey, int]]:
        code = _hash(dataset, eval_id)
        for place in range(bisect_left(self._hashes, code), bisect_right(self._hashes, code)):
            record = self.run.read(self._offsets[place], ScoreRecord)
            if (record.dataset, record.eval_id) == (dataset, eval_id):
                yield record.key, self._offsets[place]


def _hash(dataset: str, eval_id: str) -> int:
    return hash((dataset, eval_id)) & _LOWEST_64_BITS
