"""Join the cases of runs: the same dataset and id, and the same input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentv.comparison.changes.measure import SharedCases
from agentv.comparison.sampling.drawn_cases import Columns, refuse_different_draws, weights_of
from agentv.comparison.scores import Column, GroupedCases, RunScores, clusters_of

JOIN_HINT = "Cases are matched by dataset, id and input"
_SHOWN_IDS = 10

Name = tuple[str | None, ...]


class JoinedCases:
    """The cases of two runs matched by name and input, in the order of the first run.

    `named` are the rows in both runs of the cases with the same name, `matched` of those with the same input too.
    `scores` are those that both runs scored. `shared` has the cases with the same name but another input, which are not
    matched, and how the runs were scored differently, in which case their scores cannot be compared.
    """

    def __init__(self, before: RunScores, after: RunScores) -> None:
        self.notes: list[str] = [*before.import_notes, *after.import_notes]
        self.parts = name_parts((before, after), self.notes)
        self.sides = GroupedCases(before, self.parts), GroupedCases(after, self.parts)
        rows = _common_rows(self.sides)
        if not len(rows):
            rows = self._join_by_id(before, after, rows)
        self.named = rows
        refuse_different_draws(self.sides, rows)
        self.shared = SharedCases(self.sides, rows)
        self.matched = _picked(rows, self.shared.same_input)
        self.notes += self.shared.notes
        first, second, there = self._means(before.scores, after.scores)
        self.rows = len(self.matched)
        self.index = _picked(self.matched, there)
        self.scores = _picked(first, there), _picked(second, there)
        self.unscored = int(np.isnan(first).sum()), int(np.isnan(second).sum())
        self.unmatched = len(self.sides[0]) - len(rows), len(self.sides[1]) - len(rows)
        self.unmatched_ids = self._only_in(0), self._only_in(1)
        self.clusters = clusters_of(self.sides, self.index)
        self.weights = weights_of(self.sides, self.index)

    def name(self, row: int) -> Name:
        """Return the name of the case in a row of `scores`."""
        return self.sides[0].name(int(self.index[row][0]))

    def column(self, before: Column, after: Column) -> Columns:
        """Return two columns over the cases where both runs have a number."""
        first, second, there = self._means(before, after)
        rows = _picked(self.matched, there)
        clusters, weights = clusters_of(self.sides, rows), weights_of(self.sides, rows)
        return Columns(_picked(first, there), _picked(second, there), clusters, weights)

    def _means(self, before: Column, after: Column) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return the means of the matched cases in both runs, and where both have a number."""
        first = self.sides[0].means(before)[self.matched[:, 0]]
        second = self.sides[1].means(after)[self.matched[:, 1]]
        return first, second, ~np.isnan(first) & ~np.isnan(second)

    @property
    def columns(self) -> Columns:
        """The scores of the cases that both runs scored."""
        return Columns(*self.scores, self.clusters, self.weights)

    def datasets(self) -> dict[str, NDArray[Any]]:
        """Return the rows of `scores` by dataset; empty if datasets are not part of the names."""
        if 0 not in self.parts:
            return {}
        side = self.sides[0]
        codes, names = side.run.cases.datasets()
        dataset_codes = codes[side.first[self.index[:, 0]]]
        return {name: rows for code, name in enumerate(names) if len(rows := np.flatnonzero(dataset_codes == code))}

    def tags(self) -> dict[str, NDArray[Any]]:
        """Return the rows of `scores` by tag; a tag in either run counts."""
        if not len(self.index):
            return {}
        tag_sets, codes = [], []
        for side, index in zip(self.sides, self.index.T, strict=True):
            numbers = np.asarray(side.run.tags)[side.first[index]].astype(np.intp)
            tag_sets.append(list(side.run.tag_sets))
            codes.append(numbers)
        unique_codes, which = np.unique(codes[0] * len(tag_sets[1]) + codes[1], return_inverse=True)
        rows = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
        parts: dict[str, list[NDArray[Any]]] = {}
        for code, part in zip(unique_codes.tolist(), rows, strict=True):
            for tag in {*tag_sets[0][code // len(tag_sets[1])], *tag_sets[1][code % len(tag_sets[1])]}:
                parts.setdefault(tag, []).append(part)
        return {tag: np.sort(np.concatenate(parts[tag])) for tag in sorted(parts)}

    def _join_by_id(self, before: RunScores, after: RunScores, rows: NDArray[Any]) -> NDArray[Any]:
        """Match by id only, if ids are unique: a dataset may be renamed, or another tool may not store its name."""
        by_id = GroupedCases(before, (1,)), GroupedCases(after, (1,))
        is_unique = all(len(side) == len(GroupedCases(side.run, (0, 1))) for side in by_id)
        id_rows = _common_rows(by_id) if is_unique else rows
        if len(id_rows):
            self.sides, self.parts = by_id, (1,)
            self.notes.append("The runs have no dataset in common; cases are matched by id only")
        return id_rows

    def _only_in(self, side: int) -> tuple[str, ...]:
        if not self.unmatched[side]:
            return ()
        cases = self.sides[side].only_here(self.sides[1 - side])
        return tuple(case.eval_id for case in islice(cases, _SHOWN_IDS))


def name_parts(runs: Sequence[RunScores], notes: list[str]) -> tuple[int, ...]:
    """Return the key positions that name a case: dataset and id; also target and prompt if all runs share several."""
    parts: tuple[int, ...] = (0, 1)
    for place, plural in ((2, "targets"), (3, "prompts")):
        lists: list[list[Any]] = [run.targets if place == 2 else run.prompts for run in runs]
        if all(len(entries) > 1 for entries in lists) and set(lists[0]).intersection(*lists[1:]):
            parts += (place,)
            continue
        for run, entries in zip(runs, lists, strict=True):
            if len(entries) > 1:
                hint = f"; to compare one, use {run.label}:{entries[0]}" if place == 2 else ""
                names = ", ".join(map(str, entries))
                notes.append(f"{run.label} has {len(entries)} {plural} ({names}); scores are averaged per case{hint}")
    return parts


def _common_rows(sides: Sequence[GroupedCases]) -> NDArray[Any]:
    """Return the row in each run of each case that all runs have, in the order of the first run."""
    first, *others = sides
    rows = [np.arange(len(first)), *(side.rows_of(first) for side in others)]
    there = np.logical_and.reduce([column >= 0 for column in rows])
    return np.stack([_picked(column, there).astype(np.int32) for column in rows], axis=1)


def _picked(values: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    """Return the values where the mask is set, without a copy if it is set everywhere."""
    return values if mask.all() else values[mask]


def shared_by_all(sides: Sequence[GroupedCases]) -> tuple[list[SharedCases], NDArray[Any]]:
    """Return the cases that the first run shares with each other run, and the rows of those with the same input."""
    rows = _common_rows(sides)
    shared = [SharedCases((sides[0], side), rows[:, [0, place]]) for place, side in enumerate(sides[1:], 1)]
    return shared, rows[np.all([cases.same_input for cases in shared], axis=0)]
