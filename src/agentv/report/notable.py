"""The results that people should look at: errors, failures and borderline ones, the worst first, and how many."""

from __future__ import annotations

from heapq import nsmallest

import msgspec

from agentv.model.result import Result
from agentv.results.opened import OpenedRun


class Notable(msgspec.Struct, frozen=True, kw_only=True):
    """A few of each kind, and how many there are of it in all."""

    failed: list[Result]
    borderline: list[Result]
    errors: list[Result]
    counts: dict[str, int]


def notable(run: OpenedRun, most: int) -> Notable:
    """At most `most` of each kind, in one pass that keeps no more."""
    counts = {"failed": 0, "borderline": 0, "errors": 0}
    kept: dict[str, list[Result]] = {kind: [] for kind in counts}
    for result in run.results():
        kind = _kind(result)
        if kind is None:
            continue
        counts[kind] += 1
        kept[kind].append(result)
        if len(kept[kind]) >= 4 * most:
            kept[kind] = _worst(kept[kind], most)
    return Notable(**{kind: _worst(found, most) for kind, found in kept.items()}, counts=counts)


def _kind(result: Result) -> str | None:
    if result.status == "error":
        return "errors"
    return {"fail": "failed", "borderline": "borderline"}.get(result.verdict or "")


def _worst(results: list[Result], most: int) -> list[Result]:
    """Those with the lowest scores; of equals, the first that came. Errors have none and stay in their order."""
    return nsmallest(most, results, key=lambda result: result.score or 0.0)
