"""Compare parts of two runs: pass rate, datasets, evaluators, tags, cost and time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.errors import plural
from agentv.stats.distributions import Interval
from agentv.stats.means import Estimate, clustered_mean, quantile_interval
from agentv.stats.paired_comparison import Paired
from agentv.stats.power import holm

if TYPE_CHECKING:
    from agentv.comparison.joined_cases import JoinedCases
    from agentv.comparison.sampling.drawn_cases import Columns
    from agentv.comparison.scores import Column

_MIN_TAG_CASES = 3
_PERCENTILES = (0.5, 0.95)


class PartComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison for one dataset, evaluator or tag. `p_adjusted` is Holm-adjusted over all parts of that kind.

    `pooled` is the difference of a dataset, shrunk towards those of the other datasets.
    """

    name: str
    paired: Paired
    p_adjusted: float | None
    pooled: float | None = None


class WeightedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of the differences of all datasets, each with its own `weight`, instead of one weight for each case."""

    weights: dict[str, float]
    mean_delta: float
    ci95: Interval | None


class Percentile(msgspec.Struct, frozen=True, kw_only=True):
    """A percentile, or a median of ratios, with its interval; None if there are too few values."""

    share: float
    value: float
    ci95: Interval | None


class UsageChange(msgspec.Struct, frozen=True, kw_only=True):
    """Cost in USD or time in milliseconds per case, over the cases where both runs report it.

    `ratio` is the median of after / before per case. `percentiles` are those of both runs.
    """

    n: int
    before: float
    after: float
    difference: Estimate
    ratio: Percentile | None = None
    percentiles: tuple[tuple[Percentile, Percentile], ...] = ()


def pass_rate(joined: JoinedCases, seed: int) -> Paired | None:
    """Compare the fractions of trials that passed."""
    before, after = (side.run.passes for side in joined.sides)
    columns = joined.column(before, after)
    return columns.compare(seed) if len(columns.first) else None


def evaluators(joined: JoinedCases, seed: int) -> tuple[PartComparison, ...]:
    """Compare the scores of each evaluator that both runs have."""
    before, after = (side.run.evaluators for side in joined.sides)
    return _parts(((name, joined.column(before[name], after[name])) for name in before if name in after), seed)


def tags(joined: JoinedCases, seed: int) -> tuple[PartComparison, ...]:
    """Compare the cases of each tag with at least three cases."""
    rows_by_tag = joined.tags()
    large = {tag: rows for tag, rows in rows_by_tag.items() if len(rows) >= _MIN_TAG_CASES}
    if few := len(rows_by_tag) - len(large):
        tag = "tag" if few == 1 else "tags"
        joined.notes.append(f"Not compared separately: {few:,} {tag} with fewer than {_MIN_TAG_CASES} cases")
    return _parts(_columns(joined, large), seed)


def dataset_parts(joined: JoinedCases, seed: int) -> tuple[PartComparison, ...]:
    """Compare the cases of each dataset, if there are several. `pooled` is the difference shrunk towards the others."""
    rows_by_dataset = joined.datasets()
    if len(rows_by_dataset) < 2:
        return ()
    parts = _parts(_columns(joined, rows_by_dataset), seed)
    pooled = partial_pooling([part.paired for part in parts])
    return tuple(msgspec.structs.replace(part, pooled=value) for part, value in zip(parts, pooled, strict=True))


def weighted_difference(joined: JoinedCases, parts: Sequence[PartComparison]) -> WeightedDifference | None:
    """Weight the differences of the datasets by the `weight` of each; None if all have the same.

    Var = Σ w² Var_d / (Σ w)², where the variance of a dataset is taken from the width of its interval.
    """
    weights: dict[str, float] = {}
    for side in joined.sides:
        manifest = side.run.manifest
        weights |= {item.name: item.weight for item in manifest.datasets} if manifest else {}
    used = np.array([weights.get(part.name, 1.0) for part in parts])
    if not len(used) or (used == used[0]).all():
        return None
    deltas = np.array([part.paired.mean_delta for part in parts])
    mean = float((used * deltas).sum() / used.sum())
    interval = None
    if all(part.paired.ci95 is not None for part in parts):
        bounds = np.array([part.paired.ci95 for part in parts], dtype=float)
        low, high = (float(np.sqrt(np.square(used * (bounds[:, end] - deltas)).sum()) / used.sum()) for end in (0, 1))
        interval = max(-1.0, mean - low), min(1.0, mean + high)
    return WeightedDifference(
        weights={part.name: float(item) for part, item in zip(parts, used, strict=True)}, mean_delta=mean, ci95=interval
    )


def partial_pooling(parts: Sequence[Paired]) -> list[float]:
    """Return the differences, each shrunk towards their common mean by the precision of its own cases.

    The variance τ² between datasets is estimated by the method of moments. DerSimonian & Laird (1986), Controlled
    Clinical Trials 7:177. Datasets without a standard error get the common mean.
    """
    deltas = np.array([part.mean_delta for part in parts])
    # An interval has a width even if all differences are equal, when the standard error is 0.
    widths = [np.inf if part.ci95 is None else (part.ci95[1] - part.ci95[0]) / 3.92 for part in parts]
    variances = np.maximum(np.square(widths), 1e-12)
    weights = 1 / variances
    if not weights.sum():
        return [part.mean_delta for part in parts]
    common = float((weights * deltas).sum() / weights.sum())
    spread = float((weights * np.square(deltas - common)).sum())
    scale = float(weights.sum() - np.square(weights).sum() / weights.sum())
    between = max(0.0, (spread - (len(parts) - 1)) / scale) if scale > 0 else 0.0
    with np.errstate(invalid="ignore"):
        trust = np.where(np.isinf(variances), 0.0, between / (between + variances))
    centre = 1 / (between + variances)
    common = float((centre * deltas).sum() / centre.sum())
    pooled: list[float] = (common + trust * (deltas - common)).tolist()
    return pooled


def opposite_datasets(parts: Sequence[PartComparison], overall: Paired | None) -> Iterator[str]:
    """Yield a warning for each dataset that moved clearly against the claim about all cases."""
    if overall is None or overall.answer == "cannot tell":
        return
    claimed = overall.mean_delta
    for part in parts:
        paired, delta = part.paired, part.paired.mean_delta
        is_shown = paired.conclude(part.p_adjusted) != "cannot tell"
        if delta * claimed < 0 and (is_shown or abs(delta) > abs(claimed)):
            change = f"{paired.mean_before:.3f} → {paired.mean_after:.3f} on {plural(paired.n, 'case')}"
            yield f"Dataset {part.name} moved the other way: {change}"


def adjusted_p_values(comparisons: Iterable[Paired]) -> Iterator[float | None]:
    """Yield the p-values adjusted for the number of tests; comparisons without one do not count."""
    p_values = [paired.p_value for paired in comparisons]
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return (None if p is None else next(adjusted) for p in p_values)


def usage_change(joined: JoinedCases, before: Column, after: Column) -> UsageChange | None:
    """Compare the cost or time per case. The ratio and the percentiles are not affected by outliers."""
    first, second, clusters, weights = joined.column(before, after)
    if not len(first):
        return None
    positive = (first > 0) & (second > 0)
    return UsageChange(
        n=len(first),
        before=float(np.average(first, weights=weights)),
        after=float(np.average(second, weights=weights)),
        difference=clustered_mean(second - first, clusters, weights=weights),
        ratio=_percentile(second[positive] / first[positive], 0.5) if positive.any() else None,
        percentiles=tuple((_percentile(first, share), _percentile(second, share)) for share in _PERCENTILES),
    )


def _percentile(values: NDArray[Any], share: float) -> Percentile:
    return Percentile(share=share, value=float(np.quantile(values, share)), ci95=quantile_interval(values, share))


def _columns(joined: JoinedCases, parts: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, Columns]]:
    """Yield some rows of the shared cases."""
    return ((name, joined.columns.rows(rows)) for name, rows in parts.items())


def _parts(columns: Iterable[tuple[str, Columns]], seed: int) -> tuple[PartComparison, ...]:
    """Compare both runs for each part, with p-values adjusted for the number of tests."""
    comparisons = {name: column.compare(seed, test=False) for name, column in columns if len(column.first)}
    adjusted = zip(comparisons.items(), adjusted_p_values(comparisons.values()), strict=True)
    return tuple(PartComparison(name=name, paired=paired, p_adjusted=p) for (name, paired), p in adjusted)
