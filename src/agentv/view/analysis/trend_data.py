"""The means over time of the runs with the same datasets and target, as the page draws them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from threading import Lock
from typing import Any

import msgspec
from aiohttp import web

from agentv.view.run_list import ListedRun
from agentv.view.state import STATE, json_response

_MOST_KEPT = 16

_Key = tuple[tuple[str, ...], str]


async def trend(request: web.Request) -> web.Response:
    """Return the series of the datasets and the target that the request names; the same figures as `runs trend`."""
    state = request.app[STATE]
    datasets = tuple(sorted(request.query.getall("dataset", [])))
    target = request.query.get("target", "")

    def found() -> dict[str, Any] | None:
        state.runs.refresh()
        return _kept.series(state.runs.runs(), datasets, target)

    return json_response({"series": await asyncio.to_thread(found)})


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
            known = self._kept.get(key)
            if known is None or known[0] != members:
                known = self._kept[key] = members, _series(members, target)
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            return known[1]


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


_kept = TrendCache()
