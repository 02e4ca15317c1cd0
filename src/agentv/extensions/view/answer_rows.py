"""The answers of a served run by row, and the random order in which they are labelled."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Container
from threading import Lock

from agentv.extensions.view.appended_records import new_records
from agentv.model.result import Result
from agentv.report.row_blocks import RowRecord
from agentv.runs.record import field_decoder
from agentv.runs.store import RunStore

_NO_ANSWER = 0
_AT_ONCE = 16_384


class AnswerRecord(RowRecord):
    """The fields of a record that identify its answer."""

    candidate_answer: str | None = None


class AnswerRows:
    """The rank of each row's answer in the random order. Identical answers to a case have the same rank.

    The rank is a hash of the answer's key, so that a million answers take 16 MB. May be used by several threads.
    """

    def __init__(self, run: RunStore, rank: Callable[[str, str, str], int]) -> None:
        self._rank = rank
        self._source = new_records(run, field_decoder(AnswerRecord, run.name), checks_jobs=False)
        self._lock = Lock()
        self._ranks = array("Q")
        self._ordered = array("Q")
        self._first_rows = array("l")

    def follow(self) -> None:
        """Read the records that are new."""
        with self._lock:
            count = len(self._ranks)
            while records := self._source.read(_AT_ONCE).records:
                self._ranks.extend(map(self._rank_of, records))
            if len(self._ranks) > count:
                self._sort()

    def _rank_of(self, record: AnswerRecord | Result) -> int:
        answer = record.candidate_answer
        return _NO_ANSWER if answer is None else self._rank(record.dataset, record.eval_id, answer)

    def _sort(self) -> None:
        rows = sorted(range(len(self._ranks)), key=self._ranks.__getitem__)
        self._ordered, self._first_rows, last = array("Q"), array("l"), _NO_ANSWER
        for row in rows:
            if (rank := self._ranks[row]) != last:
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

    def next(self, done_ranks: Container[int]) -> tuple[int, int] | None:
        """Return the rank and the row of the first answer that is not done; None if all are."""
        for rank, row in zip(self._ordered, self._first_rows, strict=True):
            if rank not in done_ranks:
                return rank, row
        return None

    def unanswered(self) -> list[int]:
        """Return the rows without an answer."""
        return [row for row, rank in enumerate(self._ranks) if rank == _NO_ANSWER]

    def rows(self, ranks: Container[int]) -> dict[int, list[int]]:
        """Return the rows of answers by rank."""
        rows_by_rank: dict[int, list[int]] = {}
        for row, rank in enumerate(self._ranks):
            if rank in ranks:
                rows_by_rank.setdefault(rank, []).append(row)
        return rows_by_rank
