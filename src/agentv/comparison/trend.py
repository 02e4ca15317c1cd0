"""The level of a series of runs over time: compare each run with the earlier ones, case by case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.case_table import first_places, mixed_codes, number_codes
from agentv.comparison.changes.measure import measure_keys
from agentv.comparison.scores import RunScores
from agentv.errors import AgentvError
from agentv.runs.catalogue import RunEntry, newest_first
from agentv.runs.target_summary import TargetSummary
from agentv.stats.level_changes import LevelChange, RunValues, change_points

_NAME = (0, 1, 3)
"""The fields of a key that name a case of a series: dataset, id and prompt."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of the same datasets and target, oldest first, and where their level changed.

    `shared` is the number of cases that the newest run shares with earlier ones. `unread` are the positions of runs
    whose records cannot be read; they are shown, but not compared. `other_measures` has the number of cases of a run
    that were asked or scored differently before, by its position; they count as new cases.
    """

    datasets: tuple[str, ...]
    target: str
    runs: tuple[tuple[RunEntry, TargetSummary], ...]
    changes: tuple[LevelChange, ...] = ()
    shared: int = 0
    unread: tuple[int, ...] = ()
    other_measures: dict[int, int] = {}


def series_of(runs: Iterable[RunEntry]) -> list[Series]:
    """Group runs by datasets and target, and find the changes of each series. Runs without scores are not included."""
    groups: dict[tuple[tuple[str, ...], str], list[tuple[RunEntry, TargetSummary]]] = {}
    for run in reversed(newest_first(runs)):
        for name, target in run.targets.items():
            if target.mean is not None:
                groups.setdefault((tuple(sorted(run.datasets)), name), []).append((run, target))
    return [_series(datasets, target, members) for (datasets, target), members in groups.items()]


def _series(datasets: tuple[str, ...], target: str, members: Sequence[tuple[RunEntry, TargetSummary]]) -> Series:
    series = Series(datasets=datasets, target=target, runs=tuple(members))
    if len(members) < 2:
        return series
    positions, table, unread = [], SeriesTable(), []
    others: dict[int, int] = {}
    for position, (run, _) in enumerate(members):
        try:
            if changed := table.add(RunScores(run.path, run.name, target)):
                others[position] = changed
            positions.append(position)
        except AgentvError:
            unread.append(position)
    changes = [
        change._replace(position=positions[change.position], found_at=positions[change.found_at])
        for change in change_points(table.runs, table.clusters)
    ]
    return msgspec.structs.replace(
        series, changes=tuple(changes), shared=table.shared, unread=tuple(unread), other_measures=others
    )


def series_data(series: Series) -> dict[str, Any]:
    """Return a series as JSON data, with runs named by their ids."""
    runs = [
        {"run_id": run.run_id, "name": run.name, "started_at": run.started_at, "git_commit": run.git_commit,
         "mean": target.mean, "ci95": target.ci95, "scored": target.scored, "errors": target.errors}
        for run, target in series.runs
    ]  # fmt: skip
    changes = [{"run_id": series.runs[change.position][0].run_id, **change._asdict()} for change in series.changes]
    unread = [series.runs[position][0].run_id for position in series.unread]
    others = {series.runs[position][0].run_id: count for position, count in series.other_measures.items()}
    return {"datasets": series.datasets, "target": series.target, "runs": runs, "changes": changes,
            "shared_cases": series.shared, "unread": unread, "other_measures": others}  # fmt: skip


class SeriesTable:
    """The scores of several runs, with cases numbered in order of appearance.

    A case is a dataset, id and prompt, asked and scored in the same way: with another measure, it is another case.
    Cases are known by the hashes of their names, so that runs can have millions.
    """

    def __init__(self) -> None:
        self.runs: list[RunValues] = []
        self._names = self._measures = self._cases = self._clusters = np.empty(0, dtype=np.int64)

    def add(self, run: RunScores) -> int:
        """Add the next run. Return the number of its cases that were asked or scored differently before."""
        names, measures = run.cases.codes(_NAME), measure_keys(run)
        changed = self._change_measures(names, measures)
        numbers = self._numbers(mixed_codes((names, measures)), run)
        cases, values = run.scores.arrays()
        scored = np.zeros(len(numbers), dtype=bool)
        scored[cases] = True
        self.runs.append(RunValues(numbers[cases], values, numbers[~scored]))
        return changed

    def _change_measures(self, names: NDArray[Any], measures: NDArray[Any]) -> int:
        """Remember the last measure of each case; return the number of those that had another one."""
        places = first_places(self._names, names)
        is_known = places >= 0
        changed = int((self._measures[places[is_known]] != measures[is_known]).sum())
        self._measures[places[is_known]] = measures[is_known]
        self._names = np.append(self._names, names[~is_known])
        self._measures = np.append(self._measures, measures[~is_known])
        return changed

    def _numbers(self, codes: NDArray[Any], run: RunScores) -> NDArray[Any]:
        """Return the number of each case of a run, with new numbers for new cases."""
        numbers = first_places(self._cases, codes)
        new = numbers < 0
        numbers[new] = np.arange(len(self._cases), len(self._cases) + new.sum())
        conversations = run.conversations()
        clusters = np.where(conversations == 0, run.cases.codes((0, 1)), conversations)
        self._cases = np.append(self._cases, codes[new])
        self._clusters = np.append(self._clusters, clusters[new])
        return numbers

    @property
    def clusters(self) -> NDArray[Any] | None:
        """The cluster of each case: a conversation, or a case with several prompts; None if all cases are alone."""
        first, numbers = number_codes(self._clusters)
        return numbers if len(first) < len(numbers) else None

    @property
    def shared(self) -> int:
        """The number of cases that the last run shares with earlier ones."""
        if len(self.runs) < 2:
            return 0
        *earlier, last = self.runs
        return len(np.intersect1d(last.cases, np.concatenate([run.cases for run in earlier])))
