"""Compare runs: join their cases, average trials, and compute differences with intervals and tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, islice, repeat
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from agentv.comparison.comparison import Change, Comparison, Matrix, Outcome, Pair, Side
from agentv.comparison.differences import run_differences
from agentv.comparison.error_bounds import ErrorBounds, error_bounds
from agentv.comparison.measure import SharedCases, unfinished
from agentv.comparison.part_comparison import (
    adjusted_p_values,
    dataset_parts,
    evaluators,
    opposite_datasets,
    pass_rate,
    tags,
    usage_change,
)
from agentv.comparison.remedy import rescore_commands
from agentv.comparison.scores import Column, GroupedCases, RunScores, clusters_of
from agentv.errors import UsageError
from agentv.model.values import draw_rank, sampling_unit
from agentv.runs.summary import reason_of
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.means import Estimate
from agentv.stats.paired_comparison import Paired, compare_drawn, compare_paired
from agentv.stats.power import NonInferiority, non_inferiority

if TYPE_CHECKING:
    from numpy.typing import NDArray


_SHOWN_IDS = 10
JOIN_HINT = "Cases are matched by dataset and id"

Name = tuple[str | None, ...]
Columns = tuple["NDArray[Any]", "NDArray[Any]", "NDArray[Any] | None"]
"""Two columns of scores over the same cases, and the clusters of the cases."""


class CompareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Changes below `threshold` are ties; `margin` adds a test of non-inferiority; `changes` is a number of cases.

    With `allow_changed_measure`, runs that were scored differently get a verdict too.
    """

    threshold: float = 0.1
    margin: float | None = None
    changes: int = 5
    seed: int = 0
    allow_changed_measure: bool = False


def compare_runs(before: RunScores, after: RunScores, options: CompareOptions = CompareOptions()) -> Comparison:
    """Compare the second run with the first. Raises UsageError if they have no case in common."""
    margin, seed = options.margin, options.seed
    joined = JoinedCases(before, after)
    if not joined.rows and not joined.shared.other_inputs:
        examples = [next((f"{name}/{id}" for name, id, *_ in run.cases), "no case") for run in (before, after)]
        detail = f"{before.label} has {examples[0]}, {after.label} has {examples[1]}"
        raise UsageError("The runs have no case in common", detail, JOIN_HINT)
    first, second = joined.scores
    paired = compare_paired(first, second, joined.clusters, seed=seed) if len(first) else None
    pairs = Pairs(joined, options.threshold)
    before_side, after_side = (
        _side(side, rows, joined.clusters) for side, rows in zip(joined.sides, joined.index.T, strict=True)
    )
    sides = before_side, after_side
    if paired is not None and any(side.stopped_early for side in sides):
        paired = _as_drawn(joined, paired)
    datasets = dataset_parts(joined, seed)
    joined.notes += opposite_datasets(datasets, paired)
    errors = error_bounds(joined.sides, joined.matched, seed)
    with before.run, after.run:
        changed = tuple(_changes(joined, pairs, options.changes))
    return Comparison(
        sides=sides,
        paired=paired,
        threshold=options.threshold,
        wins=pairs.wins,
        losses=pairs.losses,
        ties=len(pairs) - pairs.wins - pairs.losses,
        common=joined.rows,
        pairs=pairs,
        changes=changed,
        pass_rate=pass_rate(joined, seed),
        datasets=datasets,
        evaluators=evaluators(joined, seed),
        tags=tags(joined, seed),
        cost=usage_change(joined, before.cost, after.cost),
        duration=usage_change(joined, before.duration, after.duration),
        unmatched=joined.unmatched,
        unmatched_ids=joined.unmatched_ids,
        unscored=joined.unscored,
        errors=errors,
        non_inferiority=None if margin is None or paired is None else _non_inferiority(paired, margin, errors),
        notes=tuple(joined.notes),
        other_inputs=joined.shared.other_inputs,
        what_changed=tuple(run_differences(joined.shared)),
        allow_changed_measure=options.allow_changed_measure,
        remedy=rescore_commands((before, after), [joined.shared.measure_changes]),
    )


def _non_inferiority(paired: Paired, margin: float, errors: ErrorBounds | None) -> NonInferiority:
    """Test the margin. With errors, the outcome must be the same if every error counts against it."""
    found = non_inferiority(paired.estimate, margin)
    if errors is None:
        return found
    worst = errors.against if found.outcome == "shown" else errors.in_favour
    is_same = non_inferiority(worst.estimate, margin).outcome == found.outcome
    return found if is_same else found._replace(outcome="inconclusive")


class JoinedCases:
    """The cases of two runs matched by name and input, in the order of the first run.

    `scores` are those that both runs scored. `shared` has the cases with the same name but another input, which are not
    matched, and how the runs were scored differently, in which case their scores cannot be compared.
    """

    def __init__(self, before: RunScores, after: RunScores) -> None:
        self.notes: list[str] = []
        self.parts = _name_parts((before, after), self.notes)
        self.sides = GroupedCases(before, self.parts), GroupedCases(after, self.parts)
        if self.sides[0].names.keys().isdisjoint(self.sides[1].names):
            self._join_by_id(before, after)
        names, others = (side.names for side in self.sides)
        common = [(row, other) for name, row in names.items() if (other := others.get(name)) is not None]
        named = np.array(common, dtype=np.intp).reshape(-1, 2)
        self.shared = SharedCases(self.sides, named)
        self.matched = named[self.shared.same_input]
        self._names: list[Name] = list(names)
        self.notes += self.shared.notes
        first, second, there = self._means(before.scores, after.scores)
        self.rows = len(self.matched)
        self.index = self.matched[there]
        self.scores = first[there], second[there]
        self.unscored = int(np.isnan(first).sum()), int(np.isnan(second).sum())
        self.unmatched = len(names) - len(common), len(others) - len(common)
        self.unmatched_ids = self._only_in(0), self._only_in(1)
        self.clusters = clusters_of(self.sides, self.index)

    def name(self, row: int) -> Name:
        """Return the name of the case in a row of `scores`."""
        return self._names[int(self.index[row][0])]

    def column(self, before: Column, after: Column) -> Columns:
        """Return two columns over the cases where both runs have a number, and the clusters of those cases."""
        first, second, there = self._means(before, after)
        return first[there], second[there], clusters_of(self.sides, self.matched[there])

    def _means(self, before: Column, after: Column) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return the means of the matched cases in both runs, and where both have a number."""
        first = self.sides[0].means(before)[self.matched[:, 0]]
        second = self.sides[1].means(after)[self.matched[:, 1]]
        return first, second, ~np.isnan(first) & ~np.isnan(second)

    def datasets(self) -> dict[str, NDArray[Any]]:
        """Return the rows of `scores` by dataset; empty if datasets are not part of the names."""
        if 0 not in self.parts:
            return {}
        names = np.array([str(self._names[row][0]) for row in self.index[:, 0].tolist()], dtype=object)
        return {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}

    def tags(self) -> dict[str, NDArray[Any]]:
        """Return the rows of `scores` by tag; a tag in either run counts."""
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
        """Match by id only, if ids are unique: a dataset may be renamed, or another tool may not store its name."""
        by_id = GroupedCases(before, (1,)), GroupedCases(after, (1,))
        unique = all(len(side.names) == len({key[:2] for key in side.run.cases}) for side in by_id)
        if unique and not by_id[0].names.keys().isdisjoint(by_id[1].names):
            self.sides, self.parts = by_id, (1,)
            self.notes.append("The runs have no dataset in common; cases are matched by id only")

    def _only_in(self, side: int) -> tuple[str, ...]:
        if not self.unmatched[side]:
            return ()
        found = self.sides[side].only_here(self.sides[1 - side])
        return tuple(case.eval_id for case in islice(found, _SHOWN_IDS))


def _side(side: GroupedCases, rows: NDArray[Any], clusters: NDArray[Any] | None) -> Side:
    """Describe a run of a comparison, with its mean over the cases in `rows`."""
    run, mean = side.run, _mean(side, rows, clusters)
    return Side(
        label=run.label,
        path=str(run.path),
        targets=tuple(run.targets),
        cases=len(side.names),
        records=run.records,
        errors=run.errors,
        error_classes=dict(run.error_classes),
        unscored=run.unscored,
        mean=None if mean.mean is None else Estimate(mean.mean, None, mean.ci95, mean.n, mean.clusters),
        stopped_early=_stopped_early(run),
        unfinished=unfinished(run),
        has_settings=run.manifest is not None and run.run.folder.cases_path.is_file(),
    )


def _mean(side: GroupedCases, rows: NDArray[Any], clusters: NDArray[Any] | None) -> MeanAccumulator:
    """Return the mean of some cases of a run, with the same interval as in the run's summary.

    If all cases have the same number of trials, trials of a case are a cluster; otherwise they are averaged first.
    """
    mean = MeanAccumulator()
    place = np.full(len(side.names), -1, dtype=np.intp)
    place[rows] = np.arange(len(rows))
    cases, values = side.run.scores.arrays()
    positions = place[side.groups[cases]]
    values, positions = values[positions >= 0], positions[positions >= 0]
    trials = np.bincount(positions, minlength=len(rows))
    if len(trials) and trials.min() != trials.max():
        values, positions = np.bincount(positions, values) / trials, np.arange(len(rows))
    if clusters is not None:
        positions = clusters[positions]
    is_clustered = clusters is not None or len(values) > len(rows)
    names = positions.tolist() if is_clustered else repeat(None)
    for value, cluster in zip(values.tolist(), names):  # noqa: B905
        mean.add(value, cluster)
    return mean


def _name_parts(runs: Sequence[RunScores], notes: list[str]) -> tuple[int, ...]:
    """Return the key positions that name a case: dataset and id; also target and prompt if all runs share several."""
    parts: tuple[int, ...] = (0, 1)
    for place, plural in ((2, "targets"), (3, "prompts")):
        found: list[list[Any]] = [run.targets if place == 2 else run.prompts for run in runs]
        if all(len(each) > 1 for each in found) and set(found[0]).intersection(*found[1:]):
            parts += (place,)
            continue
        for run, each in zip(runs, found, strict=True):
            if len(each) > 1:
                hint = f"; to compare one, use {run.label}:{each[0]}" if place == 2 else ""
                names = ", ".join(map(str, each))
                notes.append(f"{run.label} has {len(each)} {plural} ({names}); scores are averaged per case{hint}")
    return parts


class Pairs(Sequence[Pair]):
    """The cases that both runs scored. Each is built on access, because most are never used."""

    def __init__(self, joined: JoinedCases, threshold: float) -> None:
        self._joined = joined
        self._threshold = threshold
        first, second = joined.scores
        # Rounded, so that 0.9 - 0.8 is 0.1.
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
    """Yield the largest changes, losses before wins of the same size."""
    order = np.lexsort((pairs.deltas, -np.abs(pairs.deltas)))
    for row in [int(row) for row in order[:most] if pairs.deltas[row]]:
        before, after = (side.record(place) for side, place in zip(joined.sides, joined.index[row], strict=True))
        reason = reason_of(after, before) or None if after else None
        answers = [each.candidate_answer if each else None for each in (before, after)]
        yield Change(pair=pairs[row], answer1=answers[0], answer2=answers[1], reason=reason)


def _as_drawn(joined: JoinedCases, paired: Paired) -> Paired:
    """Replace the interval by one that is valid for runs that stopped early, if all drew cases in the same order."""
    stopped = [side for side in joined.sides if _stopped_early(side.run)]
    seeds = {(manifest.seed or 0) for side in stopped if (manifest := side.run.manifest)}
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
    return run.manifest is not None and run.manifest.stopped_early


def compare_many(runs: Sequence[RunScores], *, seed: int = 0, allow_changed_measure: bool = False) -> Matrix:
    """Compare three or more runs. Raises UsageError if no case was scored in all of them."""
    notes: list[str] = []
    parts = _name_parts(runs, notes)
    sides = [GroupedCases(run, parts) for run in runs]
    shared, rows = _shared_by_all(sides)
    notes += dict.fromkeys(note for each in shared for note in each.notes)
    columns = [side.means(side.run.scores)[rows[:, place]] for place, side in enumerate(sides)]
    scores = np.array(columns).T.reshape(len(rows), len(runs))
    there = ~np.isnan(scores).any(axis=1)
    if not there.any():
        raise _not_scored_by_all(runs)
    pairs = list(combinations(range(len(runs)), 2))
    errors = {(i, j): error_bounds((sides[i], sides[j]), rows[:, [i, j]], seed) for i, j in pairs}
    scores, rows = scores[there], rows[there]
    clusters = clusters_of(sides, rows)
    found = {(i, j): compare_paired(scores[:, i], scores[:, j], clusters, seed=seed) for i, j in pairs}
    adjusted = dict(zip(found, adjusted_p_values(found.values()), strict=True))
    size = range(len(runs))
    described = tuple(_side(side, column, clusters) for side, column in zip(sides, rows.T, strict=True))
    means = tuple(side.mean for side in described if side.mean is not None)
    return Matrix(
        sides=described,
        n=len(scores),
        clusters=means[0].clusters,
        means=means,
        differences=tuple(tuple(found.get((i, j)) for j in size) for i in size),
        p_adjusted=tuple(tuple(adjusted.get((i, j)) for j in size) for i in size),
        left_out=tuple(len(side.names) - len(scores) for side in sides),
        errors=errors,
        notes=tuple(notes),
        other_inputs=tuple(dict.fromkeys(case for each in shared for case in each.other_inputs)),
        what_changed=tuple(tuple(run_differences(each)) for each in shared),
        allow_changed_measure=allow_changed_measure,
        remedy=rescore_commands(runs, [each.measure_changes for each in shared]),
    )


def _shared_by_all(sides: Sequence[GroupedCases]) -> tuple[list[SharedCases], NDArray[Any]]:
    """Return the cases that the first run shares with each other run, and the rows of those with the same input."""
    first, *others = sides
    common = [name for name in first.names if all(name in side.names for side in others)]
    rows = np.array([[side.names[name] for side in sides] for name in common], dtype=np.intp).reshape(-1, len(sides))
    shared = [SharedCases((first, side), rows[:, [0, place]]) for place, side in enumerate(others, 1)]
    return shared, rows[np.all([each.same_input for each in shared], axis=0)]


def _not_scored_by_all(runs: Sequence[RunScores]) -> UsageError:
    """Build the error for runs without a case that all scored; name a run without any score."""
    empty = next((run for run in runs if not len(run.scores.cases)), None)
    if empty is None:
        return UsageError("No case was scored in all runs", hint=JOIN_HINT)
    errors = ", ".join(f"{name} {count:,}" for name, count in empty.error_classes.most_common())
    why = f"{empty.errors:,} of its {empty.records:,} results are errors" + (f": {errors}" if errors else "")
    return UsageError(f"{empty.label} has no scored case", why, "Compare the other runs without it")
