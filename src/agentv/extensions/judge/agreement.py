"""How often two labellers agree, and figures with their intervals."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

import msgspec

from agentv.extensions.judge.labels import AnswerKey, Labels
from agentv.stats.intervals import clopper_pearson
from agentv.stats.judge_calibration import IntervalEstimate, cohen_kappa

FEWEST_LABELS = 30
"""The labels that the intervals of kappa, Rogan-Gladen and reweighted figures need for 93 % coverage."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate with its 95 % interval, None with too few labels, and the number of labels it is based on."""

    value: float
    ci95: tuple[float, float] | None
    n: int


class LabellerAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How often two labellers gave the same label to an answer. Figures are None if no answer has labels of both.

    `confusion` has the first labeller in rows and the second in columns, pass before fail. Skipped answers do not
    count.
    """

    labellers: tuple[str, str]
    n: int
    agreed: int
    confusion: tuple[tuple[int, int], tuple[int, int]]
    agreement: Figure | None
    kappa: Figure | None


def labeller_agreement(labels: Labels, keys: Iterable[AnswerKey]) -> tuple[LabellerAgreement, ...]:
    """Compare every two labellers on these answers."""
    answer_keys = list(keys)
    return tuple(_pair(labels, answer_keys, *names) for names in combinations(sorted(labels.labellers(answer_keys)), 2))


def figure(estimate: IntervalEstimate | None, fewest: int = 1) -> Figure | None:
    """Return an estimate, with its interval if there are enough labels for it."""
    if estimate is None:
        return None
    bounds = (estimate.low, estimate.high) if estimate.n >= fewest else None
    return Figure(value=estimate.value, ci95=bounds, n=estimate.n)


def _pair(labels: Labels, keys: Iterable[AnswerKey], first: str, second: str) -> LabellerAgreement:
    pairs = ((labels.of(key, first), labels.of(key, second)) for key in keys)
    counts = Counter((one.label, other.label) for one, other in pairs if one is not None and other is not None)
    both, differ = counts["pass", "pass"] + counts["fail", "fail"], counts["pass", "fail"] + counts["fail", "pass"]
    n = both + differ
    table = (counts["pass", "pass"], counts["pass", "fail"]), (counts["fail", "pass"], counts["fail", "fail"])
    return LabellerAgreement(
        labellers=(first, second),
        n=n,
        agreed=both,
        confusion=table,
        agreement=figure(IntervalEstimate(both / n, *clopper_pearson(both, n), n)) if n else None,
        kappa=figure(cohen_kappa(table), FEWEST_LABELS),
    )
