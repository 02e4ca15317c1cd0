"""What a comparison says, as values that reports and programs read. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentv.stats.means import Estimate
from agentv.stats.paired_comparison import Paired
from agentv.stats.power import NonInferiority
from agentv.stats.ranking import Ranked

Outcome = Literal["win", "loss", "tie"]
FailOn = Literal["regression", "worse", "any-loss", "inconclusive", "never"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a comparison. `mean` is over the cases that all sides scored, trials averaged first."""

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


class Pair(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One case that both sides scored. `target` and `prompt` are there when several of both sides are compared."""

    dataset: str
    eval_id: str
    target: str | None = None
    prompt: str | None = None
    score1: float
    score2: float
    delta: float
    outcome: Outcome


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A case that changed much, with what was answered before and after, and what the later score was for."""

    pair: Pair
    answer1: str | None
    answer2: str | None
    reason: str | None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluator or one tag. `p_adjusted` is Holm's, over all of its table."""

    name: str
    paired: Paired
    p_adjusted: float | None


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Cost in USD or time in milliseconds, a case, over the cases of which both sides know it."""

    n: int
    before: float
    after: float
    difference: Estimate


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs, case by case. `unmatched` are cases that one side only has; `unscored` both have and one did not
    score."""

    sides: tuple[Side, Side]
    paired: Paired | None
    threshold: float
    wins: int
    losses: int
    ties: int
    common: int
    pairs: Sequence[Pair]
    changes: tuple[Change, ...]
    evaluators: tuple[Part, ...]
    tags: tuple[Part, ...]
    cost: Use | None
    duration: Use | None
    unmatched: tuple[int, int]
    unmatched_ids: tuple[tuple[str, ...], tuple[str, ...]]
    unscored: tuple[int, int]
    non_inferiority: NonInferiority | None = None
    notes: tuple[str, ...] = ()

    def fails(self, on: FailOn) -> bool:
        """Whether it is what a gate is against. Without a case that both scored, nothing speaks for B."""
        if on == "never" or self.paired is None:
            return on != "never"
        if on == "worse":
            return self.paired.mean_delta < 0
        if on == "any-loss":
            return self.losses > 0
        if self.non_inferiority is not None:
            outcome = self.non_inferiority.outcome
            return outcome == "refuted" or (on == "inconclusive" and outcome == "inconclusive")
        answer = self.paired.answer
        return answer == "worse" or (on == "inconclusive" and answer != "better")


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Many runs over the cases that all of them scored. `differences[i][j]` is the j-th against the i-th, for i < j."""

    sides: tuple[Side, ...]
    n: int
    clusters: int
    means: tuple[Estimate, ...]
    differences: tuple[tuple[Paired | None, ...], ...]
    p_adjusted: tuple[tuple[float | None, ...], ...]
    ranking: tuple[Ranked, ...]
    left_out: tuple[int, ...]
    notes: tuple[str, ...] = ()
