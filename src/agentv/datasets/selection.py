"""Select cases by filter, sample, shard and limit, in that order. The selection is deterministic."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from heapq import nsmallest
from itertools import islice
from typing import Any

import msgspec

from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.values import draw_rank
from agentv.settings.diagnostics import did_you_mean

Test = Callable[[EvalCase], bool]

_MAX_KEPT = 10_000
"""Ids or tags to keep for suggestions."""

_MAX_SHOWN = 20


class Selection(msgspec.Struct, frozen=True):
    """The cases to select: those that match every filter, the `ids` if there are any, and `named` if it is set.

    `named` has pairs of dataset and id.
    """

    filters: tuple[str, ...] = ()
    sample: int | float | None = None
    seed: int = 0
    shard: tuple[int, int] | None = None
    limit: int | None = None
    ids: tuple[str, ...] = ()
    named: frozenset[tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for invalid values."""
        sample, shard, limit = self.sample, self.shard, self.limit
        if sample is not None and (
            isinstance(sample, bool) or sample <= 0 or (isinstance(sample, float) and sample > 1)
        ):
            raise UsageError(f"The sample must be a number of cases, or a fraction above 0 and up to 1; got {sample!r}")
        if shard is not None and not 1 <= shard[0] <= shard[1]:
            hint = "the first of three shards is 1/3, the last 3/3"
            raise UsageError(f"Invalid shard {shard[0]}/{shard[1]}: {hint}")
        if limit is not None and limit < 1:
            raise UsageError(f"The limit must be at least 1, got {limit!r}")

    def apply(self, cases: Iterable[EvalCase], again: Callable[[], Iterable[EvalCase]]) -> Iterator[EvalCase]:
        """Yield the selected cases; `again` returns the same cases a second time, for a sample."""
        matched = self._matching(cases)
        if self.sample is not None:
            ranks = array("Q", (draw_rank(self.seed, case.id) for case in matched))
            matched = self._sampled(self._matching(again()), _cut(ranks, self.sample))
        if self.shard is not None:
            index, count = self.shard
            matched = (case for case in matched if draw_rank(0, case.id) % count == index - 1)
        return islice(matched, self.limit)

    def _matching(self, cases: Iterable[EvalCase]) -> Iterator[EvalCase]:
        tests = [_test(filter) for filter in self.filters]
        named = self.named
        if named is not None:
            tests.append(lambda case: (case.dataset, case.id) in named)
        if self.ids:
            cases = self._of_ids(cases)
        if not tests:
            yield from cases
            return
        found = False
        tags: set[str] = set()
        for case in cases:
            if all(test(case) for test in tests):
                found = True
                yield case
            elif case.tags and len(tags) < _MAX_KEPT:
                tags.update(case.tags)
        if not found:
            shown = " and ".join(repr(filter) for filter in self.filters)
            if self.named is not None:
                what = f"None of the {len(self.named):,} cases selected from the earlier run is in the dataset"
                raise UsageError(f"No case matches{f' the filter {shown}' if shown else ''}", what)
            raise UsageError(f"No case matches the filter {shown}", hint=_hint(self.filters, tags))

    def _of_ids(self, cases: Iterable[EvalCase]) -> Iterator[EvalCase]:
        """Yield the cases with these ids. Raises UsageError for an id that no case has."""
        missing = set(self.ids)
        others: list[str] = []
        for case in cases:
            if case.id in self.ids:
                missing.discard(case.id)
                yield case
            elif len(others) < _MAX_KEPT:
                others.append(case.id)
        for id in self.ids:
            if id in missing:
                hint = did_you_mean(id, others) or "`agentv cases` lists the ids; use --filter for a glob"
                raise UsageError(f"No case has the id '{id}'", hint=hint)

    def _sampled(self, cases: Iterable[EvalCase], cut: tuple[int, int]) -> Iterator[EvalCase]:
        highest, ties = cut
        for case in cases:
            rank = draw_rank(self.seed, case.id)
            if rank < highest:
                yield case
            elif rank == highest and ties:
                ties -= 1
                yield case


def _test(filter: str) -> Test:
    """Parse a filter: `tag=x`, `metadata.k=v`, or a glob over ids."""
    key, equals, wanted = filter.partition("=")
    if equals and key == "tag":
        return lambda case: any(fnmatchcase(tag, wanted) for tag in case.tags)
    if equals and key.startswith("metadata."):
        steps = key.split(".")[1:]
        return lambda case: _holds(case.metadata, steps, wanted)
    return lambda case: case.id == filter or fnmatchcase(case.id, filter)


def _hint(filters: Sequence[str], tags: Collection[str]) -> str:
    """Return a hint for the first filter that looks wrong."""
    for filter in filters:
        key, equals, wanted = filter.partition("=")
        if equals and key == "tag":
            if any(fnmatchcase(tag, wanted) for tag in tags):
                continue
            known = sorted(tags)[:_MAX_SHOWN]
            return did_you_mean(wanted, tags) or (f"Tags: {', '.join(known)}" if known else "No case has a tag")
        if equals and not key.startswith("metadata."):
            return f"'{key}=' is not a filter. Use tag=x, metadata.key=x, or a glob over ids"
    return "Ids are matched by globs, for example '*part*'"


def _holds(value: Any, steps: list[str], wanted: str) -> bool:
    for position, step in enumerate(steps):
        if not isinstance(value, dict):
            return False
        # A key may contain dots; the longest existing key wins.
        rest = ".".join(steps[position:])
        if rest in value:
            return _equals(value[rest], wanted)
        if step not in value:
            return False
        value = value[step]
    return _equals(value, wanted)


def _equals(value: Any, wanted: str) -> bool:
    if isinstance(value, list):
        return any(_equals(item, wanted) for item in value)
    if isinstance(value, str):
        return fnmatchcase(value, wanted)
    return not isinstance(value, dict) and msgspec.json.encode(value).decode() == wanted


def _cut(ranks: array[int], sample: int | float) -> tuple[int, int]:
    """Return the highest rank in the sample, and the number of cases with exactly that rank."""
    wanted = sample if isinstance(sample, int) else max(1, round(sample * len(ranks)))
    chosen = nsmallest(wanted, ranks)
    return (chosen[-1], chosen.count(chosen[-1])) if chosen else (0, 0)
