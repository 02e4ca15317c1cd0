"""Handlers for comparisons: the verdict, the list of cases, and one case of both runs.

A comparison of large runs takes a while. It is computed once, in a thread, and kept for the requests that follow. The
page asks for its progress every second; if it no longer does, the comparison is stopped.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from aiohttp import web

from agentv.comparison.joined_cases import JoinedCases
from agentv.comparison.run_comparison import CompareOptions, NamedRun, compare_joined, compare_many, read_scores
from agentv.comparison.scores import RunScores
from agentv.errors import AgentvError, UsageError, plural
from agentv.extensions.view.appended_records import file_stamp
from agentv.extensions.view.row_store import find_case
from agentv.extensions.view.run_data import whole_number
from agentv.extensions.view.state import STATE, ViewState, json_response
from agentv.report.comparisons.comparison_view import ComparedRuns, matrix_head
from agentv.report.row_blocks import case_fields
from agentv.runs.baselines.pool import PoolMember, open_pool

_MOST_RUNS = 20
_MOST_KEPT, _MOST_CASES = 4, 1_000_000
"""Comparisons that are kept; fewer if they have many cases."""

_PROGRESS_S, _LEFT_S = 1.0, 15.0
"""How often the page is sent the progress, and how long after its last request it counts as gone."""

_STAMPED = ("", "run.json", "results.jsonl", "cases.jsonl")


class _PageLeft(Exception):
    """The page that asked for a comparison is gone."""


class _Comparison:
    """A comparison that is being computed, or is complete."""

    def __init__(self, runs: list[NamedRun], options: CompareOptions, pooled: Sequence[NamedRun] = ()) -> None:
        self.compared: ComparedRuns | None = None
        self.read = 0
        self._waiting = 0
        self._asked_at = monotonic()
        self._reading = Lock()
        self._pooled = pooled
        self._head = asyncio.ensure_future(asyncio.to_thread(self._compute, runs, options))

    async def head(self) -> dict[str, Any]:
        self._waiting += 1
        try:
            return await asyncio.shield(self._head)
        finally:
            self._waiting -= 1
            self._asked_at = monotonic()

    async def head_soon(self) -> dict[str, Any] | None:
        """Return the head; None if it takes longer than a second."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PROGRESS_S):
                return await self.head()
        return None

    def _watch(self, records: int) -> None:
        self.read += records
        if not self._waiting and monotonic() - self._asked_at > _LEFT_S:
            raise _PageLeft

    @property
    def has_failed(self) -> bool:
        return self._head.done() and self._head.exception() is not None

    @property
    def cases(self) -> int:
        return 0 if self.compared is None else len(self.compared.pairs)

    def _compute(self, runs: list[NamedRun], options: CompareOptions) -> dict[str, Any]:
        loaded = self._read(runs)
        if len(loaded) > 2:
            matrix = compare_many(loaded, CompareOptions(allow_changed_measure=options.allow_changed_measure))
            return matrix_head(matrix, matrix.exit_code("regression"))
        joined = JoinedCases(loaded[0], loaded[1])
        comparison = compare_joined(joined, options)
        self.compared = ComparedRuns(comparison, joined)
        return self.compared.head(comparison.exit_code("regression"))

    def _read(self, runs: list[NamedRun]) -> list[RunScores]:
        with suppress(_PageLeft):
            if not self._pooled:
                return read_scores(runs, self._watch)
            baseline, *others = runs
            members = [PoolMember(str(run.path), run.label, "branch") for run in self._pooled]
            store = open_pool([PoolMember(str(baseline.path), baseline.label), *members], baseline.picked)
            label = f"{baseline.label} ({plural(len(store.runs), 'run')})"
            first = RunScores(store, label, baseline.picked, self._watch)
            return [first, *(RunScores(*run, self._watch) for run in others)]
        # Outside the block above, because the error would keep what was read in memory.
        raise UsageError("The comparison was stopped, because the page was closed", hint="Reload the page")

    async def two_runs(self) -> ComparedRuns:
        """Return the compared runs. Raises UsageError if there are more than two."""
        await self.head()
        if self.compared is None:
            raise UsageError("Only a comparison of two runs lists its cases")
        return self.compared

    def case(self, row: int) -> dict[str, Any]:
        """Read a case. The files of both runs are read by one thread at a time."""
        assert self.compared is not None
        first, second = (side.run.run for side in self.compared.pairs.sides)
        with self._reading, first, second:
            try:
                data = self.compared.case(row)
            except (AgentvError, OSError) as error:
                raise _changed() from error
            [(_, id, _, _)] = self.compared.pairs.names(range(row, row + 1))
            if any(side is not None and side["record"]["eval_id"] != id for side in data["sides"]):
                raise _changed()
            place = 0 if data["sides"][1] is None else 1
            record = data["sides"][place]["record"]
            return {**data, "case": self._stored_case(place, record["dataset_path"], record["eval_id"])}

    def _stored_case(self, place: int, dataset_path: str, id: str) -> dict[str, Any] | None:
        """Return a case as a run stored it; None if it did not."""
        assert self.compared is not None
        run = self.compared.pairs.sides[place].run.run
        offset = find_case(run.folder.cases_path, dataset_path, id)
        entry = next(run.cases_at([offset])) if offset >= 0 else None
        return None if entry is None else case_fields(entry.fields)


def _changed() -> AgentvError:
    return AgentvError("A run has changed since it was compared", hint="Reload the page")


async def compare(request: web.Request) -> web.Response:
    """Return everything about a comparison but its cases."""
    key, comparison = _comparison(request)
    head = await comparison.head_soon() if request.query.get("progress") == "1" else await comparison.head()
    return json_response({"key": key, **({"kind": "progress", "read": comparison.read} if head is None else head)})


async def rows(request: web.Request) -> web.Response:
    """Return a block of cases."""
    compared = await _comparison(request)[1].two_runs()
    return json_response(await asyncio.to_thread(compared.block, whole_number(request, "first")))


async def case(request: web.Request) -> web.Response:
    """Return a case in both runs."""
    comparison = _comparison(request)[1]
    compared = await comparison.two_runs()
    if (row := whole_number(request, "row")) >= len(compared.pairs):
        raise UsageError("This comparison has no such case", hint="Reload the page")
    return json_response(await asyncio.to_thread(comparison.case, row))


def _comparison(request: web.Request) -> tuple[str, _Comparison]:
    """Return the comparison that a request names by its key, or else by its runs, which is then computed."""
    state = request.app[STATE]
    cache = state.comparisons
    if (key := request.query.get("key", "")) not in cache:
        runs = _runs(state, request)
        pooled = [_run(state, id, "", "") for id in request.query.getall("pooled", [])]
        options = CompareOptions(changes=0, allow_changed_measure=request.query.get("anyway") == "1")
        key = _key([*runs, *pooled], options)
        if key not in cache or cache[key].has_failed:
            cache[key] = _Comparison(runs, options, pooled)
    cache.move_to_end(key)
    while len(cache) > 1 and (len(cache) > _MOST_KEPT or sum(entry.cases for entry in cache.values()) > _MOST_CASES):
        cache.popitem(last=False)
    comparison: _Comparison = cache[key]
    return key, comparison


def _runs(state: ViewState, request: web.Request) -> list[NamedRun]:
    """Return the runs of a request: ids of the list, each with an optional target or prompt after a colon."""
    values = request.query.getall("runs", [])
    names = values if len(values) > 1 else [name for text in values for name in text.split(",")]
    if not 0 < len(names) <= _MOST_RUNS:
        raise UsageError(f"Choose up to {_MOST_RUNS} runs to compare")
    return [_run(state, *name.partition(":")) for name in names]


def _run(state: ViewState, id: str, colon: str, picked: str) -> NamedRun:
    entry = state.runs.find(id).entry
    return NamedRun(Path(entry.path), f"{entry.name}{colon}{picked}", picked or None)


def _key(runs: list[NamedRun], options: CompareOptions) -> str:
    """Return a key that changes when a run changes."""
    stamps = [[file_stamp(Path(run.path) / name) for name in _STAMPED] for run in runs]
    return hashlib.blake2b(repr((runs, options, stamps)).encode(), digest_size=8).hexdigest()
