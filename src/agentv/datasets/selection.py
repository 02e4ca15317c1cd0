"""Select cases by list, filter, sample, shard and limit, in that order. The selection is deterministic."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from heapq import nsmallest
from itertools import islice
from typing import Any

import msgspec

from agentv.errors import UsageError, file_errors, plural
from agentv.lazy_regex import lazy_regex
from agentv.model.case import NO_DETAILS, EvalCase
from agentv.model.diagnostics import did_you_mean
from agentv.model.values import draw_rank

CaseName = tuple[str, str]
"""Dataset name and case id: identifies a case across runs, wherever the dataset is stored."""

Test = Callable[[EvalCase], bool]

_MAX_KEPT = 10_000
"""Ids or tags to keep for suggestions."""

_MAX_SHOWN = 20

_KEY = lazy_regex(r"(?:tag|metadata\.[^=]+?)!?=")


class Selection(msgspec.Struct, frozen=True):
    """The cases to select: those that match every filter, the `ids` if there are any, `named` and `listed` if set.

    `named` and `listed` have pairs of dataset and id. Every listed case of a dataset that is read must exist. `rows`
    are first and last positions, counted from 0. `split` is `train` or `test` with the fraction of the training part.
    """

    filters: tuple[str, ...] = ()
    sample: int | float | None = None
    seed: int = 0
    shard: tuple[int, int] | None = None
    limit: int | None = None
    ids: tuple[str, ...] = ()
    named: frozenset[CaseName] | None = None
    listed: frozenset[CaseName] | None = None
    rows: tuple[tuple[int, int], ...] | None = None
    split: tuple[str, float] | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for invalid values."""
        if sum(choice is not None for choice in (self.sample, self.rows, self.split)) > 1:
            raise UsageError("--sample, --rows and --split exclude each other")
        sample, shard, limit = self.sample, self.shard, self.limit
        if sample is not None and (
            isinstance(sample, bool) or sample <= 0 or (isinstance(sample, float) and sample > 1)
        ):
            raise UsageError(f"The sample must be a number of cases, or a fraction above 0 and up to 1; got {sample!r}")
        if shard is not None and not 1 <= shard[0] <= shard[1]:
            hint = "The first of three shards is 1/3, and the last 3/3"
            raise UsageError(f"There is no shard {shard[0]}/{shard[1]}", hint=hint)
        if limit is not None and limit < 1:
            raise UsageError(f"The limit must be at least 1, got {limit!r}")

    def apply(self, cases: Iterable[EvalCase], again: Callable[[], Iterable[EvalCase]]) -> Iterator[EvalCase]:
        """Yield the selected cases; `again` returns the same cases a second time, for a sample."""
        matched = self._matching(cases if self.rows is None else self._in_rows(cases, self.rows))
        share = self.sample if self.split is None else self.split[1]
        if share is not None:
            ranks = array("Q", (draw_rank(self.seed, case.id) for case in matched))
            is_rest = self.split is not None and self.split[0] == "test"
            matched = self._sampled(self._matching(again()), _cut(ranks, share), rest=is_rest)
        if self.shard is not None:
            matched = _sharded(matched, *self.shard)
        return islice(matched, self.limit)

    def _matching(self, cases: Iterable[EvalCase]) -> Iterable[EvalCase]:
        tests = [_test(filter) for filter in self.filters]
        if (names := self.named) is not None:
            tests.append(lambda case: (case.dataset, case.id) in names)
        if self.listed is not None:
            cases = _of_list(cases, self.listed)
        if self.ids:
            cases = self._of_ids(cases)
        return self._passing(cases, tests) if tests else cases

    def _passing(self, cases: Iterable[EvalCase], tests: list[Test]) -> Iterator[EvalCase]:
        """Yield the cases that pass all tests. Raises UsageError if none does."""
        has_match = False
        tags: set[str] = set()
        for case in cases:
            if all(test(case) for test in tests):
                has_match = True
                yield case
            elif case.tags and len(tags) < _MAX_KEPT:
                tags.update(case.tags)
        if not has_match:
            filter_text = " and ".join(repr(filter) for filter in self.filters)
            if self.named is not None:
                what = f"None of the {len(self.named):,} cases selected from the earlier run is in the dataset"
                raise UsageError(f"No case matches{f' the filter {filter_text}' if filter_text else ''}", what)
            raise UsageError(f"No case matches the filter {filter_text}", hint=_hint(self.filters, tags))

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
                hint = did_you_mean(id, others) or "`agentv cases` lists the ids; use --filter for a glob or a list"
                raise UsageError(f"No case has the id '{id}'", hint=hint)

    def _sampled(self, cases: Iterable[EvalCase], cut: tuple[int, int], *, rest: bool = False) -> Iterator[EvalCase]:
        """Yield the cases in the sample, or with `rest` all others."""
        highest, ties = cut
        for case in cases:
            rank = draw_rank(self.seed, case.id)
            is_tie = rank == highest and ties > 0
            ties -= is_tie
            if (rank < highest or is_tie) is not rest:
                yield case

    def _in_rows(self, cases: Iterable[EvalCase], rows: tuple[tuple[int, int], ...]) -> Iterator[EvalCase]:
        """Yield the cases at these positions, which count from 0. Raises UsageError for one that is missing."""
        count = 0
        for count, case in enumerate(cases, 1):
            if any(first < count <= last + 1 for first, last in rows):
                yield case
        last = max(last for _, last in rows)
        if last >= count:
            raise UsageError(f"There is no row {last}: rows count from 0, and the last is {count - 1}")


Alternatives = tuple[str, list[str]]
"""A key with its operator (`tag=`, `metadata.k!=`; empty for ids) and the values to compare with."""


class ListedCase(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a case list."""

    dataset: str
    id: str


def read_case_list(path: str) -> frozenset[CaseName]:
    """Read a case list: a JSON object with `dataset` and `id` on each line. Raises UsageError."""
    hint = "`agentv plan --subset N RUN... --out FILE` writes such a file"
    with file_errors(f"Cannot read the case list {path}"), open(path, "rb") as file:
        lines = [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    names = set()
    for number, line in lines:
        try:
            case = msgspec.json.decode(line, type=ListedCase)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            what = f"{path}:{number} is not an object with `dataset` and `id`: {error}"
            raise UsageError("Invalid case list", what, hint) from None
        names.add((case.dataset, case.id))
    if not names:
        raise UsageError(f"The case list {path} is empty", hint=hint)
    return frozenset(names)


def write_case_list(path: str, names: Iterable[CaseName]) -> None:
    """Write a case list that `read_case_list` can read."""
    text = b"".join(msgspec.json.encode(ListedCase(*name)) + b"\n" for name in names)
    with file_errors(f"Cannot write the case list {path}"), open(path, "wb") as file:
        file.write(text)


def _of_list(cases: Iterable[EvalCase], case_names: frozenset[CaseName]) -> Iterator[EvalCase]:
    """Yield the listed cases. Raises UsageError if one of a dataset that was read does not exist, or none was read."""
    datasets, missing = set(), set(case_names)
    for case in cases:
        datasets.add(case.dataset)
        if (case.dataset, case.id) in case_names:
            missing.discard((case.dataset, case.id))
            yield case
    if gone := sorted(name for name in missing if name[0] in datasets):
        what = f"{plural(len(gone), 'listed case')} not in the dataset, the first: {gone[0][1]} in {gone[0][0]}"
        raise UsageError(what, hint="Remove them from the list, or write it again with `agentv plan --subset`")
    if len(missing) == len(case_names):
        names = ", ".join(sorted({name for name, _ in case_names})[:_MAX_SHOWN])
        raise UsageError("None of the listed cases is in the datasets that were read", hint=f"Listed datasets: {names}")


def _sharded(cases: Iterable[EvalCase], index: int, count: int) -> Iterator[EvalCase]:
    """Yield the cases of a shard. A case is in the shard of the first case it depends on, if that comes before it."""
    roots: dict[str, str] = {}
    for case in cases:
        root = case.id
        if case.details is not NO_DETAILS and case.details.depends_on:
            first = case.details.depends_on[0]
            root = roots[case.id] = roots.get(first, first)
        if draw_rank(0, root) % count == index - 1:
            yield case


def _test(filter: str) -> Test:
    """Parse a filter with alternatives: `a*,b`, `tag=x,y`, `metadata.k=v`; `tag!=x,y` excludes both."""
    tests = [_test_of(key, values) for key, values in _groups(filter)]
    return tests[0] if len(tests) == 1 else lambda case: any(test(case) for test in tests)


def _groups(filter: str) -> list[Alternatives]:
    """Split a filter at its commas. A part without a key has the key of the part before it."""
    groups: list[Alternatives] = []
    for part in filter.split(","):
        key, value = _key_and_value(part)
        if key or not groups:
            groups.append((key, [value]))
        else:
            groups[-1][1].append(value)
    if len(groups) == 1 and "," in filter:
        groups[0][1].append(_key_and_value(filter)[1])  # an id or a value may contain commas
    return groups


def _key_and_value(part: str) -> tuple[str, str]:
    match = _KEY.match(part)
    return (match[0], part[match.end() :]) if match else ("", part)


def _test_of(key: str, values: list[str]) -> Test:
    name, is_excluded = key.rstrip("!="), key.endswith("!=")
    if not name:
        return lambda case: case.id in values or any(fnmatchcase(case.id, value) for value in values)
    if name == "tag":
        return lambda case: is_excluded != any(fnmatchcase(tag, value) for tag in case.tags for value in values)
    steps = name.split(".")[1:]
    return lambda case: is_excluded != any(_holds(case.metadata, steps, value) for value in values)


def _hint(filters: Sequence[str], tags: Collection[str]) -> str:
    """Return a hint for the first filter that looks wrong."""
    for key, values in (group for filter in filters for group in _groups(filter)):
        if key == "tag=":
            if any(fnmatchcase(tag, value) for tag in tags for value in values):
                continue
            names = sorted(tags)[:_MAX_SHOWN]
            return did_you_mean(values[0], tags) or (f"Tags: {', '.join(names)}" if names else "No case has a tag")
        if not key and "=" in values[0]:
            return f"'{values[0].partition('=')[0]}=' is not a filter. Use tag=x, metadata.key=x, or a glob over ids"
    return "Ids are matched by globs, for example '*part*'"


def _holds(value: Any, steps: list[str], pattern: str) -> bool:
    for position, step in enumerate(steps):
        if not isinstance(value, dict):
            return False
        # A key may contain dots; the longest existing key wins.
        if (rest := ".".join(steps[position:])) in value:
            return _equals(value[rest], pattern)
        if step not in value:
            return False
        value = value[step]
    return _equals(value, pattern)


def _equals(value: Any, pattern: str) -> bool:
    if isinstance(value, list):
        return any(_equals(item, pattern) for item in value)
    if isinstance(value, str):
        return fnmatchcase(value, pattern)
    return not isinstance(value, dict) and msgspec.json.encode(value).decode() == pattern


def _cut(ranks: array[int], sample: int | float) -> tuple[int, int]:
    """Return the highest rank in the sample, and the number of cases with exactly that rank."""
    size = sample if isinstance(sample, int) else max(1, round(sample * len(ranks)))
    sample_ranks = nsmallest(size, ranks)
    return (sample_ranks[-1], sample_ranks.count(sample_ranks[-1])) if sample_ranks else (0, 0)


def parse_sample(text: str) -> int | float:
    """Read `200` as a number of cases, `10%` and `0.1` as fractions."""
    try:
        if text.endswith("%"):
            sample: int | float = float(text[:-1]) / 100
        else:
            sample = int(text) if text.isdigit() else float(text)
    except ValueError:
        sample = 0
    if not sample > 0 or (isinstance(sample, float) and sample > 1):
        raise UsageError(f"--sample takes a number of cases or a percentage such as 10%, got {text!r}")
    return sample


def parse_shard(text: str) -> tuple[int, int]:
    """Read `2/8` as the second of eight parts."""
    index, slash, count = text.partition("/")
    if not slash or not index.isdigit() or not count.isdigit():
        raise UsageError(f"--shard takes I/N, for example 2/8, got {text!r}")
    return int(index), int(count)


def parse_rows(text: str) -> tuple[tuple[int, int], ...]:
    """Read `0,3-5` as the first and last positions of ranges."""
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise UsageError(f"--rows takes positions and ranges such as 0,3-5,9, got {text!r}")
        ranges.append((int(first), int(last if dash else first)))
    return tuple(ranges)


def parse_split(text: str) -> tuple[str, float]:
    """Read `train:80` as a part and the fraction of cases for training."""
    part, _, percent = text.partition(":")
    if part not in ("train", "test") or not percent.isdigit() or not 0 < int(percent) < 100:
        raise UsageError(f"--split takes train:PERCENT or test:PERCENT, for example train:80, got {text!r}")
    return part, int(percent) / 100
