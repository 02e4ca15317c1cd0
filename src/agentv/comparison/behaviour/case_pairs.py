"""All cases of two runs as columns, those that changed most first, and the records of each case."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.behaviour.regressions import CaseBehaviour, behaviour_of
from agentv.comparison.joined_cases import JoinedCases
from agentv.comparison.scores import GroupedCases
from agentv.model.result import Result, reason_of
from agentv.runs.record import ScoreRecord

CaseKind = Literal["loss", "gain", "tie", "unscored", "other input", "only in A", "only in B"]
KINDS: tuple[CaseKind, ...] = ("loss", "gain", "tie", "unscored", "other input", "only in A", "only in B")
_LOSS, _GAIN, _TIE, _UNSCORED, _OTHER_INPUT, _ONLY_A, _ONLY_B = range(len(KINDS))
_MOST_READ, _MOST_LISTED = 1_000, 50
"""Records of a case that are read to find the one to show, and of which scores are listed."""


class CaseSide(msgspec.Struct, frozen=True, kw_only=True):
    """A case in one run: the record to show, and the number, trial, score and verdict of all its records.

    The number of a record is its position in the run, from 0. `more` records are not in `trials`.
    """

    record: Result
    row: int
    trials: tuple[tuple[int, int, float | None, str], ...]
    more: int = 0


class CasePair(msgspec.Struct, frozen=True, kw_only=True):
    """A case in both runs; a side is None if its run does not have the case."""

    sides: tuple[CaseSide | None, CaseSide | None]
    reason: str | None
    behaviour: CaseBehaviour | None


class CasePairs:
    """All cases of two runs, with their places in both: first those that changed, the largest changes first, then
    those that a run did not score, those that are not paired, and those that did not change.

    `kinds` are indexes into `KINDS`. `errors` is 1 for a case with an error in A, 2 in B, 3 in both.
    """

    def __init__(self, joined: JoinedCases, threshold: float) -> None:
        self._joined = joined
        self.sides = joined.sides
        # A case that is not in a run has the row -1, the number at the end.
        means = [np.append(side.means(side.run.scores), np.nan) for side in self.sides]
        failed = [np.append(side.means(side.run.failures) > 0, False) for side in self.sides]
        kinds, rows = self._found(means)
        self.before, self.after = (mean[rows[:, place]] for place, mean in enumerate(means))
        self.deltas = np.where(kinds == _TIE, np.round(self.after - self.before, 12), np.nan)
        kinds[(self.deltas <= -threshold) & (self.deltas < 0)] = _LOSS
        kinds[(self.deltas >= threshold) & (self.deltas > 0)] = _GAIN
        self.errors = failed[0][rows[:, 0]] + 2 * failed[1][rows[:, 1]]
        self.kinds, self.rows = kinds, rows
        self._sort()

    def _found(self, means: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the kind of each case, and its rows in both runs; -1 if a run does not have it."""
        joined, (first, second) = self._joined, self.sides
        matched = joined.matched
        is_scored = ~np.isnan(means[0][matched[:, 0]]) & ~np.isnan(means[1][matched[:, 1]])
        parts = {
            _TIE: matched[is_scored],
            _UNSCORED: matched[~is_scored],
            _OTHER_INPUT: joined.named[~joined.shared.same_input],
            _ONLY_A: _alone(np.flatnonzero(second.rows_of(first) < 0), 0),
            _ONLY_B: _alone(np.flatnonzero(first.rows_of(second) < 0), 1),
        }
        kinds = np.repeat(np.array(list(parts), dtype=np.uint8), [len(part) for part in parts.values()])
        return kinds, np.concatenate(list(parts.values())).astype(np.int32)

    def _sort(self) -> None:
        size = np.abs(np.nan_to_num(self.deltas))
        tier = np.select([size > 0, self.kinds == _UNSCORED, self.kinds != _TIE], [0, 1, 2], 3)
        order = np.lexsort((np.nan_to_num(self.deltas), -size, tier))
        self.kinds, self.rows, self.errors = self.kinds[order], self.rows[order], self.errors[order]
        self.before, self.after, self.deltas = self.before[order], self.after[order], self.deltas[order]

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def changed(self) -> int:
        """The number of cases that are first because they changed, were not scored, or are not paired."""
        return len(self) - int(((self.kinds == _TIE) & (self.deltas == 0)).sum())

    def counts(self) -> dict[str, int]:
        """Return the number of cases of each kind, and of those with errors."""
        totals = np.bincount(self.kinds, minlength=len(KINDS)).tolist()
        return {**dict(zip(KINDS, totals, strict=True)), "errors": int((self.errors > 0).sum())}

    def names(self, rows: range) -> list[tuple[str, str, str | None, str | None]]:
        """Return the dataset, id, target and prompt of some cases; the last two if both runs have several."""
        return [self._name(row) for row in rows]

    def _name(self, row: int) -> tuple[str, str, str | None, str | None]:
        place = 0 if self.rows[row, 0] >= 0 else 1
        side = self.sides[place]
        dataset, id, target, prompt = side.run.cases.key(int(side.first[self.rows[row, place]]))
        parts = self._joined.parts
        return dataset, id, target if 2 in parts else None, prompt if 3 in parts else None

    @cached_property
    def _places(self) -> tuple[_RecordPlaces, _RecordPlaces]:
        return _RecordPlaces(self.sides[0]), _RecordPlaces(self.sides[1])

    def pair(self, row: int) -> CasePair:
        """Read the records of a case. With several trials, those are chosen that show the change."""
        delta = float(self.deltas[row])
        before, after = (self._side(row, place, delta if place else -delta) for place in (0, 1))
        if before is None or after is None:
            return CasePair(sides=(before, after), reason=None, behaviour=None)
        reason = reason_of(after.record, before.record) or None
        return CasePair(sides=(before, after), reason=reason, behaviour=behaviour_of(before.record, after.record))

    def _side(self, row: int, place: int, sign: float) -> CaseSide | None:
        group = int(self.rows[row, place])
        if group < 0:
            return None
        records = self._records(place, group)
        run = self.sides[place].run.run
        results = [run.read(offset) for _, offset in records[:_MOST_READ]]
        index = _shown(results, sign)
        trials = tuple(
            (number, entry.trial, entry.score, entry.verdict or ("error" if entry.status == "error" else "unscored"))
            for (number, _), entry in zip(records[:_MOST_LISTED], results, strict=False)
        )
        return CaseSide(record=results[index], row=records[index][0], trials=trials, more=len(records) - len(trials))

    def _records(self, place: int, group: int) -> list[tuple[int, int]]:
        """Return the number and offset of each record of a case."""
        side = self.sides[place]
        scores, case = side.run, int(side.first[group])
        if scores.picked is None and scores.records == len(side) and scores.starts[case] >= 0:
            return [(case, scores.starts[case])]  # one record for each case, in order: no need to read the run again
        return self._places[place].of(group)


def _alone(groups: NDArray[Any], place: int) -> NDArray[Any]:
    """Return the rows of cases that are in one run only."""
    rows = np.full((len(groups), 2), -1, dtype=np.int32)
    rows[:, place] = groups
    return rows


def _shown(results: Sequence[Result], sign: float) -> int:
    """Return the result to show: the best if its side improved, the worst if not, or an error if there is no change."""
    errors = [place for place, result in enumerate(results) if result.status == "error"]
    scored = [(result.score, place) for place, result in enumerate(results) if result.score is not None]
    if not scored or (np.isnan(sign) and errors):
        return errors[0] if errors else 0
    return min((-score if sign > 0 else score, place) for score, place in scored)[1]


class _RecordPlaces:
    """The numbers and offsets of the records of each case, read in one pass."""

    def __init__(self, side: GroupedCases) -> None:
        run = side.run
        cases, _ = run.failures.arrays()  # one for each record
        of_target = run.picked in run.targets
        numbers, offsets = array("q"), array("q")
        for number, (offset, record) in enumerate(run.run.entries(ScoreRecord)):
            if run.picked is None or run.picked == (record.target if of_target else record.prompt):
                numbers.append(number)
                offsets.append(offset)
        groups = side.groups[cases][: len(offsets)]  # a running eval may have more by now
        order = np.argsort(groups, kind="stable")
        self._groups = groups[order]
        self._numbers, self._offsets = np.asarray(numbers)[order], np.asarray(offsets)[order]

    def of(self, group: int) -> list[tuple[int, int]]:
        """Return the number and offset of each record of a case."""
        first, end = np.searchsorted(self._groups, (group, group + 1)).tolist()
        numbers, offsets = self._numbers[first:end].tolist(), self._offsets[first:end].tolist()
        return list(zip(numbers, offsets, strict=True))
