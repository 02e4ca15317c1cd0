"""The result of a comparison, and its gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from agentv.comparison.behaviour.regressions import CaseBehaviour, Regressions
from agentv.comparison.changes.run_change import CaseId, RunChange
from agentv.comparison.error_bounds import ErrorBounds
from agentv.comparison.frontier import CostPoint
from agentv.comparison.judge_evidence import JudgeEvidence
from agentv.comparison.part_comparison import PartComparison, UsageChange, WeightedDifference
from agentv.comparison.unfinished_run import Unfinished
from agentv.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNDECIDED
from agentv.stats.means import Estimate
from agentv.stats.paired_comparison import Answer, Paired
from agentv.stats.power import NonInferiority
from agentv.stats.ranking import Ranked, rank


def worst_exit_code(codes: Iterable[int]) -> int:
    """Return the exit code of several comparisons: a failure that is shown before one that cannot tell."""
    ranked = {EXIT_OK: 0, EXIT_UNDECIDED: 1, EXIT_FINDINGS: 2}
    return max(codes, key=ranked.__getitem__, default=EXIT_OK)


Outcome = Literal["win", "loss", "tie"]
FailOn = Literal["regression", "worse", "any-loss", "inconclusive", "never"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a comparison. `mean` is over the cases that all runs scored, with trials averaged.

    `runs` are the names of the runs that were pooled into one baseline; empty for a single run.
    """

    label: str
    path: str
    targets: tuple[str, ...]
    cases: int
    records: int
    errors: int
    error_classes: dict[str, int]
    unscored: int
    mean: Estimate | None
    stopped_early: bool = False
    unfinished: Unfinished | None = None
    has_settings: bool = False
    runs: tuple[str, ...] = ()


class Pair(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One case that both runs scored. `target` and `prompt` are set if both runs have several.

    `normalized_gain` is the change as a fraction of what was missing to 1; None if nothing was.
    """

    dataset: str
    eval_id: str
    target: str | None = None
    prompt: str | None = None
    score1: float
    score2: float
    delta: float
    outcome: Outcome
    normalized_gain: float | None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A case with a large change: both answers, the reason for the second score, and the aligned tool calls."""

    pair: Pair
    answer1: str | None
    answer2: str | None
    reason: str | None
    behaviour: CaseBehaviour | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs, case by case. If the measure changed, there is no verdict unless `allow_changed_measure` is set."""

    sides: tuple[Side, Side]
    paired: Paired | None
    threshold: float
    wins: int
    losses: int
    ties: int
    mean_normalized_gain: float | None = None
    common: int
    pairs: Sequence[Pair]
    changes: tuple[Change, ...]
    pass_rate: Paired | None = None
    datasets: tuple[PartComparison, ...] = ()
    weighted: WeightedDifference | None = None
    evaluators: tuple[PartComparison, ...]
    tags: tuple[PartComparison, ...]
    cost: UsageChange | None
    duration: UsageChange | None
    unmatched: tuple[int, int]
    """Cases that are in one run only, for each run."""

    unmatched_ids: tuple[tuple[str, ...], tuple[str, ...]]
    unscored: tuple[int, int]
    """Cases in both runs that have no score, for each run."""

    errors: ErrorBounds | None = None
    non_inferiority: NonInferiority | None = None
    notes: tuple[str, ...] = ()
    other_inputs: tuple[CaseId, ...] = ()
    """Cases with the same id but another input, which are not paired."""

    what_changed: tuple[RunChange, ...] = ()
    allow_changed_measure: bool = False
    remedy: tuple[str, ...] = ()
    """The commands that make the runs comparable."""

    regressions: Regressions | None = None
    judge: JudgeEvidence | None = None
    """None if no judge scored the runs."""

    selected: dict[str, Any] | None = None
    """Set if a run is the best of several variants: its name, their number, the shrunk difference, and the p-value
    before it was adjusted.
    """

    @property
    def measure_changes(self) -> tuple[RunChange, ...]:
        """How the scoring differs between the runs; empty if both measured the same."""
        return tuple(change for change in self.what_changed if change.is_measure)

    @property
    def is_comparable(self) -> bool:
        """Whether the scores may be compared: the measure is the same, or a change of it is allowed."""
        return self.allow_changed_measure or not self.measure_changes

    @property
    def answer(self) -> Answer:
        """The verdict about the second run. A claim must hold if the excess of errors counts against it."""
        if self.paired is None or not self.is_comparable:
            return "cannot tell"
        answer = self.paired.answer
        return answer if self.errors is None or self.errors.supports(answer) else "cannot tell"

    def exit_code(self, on: FailOn) -> int:
        """Return the exit code for a gate: 5 if the measure changed, no case can be compared, or errors decide."""
        if on == "never":
            return EXIT_OK
        if self.paired is None or not self.is_comparable:
            return EXIT_UNDECIDED
        if on in ("worse", "any-loss"):
            if self.losses if on == "any-loss" else self.paired.mean_delta < 0:
                return EXIT_FINDINGS
            hidden = self.errors is not None and (
                self.errors.only[1] > 0 if on == "any-loss" else self.errors.against.mean_delta < 0
            )
            return EXIT_UNDECIDED if hidden else EXIT_OK
        margin = self.non_inferiority
        answer = self.answer if margin is None else margin.outcome
        if answer in ("worse", "refuted"):
            return EXIT_FINDINGS
        if answer in ("better", "shown"):
            return EXIT_OK
        is_open = self.errors is not None and self.errors.leaves_open(self.paired.answer)
        return EXIT_UNDECIDED if is_open or on == "inconclusive" else EXIT_OK


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Several runs over the cases that all of them scored. `differences[i][j]` compares run j with run i, for i < j.

    The first run is the baseline. `p_adjusted` is adjusted over the comparisons with it, and null for the other pairs;
    with `all_pairs`, over all pairs.

    `what_changed[i]` are the changes between the first run and run i + 1; see `Comparison` for the other fields.
    """

    sides: tuple[Side, ...]
    n: int
    clusters: int
    means: tuple[Estimate, ...]
    differences: tuple[tuple[Paired | None, ...], ...]
    p_adjusted: tuple[tuple[float | None, ...], ...]
    all_pairs: bool = False
    left_out: tuple[int, ...]
    errors: Mapping[tuple[int, int], ErrorBounds | None] = {}
    notes: tuple[str, ...] = ()
    other_inputs: tuple[CaseId, ...] = ()
    what_changed: tuple[tuple[RunChange, ...], ...] = ()
    allow_changed_measure: bool = False
    remedy: tuple[str, ...] = ()
    judge: JudgeEvidence | None = None
    frontier: tuple[CostPoint, ...] = ()

    @property
    def measure_changes(self) -> tuple[tuple[RunChange, ...], ...]:
        """How the scoring of each run but the first differs from the first."""
        return tuple(tuple(change for change in changes if change.is_measure) for changes in self.what_changed)

    @property
    def is_comparable(self) -> bool:
        """Whether the scores may be compared: the measure is the same, or a change of it is allowed."""
        return self.allow_changed_measure or not any(self.measure_changes)

    @property
    def ranking(self) -> tuple[Ranked, ...]:
        """The runs by mean, with the places that the conclusions leave open; empty if the measure changed."""

        def is_better(i: int, j: int) -> bool:
            return self.conclusion(min(i, j), max(i, j)) == ("worse" if i < j else "better")

        return tuple(rank([mean.value for mean in self.means], is_better)) if self.is_comparable else ()

    def conclusion(self, i: int, j: int) -> Answer:
        """Return the verdict about run j against run i, for i < j, with the adjusted p-value."""
        paired, errors = self.differences[i][j], self.errors.get((i, j))
        if paired is None or not self.is_comparable:
            return "cannot tell"
        answer = paired.conclude(self.p_adjusted[i][j])
        return answer if errors is None or errors.supports(answer) else "cannot tell"

    def is_open(self, i: int, j: int) -> bool:
        """Return whether errors leave it open how run j compares with run i, for i < j."""
        paired, errors = self.differences[i][j], self.errors.get((i, j))
        return paired is not None and errors is not None and errors.leaves_open(paired.conclude(self.p_adjusted[i][j]))

    def exit_code(self, on: FailOn) -> int:
        """Return the exit code for a gate on all runs against the first; see `Comparison.exit_code`."""
        if on == "never":
            return EXIT_OK
        if not self.is_comparable:
            return EXIT_UNDECIDED
        pairs = {other: paired for other, paired in enumerate(self.differences[0]) if paired is not None}
        if on == "worse":
            if any(paired.mean_delta < 0 for paired in pairs.values()):
                return EXIT_FINDINGS
            bounds = [self.errors.get((0, other)) for other in pairs]
            hidden = any(errors is not None and errors.against.mean_delta < 0 for errors in bounds)
            return EXIT_UNDECIDED if hidden else EXIT_OK
        answers = [self.conclusion(0, other) for other in pairs]
        if "worse" in answers:
            return EXIT_FINDINGS
        is_open = any(self.is_open(0, other) for other in pairs)
        undecided = is_open or (on == "inconclusive" and set(answers) != {"better"})
        return EXIT_UNDECIDED if undecided else EXIT_OK
