"""The winner's curse: a variant that was chosen for its score has a score that is too high."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.case_table import number_codes
from agentv.comparison.comparison import Comparison
from agentv.comparison.scores import RunScores
from agentv.stats.paired_comparison import Paired

_TARGET, _PROMPT = 2, 3
"""The places of target and prompt in the key of a case."""


class SelectedVariant(NamedTuple):
    """The best of several variants of a run. `mean_delta` is its difference, shrunk towards those of the others.

    `p_value` is that of the comparison before it was adjusted for the number of `comparisons`.
    """

    name: str
    variants: int
    comparisons: int
    mean_delta: float
    p_value: float | None


def correct_selection(comparison: Comparison, before: RunScores, after: RunScores) -> Comparison:
    """Adjust the claim that a variant is better, if it is the best of three or more in its run.

    Its p-value is multiplied by the number of variants that could have won (Bonferroni), and a note has the shrunk
    difference. The same holds for a claim against the best variant.
    """
    paired = comparison.paired
    if paired is None or paired.mean_delta == 0:
        return comparison
    best, other = (after, before) if paired.mean_delta > 0 else (before, after)
    family = _Family.of(best)
    if family is None:
        return comparison
    in_family = other.picked is not None and str(best.path) == str(other.path)
    size = len(family.means)
    comparisons = size - 1 if in_family else size
    lead = abs(paired.mean_delta)
    shrunk = lead * family.trust if in_family else lead - (1 - family.trust) * (family.top - float(family.means.mean()))
    selected = SelectedVariant(
        name=best.label,
        variants=size,
        comparisons=comparisons,
        mean_delta=float(np.copysign(max(0.0, shrunk), paired.mean_delta)),
        p_value=paired.p_value,
    )
    p_value = None if paired.p_value is None else min(1.0, paired.p_value * comparisons)
    adjusted = paired._replace(p_value=p_value)
    notes = (*comparison.notes, _note(selected, paired))
    return msgspec.structs.replace(comparison, paired=adjusted, selected=selected._asdict(), notes=notes)


def _note(selected: SelectedVariant, paired: Paired) -> str:
    expected, seen_at = (f"{delta:+.3f}".replace("-", "−") for delta in (selected.mean_delta, paired.mean_delta))
    return (
        f"{selected.name} is the best of {selected.variants} variants of its run. If it was chosen for that, its "
        f"difference is too large (winner's curse): expect about {expected} instead of "
        f"{seen_at}. p is adjusted for {selected.comparisons} comparisons; "
        "`agentv select` confirms a choice on other cases"
    )


class _Family(NamedTuple):
    """The means of the variants of a run over the cases that all scored, and how much of their spread is real."""

    means: NDArray[Any]
    top: float
    trust: float

    @classmethod
    def of(cls, run: RunScores) -> _Family | None:
        """Return the variants that a picked one is the best of; None if it is not, or there are fewer than three.

        With σ² the variance of a mean that chance causes, from the residuals of cases × variants, and V that of the
        observed means, the real part of their spread is 1 - σ²/V. James & Stein (1961); Efron & Morris (1973).
        """
        if run.picked is None:
            return None
        whole = RunScores(run.path, run.label)
        place = _TARGET if run.picked in whole.targets else _PROMPT
        names = [name for name in (whole.targets if place == _TARGET else whole.prompts) if name is not None]
        if len(names) < 3:
            return None
        columns = {name: number for number, name in enumerate(names)}
        cases, scores = whole.scores.arrays()
        rows = number_codes(whole.cases.codes((0, 1)))[1]
        variants = np.array([columns.get(str(whole.cases.key(case)[place]), -1) for case in range(len(whole.cases))])
        table = np.full((int(rows.max()) + 1, len(names)), np.nan)
        sums, counts = np.zeros_like(table), np.zeros_like(table)
        np.add.at(sums, (rows[cases], variants[cases]), scores)
        np.add.at(counts, (rows[cases], variants[cases]), 1)
        np.divide(sums, counts, where=counts > 0, out=table)
        table = table[~np.isnan(table).any(axis=1)]
        if len(table) < 2:
            return None
        means = table.mean(axis=0)
        top = float(means[columns[run.picked]])
        if top < float(means.max()):
            return None
        rest = table - means - table.mean(axis=1, keepdims=True) + means.mean()
        chance = float(np.square(rest).sum()) / ((len(table) - 1) * (len(names) - 1)) / len(table)
        spread = float(means.var(ddof=1))
        return cls(means, top, max(0.0, 1 - chance / spread) if spread > 0 else 0.0)
