"""Compare runs: join their cases, average trials, and compute differences with intervals, tests and a ranking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from agentv.comparison.comparison import Change, Comparison, Matrix, Outcome, Pair, PartComparison, Side, UsageChange
from agentv.comparison.scores import Column, GroupedCases, RunScores, clusters_of
from agentv.errors import AgentvError, UsageError
from agentv.model.values import draw_rank, sampling_unit
from agentv.runs.summary import reason_of
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.means import Estimate, clustered_mean, paired_difference
from agentv.stats.paired_comparison import Paired, compare_drawn, compare_paired
from agentv.stats.power import holm, non_inferiority
from agentv.stats.ranking import rank

if TYPE_CHECKING:
    from numpy.typing import NDArray


_SHOWN_IDS = 10
_FEWEST_OF_A_TAG = 3

Name = tuple[str | None, ...]


class CompareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Changes below `threshold` are ties; `margin` asks for non-inferiority; `changes` cases are shown with answers."""

    threshold: float = 0.1
    margin: float | None = None
    changes: int = 5
    seed: int = 0


def compare_runs(before: RunScores, after: RunScores, options: CompareOptions = CompareOptions()) -> Comparison:
    """Compare the second run with the first."""
    threshold, margin, seed = options.threshold, options.margin, options.seed
    joined = JoinedCases(before, after)
    if not joined.rows:
        raise _nothing_in_common(before, after)
    scores = joined.scores
    paired = compare_paired(*scores, joined.clusters, seed=seed) if len(scores[0]) else None
    pairs = Pairs(joined, threshold)
    first, second = (
        side_of(side, mean_of(values, joined.clusters)) for side, values in zip(joined.sides, scores, strict=True)
    )
    sides = first, second
    if paired is not None and any(side.stopped_early for side in sides):
        paired = _as_drawn(joined, paired)
    with before.run, after.run:
        changed = tuple(_changes(joined, pairs, options.changes))
    return Comparison(
        sides=sides,
        paired=paired,
        threshold=threshold,
        wins=pairs.wins,
        losses=pairs.losses,
        ties=len(pairs) - pairs.wins - pairs.losses,
        common=joined.rows,
        pairs=pairs,
        changes=changed,
        evaluators=_evaluators(joined, seed),
        tags=_tags(joined, seed),
        cost=_use(joined, before.cost, after.cost),
        duration=_use(joined, before.duration, after.duration),
        unmatched=joined.unmatched,
        unmatched_ids=joined.unmatched_ids,
        unscored=joined.unscored,
        non_inferiority=None if margin is None or paired is None else non_inferiority(paired.estimate, margin),
        notes=tuple(joined.notes),
    )


class JoinedCases:
    """The cases of two runs joined by name, in the order of the first run, and which of them both scored."""

    def __init__(self, before: RunScores, after: RunScores) -> None:
        self.notes: list[str] = []
        self.parts = name_parts((before, after), self.notes)
        self.sides = GroupedCases(before, self.parts), GroupedCases(after, self.parts)
        if self.sides[0].names.keys().isdisjoint(self.sides[1].names):
            self._join_by_id(before, after)
        names, others = (side.names for side in self.sides)
        common = [(row, other) for name, row in names.items() if (other := others.get(name)) is not None]
        self._all = np.array(common, dtype=np.intp).reshape(-1, 2)
        first, second, there = self._means(before.scores, after.scores)
        self.rows = len(common)
        self.index = self._all[there]
        self.scores = first[there], second[there]
        self.unscored = int(np.isnan(first).sum()), int(np.isnan(second).sum())
        self.unmatched = len(names) - self.rows, len(others) - self.rows
        self.unmatched_ids = self._only_in(0), self._only_in(1)
        self._names: list[Name] = list(names)
        self.clusters = clusters_of(self.sides, self.index)

    def name(self, row: int) -> Name:
        """The name of the case in a row of the scores."""
        return self._names[int(self.index[row][0])]

    def column(self, before: Column, after: Column) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Two columns over the cases where both runs have a number, and the clusters of those cases."""
        first, second, there = self._means(before, after)
        return first[there], second[there], clusters_of(self.sides, self._all[there])

    def _means(self, before: Column, after: Column) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The means of the joined cases in both runs, and where both have a number."""
        first = self.sides[0].means(before)[self._all[:, 0]]
        second = self.sides[1].means(after)[self._all[:, 1]]
        return first, second, ~np.isnan(first) & ~np.isnan(second)

    def tags(self) -> dict[str, NDArray[Any]]:
        """The rows of the scores by tag; a tag in either run counts."""
        if not len(self.index):
            return {}
        known, codes = [], []
        for side, index in zip(self.sides, self.index.T, strict=True):
            numbers = np.array(side.run.tags, dtype=np.intp)[np.array(side.first, dtype=np.intp)[index]]
            known.append(list(side.run.tag_sets))
            codes.append(numbers)
        found, which = np.unique(codes[0] * len(known[1]) + codes[1], return_inverse=True)
        rows = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
        parts: dict[str, list[NDArray[Any]]] = {}
        for code, part in zip(found.tolist(), rows, strict=True):
            for tag in {*known[0][code // len(known[1])], *known[1][code % len(known[1])]}:
                parts.setdefault(tag, []).append(part)
        return {tag: np.sort(np.concatenate(parts[tag])) for tag in sorted(parts)}

    def _join_by_id(self, before: RunScores, after: RunScores) -> None:
        """Join by id alone, if ids are unique: datasets may be renamed, or not named by another tool."""
        by_id = GroupedCases(before, (1,)), GroupedCases(after, (1,))
        unique = all(len(side.names) == len({key[:2] for key in side.run.cases}) for side in by_id)
        if unique and not by_id[0].names.keys().isdisjoint(by_id[1].names):
            self.sides, self.parts = by_id, (1,)
            self.notes.append("No dataset is in both: cases are matched by their ids alone")

    def _only_in(self, side: int) -> tuple[str, ...]:
        if not self.unmatched[side]:
            return ()
        mine, other = self.sides[side].names, self.sides[1 - side].names
        place = self.parts.index(1)
        return tuple(islice((str(name[place]) for name in mine if name not in other), _SHOWN_IDS))


def side_of(side: GroupedCases, mean: Estimate | None) -> Side:
    """Describe a run of a comparison, with the mean of the compared cases."""
    run = side.run
    return Side(
        label=run.label,
        path=str(run.path),
        targets=tuple(run.targets),
        cases=len(side.names),
        records=run.records,
        errors=run.errors,
        error_classes=dict(run.error_classes),
        unscored=run.unscored,
        mean=mean,
        stopped_early=_stopped_early(run),
    )


def mean_of(scores: NDArray[Any], clusters: NDArray[Any] | None) -> Estimate | None:
    """The mean of one run's cases after averaging trials, with the interval that a run's summary has."""
    found = MeanAccumulator()
    for value, cluster in zip(scores.tolist(), repeat(None) if clusters is None else clusters.tolist()):  # noqa: B905
        found.add(value, cluster)
    return None if found.mean is None else Estimate(found.mean, None, found.ci95, found.n, found.clusters)


def name_parts(runs: Sequence[RunScores], notes: list[str]) -> tuple[int, ...]:
    """The key positions that name a case: dataset and id; also target and prompt if all runs have several in common."""
    parts: tuple[int, ...] = (0, 1)
    for place, plural in ((2, "targets"), (3, "prompts")):
        found: list[list[Any]] = [run.targets if place == 2 else run.prompts for run in runs]
        if all(len(each) > 1 for each in found) and set(found[0]).intersection(*found[1:]):
            parts += (place,)
            continue
        for run, each in zip(runs, found, strict=True):
            if len(each) > 1:
                hint = f"; {run.label}:{each[0]} picks one" if place == 2 else ""
                names = ", ".join(map(str, each))
                notes.append(f"{run.label} has {len(each)} {plural} ({names}), averaged case by case{hint}")
    return parts


class Pairs(Sequence[Pair]):
    """The cases that both runs scored; each is built on access, because most are never looked at."""

    def __init__(self, joined: JoinedCases, threshold: float) -> None:
        self._joined = joined
        self._threshold = threshold
        first, second = joined.scores
        # Without what rounding leaves: 0.9 - 0.8 is 0.1.
        self.deltas = np.round(second - first, 12)
        self.wins = int(((self.deltas >= threshold) & (self.deltas > 0)).sum())
        self.losses = int(((self.deltas <= -threshold) & (self.deltas < 0)).sum())

    def __len__(self) -> int:
        return len(self.deltas)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        name = self._joined.name(row)
        delta = float(self.deltas[row])
        outcome: Outcome = "win" if delta >= self._threshold else "loss" if delta <= -self._threshold else "tie"
        return Pair(
            dataset=str(name[0]) if len(name) > 1 else "",
            eval_id=str(name[1] if len(name) > 1 else name[0]),
            target=name[2] if 2 in self._joined.parts else None,
            prompt=name[-1] if 3 in self._joined.parts else None,
            score1=float(self._joined.scores[0][row]),
            score2=float(self._joined.scores[1][row]),
            delta=delta,
            outcome="tie" if delta == 0 else outcome,
        )


def _changes(joined: JoinedCases, pairs: Pairs, most: int) -> Iterable[Change]:
    """The largest changes, losses before wins of the same size."""
    order = np.lexsort((pairs.deltas, -np.abs(pairs.deltas)))
    for row in [int(row) for row in order[:most] if pairs.deltas[row]]:
        before, after = (side.record(place) for side, place in zip(joined.sides, joined.index[row], strict=True))
        reason = reason_of(after, before) or None if after else None
        answers = [each.candidate_answer if each else None for each in (before, after)]
        yield Change(pair=pairs[row], answer1=answers[0], answer2=answers[1], reason=reason)


def _evaluators(joined: JoinedCases, seed: int) -> tuple[PartComparison, ...]:
    before, after = joined.sides[0].run.evaluators, joined.sides[1].run.evaluators
    found = []
    for name in [name for name in before if name in after]:
        first, second, clusters = joined.column(before[name], after[name])
        if len(first):
            found.append((name, compare_paired(first, second, clusters, seed=seed, test=False)))
    return _adjusted(found)


def _tags(joined: JoinedCases, seed: int) -> tuple[PartComparison, ...]:
    found = []
    tags = joined.tags()
    if few := sum(len(rows) < _FEWEST_OF_A_TAG for rows in tags.values()):
        joined.notes.append(f"{few:,} tags with fewer than {_FEWEST_OF_A_TAG} cases are not compared by themselves")
    for tag, rows in tags.items():
        if len(rows) < _FEWEST_OF_A_TAG:
            continue
        clusters = None if joined.clusters is None else joined.clusters[rows]
        first, second = (side[rows] for side in joined.scores)
        found.append((tag, compare_paired(first, second, clusters, seed=seed, test=False)))
    return _adjusted(found)


def _adjusted(found: Sequence[tuple[str, Paired]]) -> tuple[PartComparison, ...]:
    """Adjust the p-values for the number of tests; a part without one does not count."""
    asked = [paired.p_value for _, paired in found if paired.p_value is not None]
    adjusted = iter(holm(asked))
    return tuple(
        PartComparison(name=name, paired=paired, p_adjusted=None if paired.p_value is None else next(adjusted))
        for name, paired in found
    )


def _use(joined: JoinedCases, before: Column, after: Column) -> UsageChange | None:
    first, second, clusters = joined.column(before, after)
    if not len(first):
        return None
    difference = paired_difference(first, second, clusters)
    means = float(first.mean()), float(second.mean())
    return UsageChange(n=len(first), before=means[0], after=means[1], difference=difference.estimate)


def _as_drawn(joined: JoinedCases, paired: Paired) -> Paired:
    """Use an interval that is valid for runs that stopped early, if all of them drew in the same order."""
    stopped = [side for side in joined.sides if _stopped_early(side.run)]
    seeds = {(manifest.seed or 0) for side in stopped if (manifest := side.run.run.manifest)}
    if len(seeds) > 1:
        return paired
    (seed,), side = seeds, stopped[0]
    place = joined.sides.index(side)
    sums: dict[tuple[int, str], tuple[float, int]] = {}
    deltas = (joined.scores[1] - joined.scores[0]).tolist()
    keys = list(side.run.cases)
    for row, delta in zip(joined.index[:, place].tolist(), deltas, strict=True):
        case = side.first[row]
        unit = sampling_unit(side.run.conversations[case], side.run.paths[case], keys[case][1])
        total, count = sums.get((draw_rank(seed, unit), unit), (0.0, 0))
        sums[draw_rank(seed, unit), unit] = total + delta, count + 1
    return compare_drawn(paired, (sums[key] for key in sorted(sums)), max(count for _, count in sums.values()))


def _stopped_early(run: RunScores) -> bool:
    try:
        return run.run.manifest is not None and run.run.manifest.stopped_early
    except AgentvError:
        return False  # a manifest of another version; the records are read all the same


def _nothing_in_common(before: RunScores, after: RunScores) -> UsageError:
    def example(run: RunScores) -> str:
        return next((f"{key[0]}/{key[1]}" for key in run.cases), "no case")

    detail = f"{before.label} has {example(before)}, {after.label} has {example(after)}"
    return UsageError("The runs have no case in common", detail, "Cases are joined by dataset and id")


Cell = TypeVar("Cell")


def compare_many(runs: Sequence[RunScores], *, seed: int = 0) -> Matrix:
    """Compare three runs or more. Raises UsageError when no case was scored by all."""
    notes: list[str] = []
    parts = name_parts(runs, notes)
    sides = [GroupedCases(run, parts) for run in runs]
    common = [name for name in sides[0].names if all(name in side.names for side in sides)]
    columns = [side.means(side.run.scores)[[side.names[name] for name in common]] for side in sides]
    scores = np.array(columns).T.reshape(len(common), len(runs))
    there = ~np.isnan(scores).any(axis=1)
    if not there.any():
        raise _not_scored_by_all(runs)
    rows = np.array([[side.names[name] for side in sides] for name in common], dtype=np.intp)[there]
    scores, clusters = scores[there], clusters_of(sides, rows)
    pairs = [(i, j) for i in range(len(runs)) for j in range(i + 1, len(runs))]
    found = {(i, j): compare_paired(scores[:, i], scores[:, j], clusters, seed=seed) for i, j in pairs}
    asked = {pair: paired.p_value for pair, paired in found.items() if paired.p_value is not None}
    adjusted = dict(zip(asked, holm(list(asked.values())), strict=True))
    means = tuple(clustered_mean(column, clusters, within=(0.0, 1.0)) for column in scores.T)
    return Matrix(
        sides=tuple(side_of(side, mean_of(column, clusters)) for side, column in zip(sides, scores.T, strict=True)),
        n=len(scores),
        clusters=means[0].clusters,
        means=means,
        differences=_square(found, len(runs)),
        p_adjusted=_square(adjusted, len(runs)),
        ranking=tuple(rank(scores, clusters, seed=seed)),
        left_out=tuple(len(side.names) - len(scores) for side in sides),
        notes=tuple(notes),
    )


def _not_scored_by_all(runs: Sequence[RunScores]) -> UsageError:
    """The error when no case was scored by all; names a run that scored nothing at all."""
    idle = [run for run in runs if not len(run.scores.cases)]
    if not idle:
        return UsageError("No case was scored by all runs", hint="Cases are joined by dataset and id")
    errors = ", ".join(f"{name} {count:,}" for name, count in idle[0].error_classes.most_common())
    why = f"{idle[0].errors:,} of its {idle[0].records:,} results are errors" + (f": {errors}" if errors else "")
    return UsageError(f"{idle[0].label} scored no case", why, "Name the other runs without it")


def _square(found: Mapping[tuple[int, int], Cell], size: int) -> tuple[tuple[Cell | None, ...], ...]:
    return tuple(tuple(found.get((i, j)) for j in range(size)) for i in range(size))
