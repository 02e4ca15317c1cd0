"""The answers of a served run by row, and the random order in which they are labelled."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container
from threading import Lock

from agentv.calibration.label_order import draw_order
from agentv.calibration.labels import AnswerKey, answer_hash
from agentv.model.result import Result
from agentv.report.row_blocks import RowRecord
from agentv.runs.record import field_decoder
from agentv.runs.store import RunStore
from agentv.view.appended_records import AppendedRecords, HeldRecords, lines_of

_SEED = 0
"""The seed of `agentv judge label`, whose order the page continues."""
_NO_ANSWER = 0
_AT_ONCE = 16_384


class AnswerRecord(RowRecord):
    """The fields of a record that identify its answer."""

    candidate_answer: str | None = None


class AnswerRows:
    """The rank of each row's answer in the random order. Identical answers to a case have the same rank.

    The rank is a hash of the answer's key, so that a million answers take 16 MB. May be used by several threads.
    """

    def __init__(self, run: RunStore) -> None:
        lines = lines_of(run)
        self._source: AppendedRecords[AnswerRecord | Result] | HeldRecords = (
            HeldRecords(run)
            if lines is None
            else AppendedRecords(lines, field_decoder(AnswerRecord, run.name), checks_jobs=False)
        )
        self._lock = Lock()
        self._ranks = array("Q")
        self._ordered = array("Q")
        self._first_rows = array("l")

    def follow(self) -> None:
        """Read the records that are new."""
        with self._lock:
            known = len(self._ranks)
            while records := self._source.read(_AT_ONCE).records:
                self._ranks.extend(map(_rank_of_record, records))
            if len(self._ranks) > known:
                self._sort()

    def _sort(self) -> None:
        rows = sorted(range(len(self._ranks)), key=self._ranks.__getitem__)
        self._ordered, self._first_rows, last = array("Q"), array("l"), _NO_ANSWER
        for row in rows:
            rank = self._ranks[row]
            if rank != last:
                self._ordered.append(rank)
                self._first_rows.append(row)
                last = rank

    @property
    def count(self) -> int:
        """The number of different answers."""
        return len(self._ordered)

    def __contains__(self, rank: object) -> bool:
        place = bisect_left(self._ordered, rank) if isinstance(rank, int) else self.count
        return place < self.count and self._ordered[place] == rank

    def next(self, done: Container[int]) -> tuple[int, int] | None:
        """Return the rank and the row of the first answer that is not done; None if all are."""
        for rank, row in zip(self._ordered, self._first_rows, strict=True):
            if rank not in done:
                return rank, row
        return None

    def unanswered(self) -> list[int]:
        """Return the rows without an answer."""
        return [row for row, rank in enumerate(self._ranks) if rank == _NO_ANSWER]

    def rows(self, ranks: Container[int]) -> dict[int, list[int]]:
        """Return the rows of answers by rank."""
        found: dict[int, list[int]] = {}
        for row, rank in enumerate(self._ranks):
            if rank in ranks:
                found.setdefault(rank, []).append(row)
        return found


def rank_of(key: AnswerKey) -> int:
    """Return the rank of an answer in the random order."""
    return int.from_bytes(draw_order(key, _SEED), "big") or 1


def _rank_of_record(record: AnswerRecord | Result) -> int:
    answer = record.candidate_answer
    return _NO_ANSWER if answer is None else rank_of(AnswerKey(record.dataset, record.eval_id, answer_hash(answer)))
