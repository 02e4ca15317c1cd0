"""Simulated comparisons of clustered cases: dominating clusters, margins, and documents that are not declared."""

import math
from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from cell_limits import at_most, coverage
from verdict_rows import LEVELS, command_summary

from agentv.stats.distributions import normal_quantile, t_quantile
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.means import cluster_sums
from agentv.stats.paired_comparison import compare_paired
from agentv.stats.power import non_inferiority

SEED = 3026
LAYOUTS = {
    "1 of 21 clusters holds 20 %": [20] + [4] * 20,
    "1 of 71 holds 30 %": [30] + [1] * 70,
    "2 of 12 hold 50 %": [25, 25] + [5] * 10,
    "1 of 51 holds 50 %": [50] + [1] * 50,
    "1 of 21 holds 80 %": [80] + [1] * 20,
    "2 of 22 hold 80 %": [40, 40] + [1] * 20,
    "8 of 10 each": [10] * 8,
}
SCORES = {"pass or fail": 0.8, "five levels": None}
CORRELATIONS = (0.3, 0.7)
MARGIN = 0.1


class ClaimRow(NamedTuple):
    """A claim: its nominal rate, the simulated rates before and after, and how often it is "too few clusters"."""

    claim: str
    nominal: str
    before: float
    after: float
    too_few: float
    simulations: int
    limits: tuple[float, float]

    @property
    def is_within_limits(self):
        return self.limits[0] <= self.after <= self.limits[1]


def scores_of(random, clusters, correlation, chance):
    """Scores whose clusters share luck: pass or fail with this chance, or five levels."""
    shared, own = random.normal(size=clusters.max() + 1)[clusters], random.normal(size=len(clusters))
    luck = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    if chance is not None:
        return (luck < normal_quantile(chance)).astype(float)
    return LEVELS[np.searchsorted([-1.2816, -0.5244, 0.5244, 1.2816], luck)]


def robust_interval(values, clusters):
    """The cluster-robust t interval that compare printed before."""
    sums, sizes = cluster_sums(values, clusters), cluster_sums(np.ones_like(values), clusters)
    count, mean = len(sums), float(values.mean())
    error = math.sqrt(count / (count - 1) * float(np.square(sums - sizes * mean).sum())) / len(values)
    half = t_quantile(0.975, count - 1) * error
    return mean - half, mean + half


def mean_interval(scores, clusters):
    mean = MeanAccumulator()
    for score, cluster in zip(scores.tolist(), clusters.tolist(), strict=True):
        mean.add(score, cluster)
    return mean.ci95


def inside(interval, truth):
    return interval is None or interval[0] - 1e-12 <= truth <= interval[1] + 1e-12


def dominated_rows(runs=1_000, layouts=LAYOUTS) -> Iterator[ClaimRow]:
    """Yield the coverage of differences and means: at least 93 %, or "too few clusters"."""
    for layout, sizes in layouts.items():
        clusters = np.repeat(np.arange(len(sizes)), sizes)
        for kind, chance in SCORES.items():
            for correlation in CORRELATIONS:
                random = np.random.default_rng(SEED)
                held, few = np.zeros((2, 2)), np.zeros(2)
                for _ in range(runs):
                    first, second = (scores_of(random, clusters, correlation, chance) for _ in range(2))
                    found = compare_paired(first, second, clusters, test=False).ci95, mean_interval(first, clusters)
                    before = robust_interval(second - first, clusters), robust_interval(first, clusters)
                    truths = (0.0, 0.5 if chance is None else chance)
                    held += [
                        [inside(each, truth) for each, truth in zip(row, truths, strict=True)]
                        for row in (before, found)
                    ]
                    few += [each is None for each in found]
                for place, what in enumerate(("difference", "mean")):
                    name = f"95 % interval of the {what}: {layout}, {kind}, correlation {correlation}"
                    yield ClaimRow(name, "≥ 93 %", *(held[:, place] / runs), few[place] / runs, runs, coverage(runs))


def fewer_levels(random, clusters):
    """Five levels, of which B loses one in so many cases that it is worse by the margin."""
    first, second = (scores_of(random, clusters, 0.3, None) for _ in range(2))
    falls = scores_of(random, clusters, 0.3, 4 * MARGIN / 0.9)
    return first, np.where(second > 0, second - 0.25 * falls, 0.0)


def whole_clusters_break(random, clusters):
    """Scores near 0.9, of which B loses all in so many clusters that it is worse by the margin."""
    first, second = random.uniform(0.85, 0.95, (2, len(clusters)))
    return first, np.where((random.random(clusters.max() + 1) < MARGIN / 0.9)[clusters], 0.0, second)


def pass_or_fail_from(chance):
    return lambda random, clusters: [scores_of(random, clusters, 0.3, each) for each in (chance, chance - MARGIN)]


EQUAL_LAYOUTS = {f"{count} of 5 each": [5] * count for count in (10, 12, 20, 40)}
MARGIN_SCORES = {
    "pass or fail": (pass_or_fail_from(0.8), LAYOUTS | EQUAL_LAYOUTS),
    "pass rate 0.97": (pass_or_fail_from(0.97), EQUAL_LAYOUTS),
    "five levels": (fewer_levels, EQUAL_LAYOUTS),
    "whole clusters break": (whole_clusters_break, EQUAL_LAYOUTS),
}


def margin_rows(runs=4_000) -> Iterator[ClaimRow]:
    """Yield how often `--margin` shows that B is no worse by 0.1 if it is worse by exactly that: at most 2.5 %."""
    for kind, (draw, layouts) in MARGIN_SCORES.items():
        for layout, sizes in layouts.items():
            clusters = np.repeat(np.arange(len(sizes)), sizes)
            random = np.random.default_rng(SEED)
            before = after = few = 0
            for _ in range(runs):
                first, second = draw(random, clusters)
                paired = compare_paired(first, second, clusters, test=False)
                after += non_inferiority(paired.estimate, MARGIN).outcome == "shown"
                before += robust_interval(second - first, clusters)[0] > -MARGIN
                few += paired.ci95 is None
            name = f"`--margin` shown at the margin: {layout}, {kind}"
            yield ClaimRow(name, "≤ 2.5 %", before / runs, after / runs, few / runs, runs, at_most(0.025, runs))


def document_rows(runs=1_000, sizes=(60, 200)) -> Iterator[ClaimRow]:
    """Yield false verdicts between equal runs on questions about documents: at most 5 % once they are declared."""
    for n in sizes:
        for questions in (5, 10):
            documents = np.repeat(np.arange(n // questions), questions)
            nulls = {f"correlation {each}": partial(equal_sides, correlation=each) for each in CORRELATIONS}
            for null, draw in {
                **nulls,
                "5 % of documents break, the others gain as much": some_documents_break,
            }.items():
                random = np.random.default_rng(SEED)
                false = np.zeros(2)
                for _ in range(runs):
                    sides = draw(random, documents)
                    answers = [compare_paired(*sides, names, seed=0).answer for names in (None, documents)]
                    false += [answer != "cannot tell" for answer in answers]
                name = f"false verdict: {n} cases, {questions} per document, {null}"
                yield ClaimRow(name, "≤ 5 %", *(false / runs), 0.0, runs, at_most(0.05, runs))


def equal_sides(random, documents, correlation):
    return [scores_of(random, documents, correlation, 0.8) for _ in range(2)]


def some_documents_break(random, documents, part=0.05):
    """Scores near 0.9: B loses all in some documents, and gains as much in the others."""
    first, second = 0.9 + random.uniform(-0.02, 0.02, (2, len(documents)))
    is_broken = (random.random(documents.max() + 1) < part)[documents]
    return first, np.where(is_broken, 0.0, second + 0.9 * part / (1 - part))


def command_rows(runs=100) -> Iterator[ClaimRow]:
    """Yield coverage and false verdicts of some layouts, read from `agentv compare --json`."""
    with TemporaryDirectory() as folder:
        for layout in ("1 of 71 holds 30 %", "2 of 12 hold 50 %", "1 of 21 holds 80 %"):
            clusters = np.repeat(np.arange(len(LAYOUTS[layout])), LAYOUTS[layout])
            random = np.random.default_rng(SEED)
            held = false = few = before = 0
            for _ in range(runs):
                sides = [scores_of(random, clusters, 0.7, 0.8) for _ in range(2)]
                found = command_summary(folder, [side[None, :] for side in sides], clusters)
                held += inside(found["ci95"], 0.0)
                few += found["ci95"] is None
                false += found["answer"] != "cannot tell"
                before += inside(robust_interval(sides[1] - sides[0], clusters), 0.0)
            name = f"`agentv compare --json`, interval of the difference: {layout}"
            yield ClaimRow(name, "≥ 93 %", before / runs, held / runs, few / runs, runs, coverage(runs))
            name = f"`agentv compare --json`, false verdict: {layout}"
            yield ClaimRow(name, "≤ 5 %", np.nan, false / runs, few / runs, runs, at_most(0.05, runs))
