"""What human labels say about the judges of a comparison: their agreement, and labels of both runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from agentv.registry import optional_service
from agentv.stats.distributions import Interval
from agentv.stats.paired_comparison import Paired

if TYPE_CHECKING:
    from agentv.comparison.joined_cases import JoinedCases
    from agentv.comparison.scores import RunScores

MUST_AGREE = 0.6
"""The lower bound of kappa that makes a judge calibrated, unless `judge_must_agree` is set."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """The agreement of the verdicts of some runs with human labels; kappa is None with too few labels."""

    labels: int = 0
    kappa: float | None = None
    kappa_ci95: Interval | None = None


class JudgeEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluators of a comparison that call a judge, and what labels say about their verdicts."""

    judges: tuple[str, ...]
    required: float
    """The lower bound of kappa that makes a judge calibrated."""

    agreement: Agreement = Agreement()
    labelled: int = 0
    """The number of cases whose answers are labelled in both runs."""

    pairs: int = 0
    """The number of these cases if they decided the comparison (PPI++); 0 if the judge's scores decided it."""

    @property
    def is_calibrated(self) -> bool:
        """Whether the lower bound of kappa reaches the required value, the rule of `judge calibrate --min-kappa`."""
        bounds = self.agreement.kappa_ci95
        return bounds is not None and bounds[0] >= self.required

    @property
    def supports_claims(self) -> bool:
        """Whether "better" is justified: the judge is calibrated, or labels of both runs decided."""
        return self.is_calibrated or self.pairs > 0


class JudgeLabels(Protocol):
    """The service `judge-labels`: the labels of the project."""

    must_agree: float | None
    """`judge_must_agree` of the project, if it is set."""

    def agreement(self, runs: Sequence[RunScores]) -> Agreement:
        """Return how well the verdicts of these runs agree with the labels."""
        ...

    def decide(self, joined: JoinedCases, paired: Paired) -> tuple[Paired | None, int]:
        """Return the comparison by the cases whose answers are labelled in both runs, None if few, and their number."""
        ...


def judge_evidence(runs: Sequence[RunScores], required: float | None) -> JudgeEvidence | None:
    """Return the evidence about the judges of some runs; None if no judge scored them."""
    judges = sorted({name for run in runs for used in run.judge_sets for name, _, _ in used})
    if not judges:
        return None
    service = _service()
    agreement = Agreement() if service is None else service.agreement(runs)
    limits = (required, None if service is None else service.must_agree, MUST_AGREE)
    limit = next(limit for limit in limits if limit is not None)
    return JudgeEvidence(judges=tuple(judges), required=limit, agreement=agreement)


def decide_by_labels(joined: JoinedCases, paired: Paired, evidence: JudgeEvidence) -> tuple[Paired, JudgeEvidence]:
    """Return the comparison decided by labels of both runs, if there are enough of them."""
    service = _service() if evidence.agreement.labels else None
    if service is None:
        return paired, evidence
    decided, labelled = service.decide(joined, paired)
    pairs = 0 if decided is None else labelled
    return decided or paired, msgspec.structs.replace(evidence, labelled=labelled, pairs=pairs)


def _service() -> JudgeLabels | None:
    labels = optional_service("judge-labels")
    return labels() if labels else None
