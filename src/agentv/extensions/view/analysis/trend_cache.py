"""The means over time of the runs with the same datasets and target, kept until one of the runs changes."""

from collections import OrderedDict
from threading import Lock
from typing import Any

import msgspec

from agentv.extensions.view.run_list import ListedRun

_MOST_KEPT = 16

_Key = tuple[tuple[str, ...], str]


class TrendCache:
    """The last series that were asked for, until one of their runs changes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, tuple[list[ListedRun], dict[str, Any] | None]] = OrderedDict()
        self._lock = Lock()

    def series(self, runs: list[ListedRun], datasets: tuple[str, ...], target: str) -> dict[str, Any] | None:
        """Return a series as data; None if no run with scores belongs to it."""
        key = datasets, target
        members = [run for run in runs if tuple(sorted(run.entry.datasets)) == datasets and target in run.entry.targets]
        with self._lock:
            entry = self._kept.get(key)
            if entry is None or entry[0] != members:
                entry = self._kept[key] = members, _series(members, target)
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            return entry[1]


def _series(members: list[ListedRun], target: str) -> dict[str, Any] | None:
    from agentv.comparison.trend import series_data, series_of  # late: it imports numpy

    ids = {run.entry.path: run.id for run in members}
    alone = [msgspec.structs.replace(run.entry, targets={target: run.entry.targets[target]}) for run in members]
    for series in series_of(alone):
        data = series_data(series)
        for position, (run, _) in enumerate(series.runs):
            row = {"id": ids[run.path], "is_unread": position in series.unread}
            data["runs"][position] |= row | {"other_measures": series.other_measures.get(position, 0)}
        return data
    return None
