"""Group the results that did not pass, without a model: by error class or evaluator, tag and wording."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import msgspec

from agentv.model.message import stored_tool_calls
from agentv.model.result import EvaluatorResult, Result

_EXAMPLES = 3
_MOST_KEYS = 2_000
"""Distinct combinations of cause, tags and wording that are kept; further ones count as other wording."""
_MOST_SEQUENCES = 200
_MOST_WORDINGS = 5
"""Groups of one cause and tag that differ by wording; the rest is one group."""
_MOST_LEADERS = 100
_SIMILAR = 70
"""Wordings with at least this similarity, from 0 to 100, are in one group."""
_LONGEST_TEXT = 300
_LONGEST_SEQUENCE = 8
_FEWEST_TAGGED = 3
_TELLING = 1.5
"""A tag describes a group if its results fail at least this much more often than all results."""

_VALUES = re.compile(
    r"https?://\S+|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*`|“[^”]*”|\{.*\}|\[.*\]|(?<!\w)/[\w./-]+|\b[0-9a-f]{12,}\b|\d[\d.,:]*"
)

Cause = tuple[Literal["error", "evaluator"], str]
"""What a result failed: an error class, or an evaluator."""


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results that failed in the same way."""

    kind: Literal["error", "evaluator"]
    cause: str
    """An error class or the name of the evaluator that cost the most; of an evaluator that errored, both."""

    count: int
    tag: str | None = None
    """A tag whose results fail more often than others."""

    tag_failures: int | None = None
    """The failures among `tag_results`."""

    tag_results: int | None = None
    """The results with the tag."""

    wording: str | None = None
    """A typical message; None if the messages differ."""

    tools: tuple[str, int] | None = None
    """The most frequent sequence of tool calls and its number of results, if the answers have tool calls."""

    examples: tuple[str, ...] = ()
    """Ids of cases."""


class FailureGroups(msgspec.Struct, frozen=True, kw_only=True):
    """All failures of `results` results, `errors` of which are errors. Every failure is in exactly one of `groups`.

    The other fields count the failures by one property each: a result may have several tags, and none of the others.
    """

    results: int
    failures: int
    errors: int
    groups: tuple[FailureGroup, ...] = ()
    error_classes: dict[str, int] = {}
    evaluators: dict[str, int] = {}
    tags: dict[str, int] = {}
    tool_sequences: dict[str, int] = {}


class _Kind:
    """The failures with the same cause, tags and template of wording."""

    __slots__ = ("count", "examples", "tools", "wording")

    def __init__(self, wording: str) -> None:
        self.count = 0
        self.wording = wording
        self.examples: list[str] = []
        self.tools: Counter[str] = Counter()


class TagCounts(NamedTuple):
    """The number of results, and of those with each tag, that failures are compared with."""

    results: int
    tags: Mapping[str, int]


class FailureGrouper:
    """Collects failures one result at a time. Its memory does not grow with the number of results.

    `among` are the results to compare the tags of failures with, if only some of them are added.
    """

    def __init__(self, among: TagCounts | None = None) -> None:
        self._among = among
        self._results = self._failures = self._errors = 0
        self._tagged: Counter[str] = Counter()
        self._failed_tags: Counter[str] = Counter()
        self._classes: Counter[str] = Counter()
        self._evaluators: Counter[str] = Counter()
        self._sequences: Counter[str] = Counter()
        self._kinds: dict[tuple[Cause, tuple[str, ...], str], _Kind] = {}

    def add(self, result: Result) -> None:
        """Count a result; remember why if it did not pass. Results without a score are not failures."""
        self._results += 1
        for tag in result.tags:
            self._tagged[tag] += 1
        is_error = result.status == "error"
        if not is_error and (result.verdict is None or result.verdict == "pass"):
            return
        self._failures += 1
        self._errors += is_error
        cause, text = _cause_of(result)
        (self._classes if is_error else self._evaluators)[cause[1]] += 1
        self._failed_tags.update(dict.fromkeys(result.tags, 1))
        self._remember(cause, result, text[:_LONGEST_TEXT])

    def _remember(self, cause: Cause, result: Result, text: str) -> None:
        tags = tuple(sorted(set(result.tags)))
        key = (cause, tags, _template(text))
        if key not in self._kinds and len(self._kinds) >= _MOST_KEYS:
            key, text = (cause, (), ""), ""
        if (kind := self._kinds.get(key)) is None:
            kind = self._kinds[key] = _Kind(text)
        kind.count += 1
        if len(kind.examples) < _EXAMPLES and result.eval_id not in kind.examples:
            kind.examples.append(result.eval_id)
        sequence = tool_sequence(result) if result.output_messages else ""
        if sequence:
            self._sequences[sequence if len(self._sequences) < _MOST_SEQUENCES else "other"] += 1
            kind.tools[sequence if len(kind.tools) < _MOST_SEQUENCES else "other"] += 1

    def build(self) -> FailureGroups:
        """Return the groups, the largest first."""
        by_cause: dict[tuple[Cause, str | None], list[tuple[str, _Kind]]] = {}
        for (cause, tags, template), kind in self._kinds.items():
            by_cause.setdefault((cause, self._telling_tag(tags)), []).append((template, kind))
        groups = [
            self._group(cause, tag, wording, kinds)
            for (cause, tag), members in by_cause.items()
            for wording, kinds in _by_wording(members)
        ]
        return FailureGroups(
            results=self._results,
            failures=self._failures,
            errors=self._errors,
            groups=tuple(sorted(groups, key=lambda each: (-each.count, each.kind, each.cause, each.wording or ""))),
            error_classes=_sorted(self._classes),
            evaluators=_sorted(self._evaluators),
            tags=_sorted(self._failed_tags),
            tool_sequences=_sorted(self._sequences),
        )

    def _telling_tag(self, tags: Iterable[str]) -> str | None:
        """Return the tag whose results fail most often, if they fail more often than all results."""
        results, tagged = self._among or TagCounts(self._results, self._tagged)
        base = self._failures / results

        def rate(tag: str) -> float:
            return self._failed_tags[tag] / max(1, tagged.get(tag, 0))

        telling = [tag for tag in tags if self._failed_tags[tag] >= _FEWEST_TAGGED and rate(tag) >= _TELLING * base]
        return min(telling, key=lambda tag: (-rate(tag), -self._failed_tags[tag], tag), default=None)

    def _group(self, cause: Cause, tag: str | None, wording: str | None, kinds: Sequence[_Kind]) -> FailureGroup:
        tools: Counter[str] = Counter()
        examples: dict[str, None] = {}
        for kind in kinds:
            tools.update(kind.tools)
            examples.update(dict.fromkeys(kind.examples))
        common = min(tools.items(), key=lambda item: (-item[1], item[0]), default=None)
        return FailureGroup(
            kind=cause[0],
            cause=cause[1],
            count=sum(kind.count for kind in kinds),
            tag=tag,
            tag_failures=None if tag is None else self._failed_tags[tag],
            tag_results=None if tag is None else (self._among.tags if self._among else self._tagged).get(tag, 0),
            wording=wording,
            tools=common,
            examples=tuple(list(examples)[:_EXAMPLES]),
        )


def tool_sequence(result: Result) -> str:
    """Return the tools that an answer called, in order, without immediate repetitions; empty without calls."""
    names = [tool for tool, _ in groupby(call.tool for call in stored_tool_calls(result.output_messages))]
    parts = [*names[:_LONGEST_SEQUENCE], *(["…"] if len(names) > _LONGEST_SEQUENCE else [])]
    return " → ".join(parts)


def group_failures(results: Iterable[Result], among: TagCounts | None = None) -> FailureGroups:
    """Group the results that did not pass. `among` are the results to compare their tags with, if not these."""
    grouper = FailureGrouper(among)
    for result in results:
        grouper.add(result)
    return grouper.build()


def _cause_of(result: Result) -> tuple[Cause, str]:
    """Return what a result failed, and its message."""
    error = result.error
    if result.status == "error":
        name: str = error.error_class if error is not None else "unknown"
        failed = next((entry for entry in result.evaluator_results if entry.score is None), None)
        if name == "evaluator" and failed is not None:
            name = f"evaluator {failed.name}"
        return ("error", name), error.message if error is not None else ""
    if (entry := _costliest(result.evaluator_results)) is None:
        return ("evaluator", "unknown"), next(iter(result.misses), None) or result.reasoning or ""
    return ("evaluator", entry.name), next(iter(entry.misses), None) or entry.reasoning or ""


def _costliest(results: Sequence[EvaluatorResult]) -> EvaluatorResult | None:
    """Return the evaluator that cost a result the most: of those that did not pass, the largest weighted loss."""
    scored = [entry for entry in results if entry.score is not None]
    missed = [entry for entry in scored if entry.verdict != "pass"] or scored
    return max(missed, key=lambda result: result.weight * (1 - (result.score or 0.0)), default=None)


def _template(text: str) -> str:
    """Return a message without the values that differ between cases: numbers, paths and quoted text."""
    return " ".join(_VALUES.sub("…", text).casefold().split())


def _by_wording(members: Sequence[tuple[str, _Kind]]) -> Iterator[tuple[str | None, list[_Kind]]]:
    """Yield groups of similar wording with a typical one; the rest, if there are many, together as None."""
    counts: Counter[str] = Counter()
    for template, kind in members:
        counts[template] += kind.count
    leaders = _leaders(counts)
    groups: dict[str, list[_Kind]] = {}
    for template, kind in members:
        groups.setdefault(leaders[template], []).append(kind)
    ranked = sorted(groups.items(), key=lambda item: (-sum(kind.count for kind in item[1]), item[0]))
    large = [pair for pair in ranked if sum(kind.count for kind in pair[1]) > 1] if len(ranked) > _EXAMPLES else ranked
    top = large[:_MOST_WORDINGS]
    for _, kinds in top:
        typical = max(kinds, key=lambda kind: kind.count)
        yield typical.wording or None, kinds
    top_leaders = {leader for leader, _ in top}
    if rest := [kind for leader, kinds in ranked if leader not in top_leaders for kind in kinds]:
        yield None, rest


def _leaders(counts: Counter[str]) -> dict[str, str]:
    """Return for each template the most frequent one that it resembles. The order of the results has no effect."""
    if len(counts) < 2:
        return {template: template for template in counts}
    from rapidfuzz import fuzz, process  # late: only runs with different failures need it

    leaders: list[str] = []
    leader_of: dict[str, str] = {}
    for template, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        match = process.extractOne(template, leaders, scorer=fuzz.token_sort_ratio, score_cutoff=_SIMILAR)
        if match is None and len(leaders) < _MOST_LEADERS:
            leaders.append(template)
        leader_of[template] = template if match is None else match[0]
    return leader_of


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
