"""Compare runs: average trials, and compute differences with intervals and tests."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations, repeat
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.behaviour.regressions import behaviour_of, changed_records, find_regressions, rows_of
from agentv.comparison.changes.differences import run_differences
from agentv.comparison.changes.remedy import rescore_commands
from agentv.comparison.comparison import Change, Comparison, Matrix, Outcome, Pair, Side
from agentv.comparison.error_bounds import ErrorBounds, error_bounds
from agentv.comparison.frontier import cost_frontier
from agentv.comparison.joined_cases import JOIN_HINT, JoinedCases, name_parts, shared_by_all
from agentv.comparison.judge_evidence import decide_by_labels, judge_evidence
from agentv.comparison.part_comparison import (
    adjusted_p_values,
    dataset_parts,
    evaluators,
    opposite_datasets,
    pass_rate,
    tags,
    usage_change,
    weighted_difference,
)
from agentv.comparison.sampling.drawn_cases import Columns, refuse_different_draws, weights_of
from agentv.comparison.scores import GroupedCases, RunScores, Watch, clusters_of
from agentv.comparison.unfinished_run import unfinished
from agentv.errors import AgentvError, UsageError
from agentv.model.result import reason_of
from agentv.model.values import cluster_of, draw_rank, sampling_unit
from agentv.runs.baselines.pool import PooledStore
from agentv.runs.record import ScoreRecord
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.means import Estimate
from agentv.stats.paired_comparison import Paired, compare_drawn
from agentv.stats.power import NonInferiority, non_inferiority
from agentv.stats.shared_texts import HINT, SharedTexts


class CompareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Changes below `threshold` are ties; `margin` adds a test of non-inferiority; `changes` is a number of cases.

    `cases` are ids of cases to show instead of the largest changes. With `allow_changed_measure`, runs that were scored
    differently get a verdict too. `judge_must_agree` is the kappa that makes a judge calibrated.
    """

    threshold: float = 0.1
    margin: float | None = None
    changes: int = 5
    cases: tuple[str, ...] = ()
    seed: int = 0
    allow_changed_measure: bool = False
    judge_must_agree: float | None = None


class NamedRun(NamedTuple):
    """A run to compare: its path, its name in the output, and the target or prompt to select."""

    path: Path | str
    label: str
    picked: str | None = None


def read_scores(runs: Sequence[NamedRun], watch: Watch | None = None) -> list[RunScores]:
    """Return the scores of each run; for a single run, those of each of its targets, or else of its prompts."""
    if len(runs) > 1:
        return [RunScores(*run, watch) for run in runs]
    (run,) = runs
    whole = None if run.picked is not None else RunScores(*run, watch)
    names = [] if whole is None else whole.targets if len(whole.targets) > 1 else whole.prompts
    if len(names) < 2:
        hint = f"Summarize one run: agentv report {run.label}. Or compare it: agentv compare OLDER_RUN {run.label}"
        raise UsageError("compare needs two runs, or one run with several targets or prompts", hint=hint)
    return [RunScores(run.path, f"{run.label}:{name}", name, watch) for name in names]


def compare_runs(before: RunScores, after: RunScores, options: CompareOptions = CompareOptions()) -> Comparison:
    """Compare the second run with the first. Raises UsageError if they have no case in common."""
    return compare_joined(JoinedCases(before, after), options)


def compare_joined(joined: JoinedCases, options: CompareOptions = CompareOptions()) -> Comparison:
    """Compare two runs whose cases are joined. Raises UsageError if they have no case in common."""
    margin, seed = options.margin, options.seed
    before, after = (side.run for side in joined.sides)
    if not joined.rows and not joined.shared.other_inputs:
        examples = [next((f"{name}/{id}" for name, id, *_ in run.cases), "no case") for run in (before, after)]
        detail = f"{before.label} has {examples[0]}, {after.label} has {examples[1]}"
        raise UsageError("The runs have no case in common", detail, JOIN_HINT)
    paired = joined.columns.compare(seed) if len(joined.scores[0]) else None
    pairs = Pairs(joined, options.threshold)
    before_side, after_side = (
        _side(side, rows, joined.columns) for side, rows in zip(joined.sides, joined.index.T, strict=True)
    )
    sides = before_side, after_side
    judge = judge_evidence((before, after), options.judge_must_agree)
    if paired is not None and any(side.stopped_early for side in sides):
        paired = _as_drawn(joined, paired)
    elif paired is not None and judge is not None and paired.test != "weighted t":
        paired, judge = decide_by_labels(joined, paired, judge)
    datasets = dataset_parts(joined, seed)
    joined.notes += opposite_datasets(datasets, paired)
    joined.notes += undeclared_clusters(before)
    errors = error_bounds(joined.sides, joined.matched, seed, paired)
    with before.run, after.run:
        selection = rows_of(joined, options.cases) if options.cases else _largest(pairs, options.changes)
        changed = tuple(_changes(joined, pairs, selection))
        regressions = find_regressions(joined, pairs.deltas, options.threshold)
    return Comparison(
        sides=sides,
        paired=paired,
        threshold=options.threshold,
        wins=pairs.wins,
        losses=pairs.losses,
        ties=len(pairs) - pairs.wins - pairs.losses,
        mean_normalized_gain=pairs.mean_gain,
        common=joined.rows,
        pairs=pairs,
        changes=changed,
        pass_rate=pass_rate(joined, seed),
        datasets=datasets,
        weighted=weighted_difference(joined, datasets),
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
        regressions=regressions,
        judge=judge,
    )


def _non_inferiority(paired: Paired, margin: float, errors: ErrorBounds | None) -> NonInferiority:
    """Test the margin. A run beyond it must be worse, and the outcome the same with the excess of errors against it."""
    result = non_inferiority(paired.estimate, margin)
    is_same = result.outcome != "refuted" or paired.answer == "worse"
    if errors is not None:
        worst = errors.against if result.outcome == "shown" else errors.in_favour
        is_same = is_same and non_inferiority(worst.estimate, margin).outcome == result.outcome
    return result if is_same else result._replace(outcome="inconclusive")


def _side(side: GroupedCases, rows: NDArray[Any], columns: Columns) -> Side:
    """Describe a run of a comparison, with its mean over the cases in `rows`, which are those of `columns`."""
    run, mean = side.run, _mean(side, rows, columns)
    return Side(
        label=run.label,
        path=str(run.path),
        targets=tuple(run.targets),
        cases=len(side),
        records=run.records,
        errors=run.errors,
        error_classes=dict(run.error_classes),
        unscored=run.unscored,
        mean=None if mean.mean is None else Estimate(mean.mean, None, mean.ci95, len(rows), mean.clusters),
        stopped_early=_stopped_early(run),
        unfinished=unfinished(run),
        has_settings=run.manifest is not None and run.run.folder.cases_path.is_file(),
        runs=run.run.labels if isinstance(run.run, PooledStore) else (),
    )


def _mean(side: GroupedCases, rows: NDArray[Any], columns: Columns) -> MeanAccumulator:
    """Return the mean of some cases of a run, with the same interval as in the run's summary.

    If all cases have the same number of trials, trials of a case are a cluster; otherwise they are averaged first.
    """
    mean = MeanAccumulator()
    place = np.full(len(side), -1, dtype=np.intp)
    place[rows] = np.arange(len(rows))
    cases, values = side.run.scores.arrays()
    positions = place[side.groups[cases]]
    values, positions = values[positions >= 0], positions[positions >= 0]
    trials = np.bincount(positions, minlength=len(rows))
    if len(trials) and trials.min() != trials.max():
        values, positions = np.bincount(positions, values) / trials, np.arange(len(rows))
    weights = None if columns.weights is None else columns.weights[positions]
    is_clustered = columns.clusters is not None or weights is not None or len(values) > len(rows)
    if columns.clusters is not None:
        positions = columns.clusters[positions]
    # Arrays yield plain numbers one by one; lists of them would take four times the memory.
    names = array("q", positions.astype(np.int64).tobytes()) if is_clustered else repeat(None)
    factors = repeat(1.0) if weights is None else array("d", weights.tobytes())
    for value, cluster, weight in zip(array("d", values.tobytes()), names, factors):  # noqa: B905
        mean.add(value, cluster, weight)
    return mean


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
        can_gain = first < 1
        self.mean_gain = float((self.deltas[can_gain] / (1 - first[can_gain])).mean()) if can_gain.any() else None

    def __len__(self) -> int:
        return len(self.deltas)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[index] for index in range(*row.indices(len(self)))]
        name = self._joined.name(row)
        delta = float(self.deltas[row])
        outcome: Outcome = "win" if delta >= self._threshold else "loss" if delta <= -self._threshold else "tie"
        return Pair(
            dataset=str(name[0]) if len(name) > 1 else "",
            eval_id=str(name[1] if len(name) > 1 else name[0]),
            target=name[2] if 2 in self._joined.parts else None,
            prompt=name[-1] if 3 in self._joined.parts else None,
            score1=(score := float(self._joined.scores[0][row])),
            score2=float(self._joined.scores[1][row]),
            delta=delta,
            outcome="tie" if delta == 0 else outcome,
            normalized_gain=round(delta / (1 - score), 12) if score < 1 else None,
        )


def _largest(pairs: Pairs, most: int) -> list[int]:
    """Return the rows with the largest changes, losses before wins of the same size."""
    order = np.lexsort((pairs.deltas, -np.abs(pairs.deltas)))
    return [int(row) for row in order[:most] if pairs.deltas[row]]


def _changes(joined: JoinedCases, pairs: Pairs, rows: Sequence[int]) -> Iterable[Change]:
    """Yield some cases with their answers."""
    first, second = changed_records(joined, rows)
    for row in rows:
        before, after = first[row], second[row]
        yield Change(
            pair=pairs[row],
            answer1=before.candidate_answer,
            answer2=after.candidate_answer,
            reason=reason_of(after, before) or None,
            behaviour=behaviour_of(before, after),
        )


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
    with side.run.run as run:
        for start, delta in zip(side.starts()[joined.index[:, place]].tolist(), deltas, strict=True):
            record = run.read(start, ScoreRecord)
            unit = sampling_unit(cluster_of(record), record.dataset_path, record.eval_id)
            total, count = sums.get((draw_rank(seed, unit), unit), (0.0, 0))
            sums[draw_rank(seed, unit), unit] = total + delta, count + 1
    return compare_drawn(paired, (sums[key] for key in sorted(sums)), max(count for _, count in sums.values()))


def _stopped_early(run: RunScores) -> bool:
    return run.manifest is not None and run.manifest.stopped_early


def compare_many(
    runs: Sequence[RunScores], options: CompareOptions = CompareOptions(), *, all_pairs: bool = False
) -> Matrix:
    """Compare three or more runs with the first, or all pairs. Raises UsageError if no case was scored in all runs."""
    seed = options.seed
    notes = [note for run in runs for note in run.import_notes]
    parts = name_parts(runs, notes)
    sides = [GroupedCases(run, parts) for run in runs]
    shared, rows = shared_by_all(sides)
    refuse_different_draws(sides, rows)
    notes += dict.fromkeys(note for cases in shared for note in cases.notes)
    notes += undeclared_clusters(runs[0])
    means = [side.means(side.run.scores)[rows[:, place]] for place, side in enumerate(sides)]
    scores = np.array(means).T.reshape(len(rows), len(runs))
    there = ~np.isnan(scores).any(axis=1)
    if not there.any():
        raise _not_scored_by_all(runs, notes)
    pairs = list(combinations(range(len(runs)), 2))
    tested = [(i, j) for i, j in pairs if all_pairs or i == 0]
    matched, scores, rows = rows, scores[there], rows[there]
    clusters, weights = clusters_of(sides, rows), weights_of(sides, rows)
    columns = {(i, j): Columns(scores[:, i], scores[:, j], clusters, weights) for i, j in pairs}
    comparisons = {pair: cases.compare(seed) for pair, cases in columns.items()}
    adjusted = dict(zip(tested, adjusted_p_values(comparisons[pair] for pair in tested), strict=True))
    errors = {
        (i, j): error_bounds((sides[i], sides[j]), matched[:, [i, j]], seed, comparisons[i, j], adjusted[i, j])
        for i, j in tested
    }
    size = range(len(runs))
    described = tuple(_side(side, column, columns[0, 1]) for side, column in zip(sides, rows.T, strict=True))
    estimates = tuple(side.mean for side in described if side.mean is not None)
    return Matrix(
        sides=described,
        n=len(scores),
        clusters=estimates[0].clusters,
        means=estimates,
        differences=tuple(tuple(comparisons.get((i, j)) for j in size) for i in size),
        p_adjusted=tuple(tuple(adjusted.get((i, j)) for j in size) for i in size),
        all_pairs=all_pairs,
        judge=judge_evidence(runs, options.judge_must_agree),
        frontier=cost_frontier(runs),
        left_out=tuple(len(side) - len(scores) for side in sides),
        errors=errors,
        notes=tuple(notes),
        other_inputs=tuple(dict.fromkeys(case for cases in shared for case in cases.other_inputs)),
        what_changed=tuple(tuple(run_differences(cases)) for cases in shared),
        allow_changed_measure=options.allow_changed_measure,
        remedy=rescore_commands(runs, [cases.measure_changes for cases in shared]),
    )


def _not_scored_by_all(runs: Sequence[RunScores], notes: Sequence[str]) -> UsageError:
    """Build the error for runs without a case that all scored; name a run without any score."""
    empty = next((run for run in runs if not len(run.scores)), None)
    if empty is None:
        return UsageError("No case was scored in all runs", "\n".join(notes), JOIN_HINT)
    errors = ", ".join(f"{name} {count:,}" for name, count in empty.error_classes.most_common())
    why = f"{empty.errors:,} of its {empty.records:,} results are errors" + (f": {errors}" if errors else "")
    return UsageError(f"{empty.label} has no scored case", why, "Compare the other runs without it")


class _StoredInput(msgspec.Struct):
    """The fields of a stored case that show whether it may be correlated with others."""

    input: list[dict[str, Any]] = []
    cluster: str | None = None
    conversation_id: str | None = None


_decode = msgspec.json.Decoder(_StoredInput).decode


def undeclared_clusters(run: RunScores) -> Iterator[str]:
    """Yield a warning if many cases of a run share long texts and none is in a cluster."""
    if run.has_conversations or run.manifest is None:
        return
    texts = SharedTexts()
    with suppress(AgentvError, msgspec.DecodeError):  # `agentv runs check` names damaged cases
        for case in run.run.cases():
            stored = _decode(case.data)
            texts.add(content for message in stored.input if isinstance(content := message.get("content"), str))
            if texts.is_full:
                break
    if warning := texts.warning():
        yield f"{warning}. {HINT}"
