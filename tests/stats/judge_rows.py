"""Simulated comparisons that a judge scored, with labels of some cases in both runs (PPI++)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from cell_limits import at_least, at_most, coverage
from cluster_rows import SEED, ClaimRow

from agentv.extensions.judge.judge_labels import next_rows
from agentv.extensions.judge.labelled_difference import LabelledPairs, compare_labelled
from agentv.stats.paired_comparison import compare_paired


class Judge(NamedTuple):
    """How often a judge passes good answers, and bad answers of A and of B."""

    name: str
    good: float = 0.95
    bad: tuple[float, float] = (0.1, 0.1)


FAIR = Judge("fair judge")
BIASED = Judge("judge that passes bad answers of B more often (35 % against 20 %)", 0.9, (0.2, 0.35))
GUESSING = Judge("judge that guesses", 0.5, (0.5, 0.5))


SETTINGS = ((1_000, 200, True), (300, 100, True), (300, 30, True), (1_000, 200, False), (120, 40, False))
"""Cases, labelled pairs, and whether these are random or suggested."""


def drawn_runs(random, cases, gain, judge):
    """True quality of the answers of two correlated runs, and the judge's verdicts."""
    common, own = random.random(cases), random.random((2, cases))
    luck = np.where(random.random(cases) < 0.5, common, own)
    truth = [(side < chance).astype(float) for side, chance in zip(luck, (0.6, 0.6 + gain), strict=True)]
    passed = [
        np.where(side == 1, random.random(cases) < judge.good, random.random(cases) < bad).astype(float)
        for side, bad in zip(truth, judge.bad, strict=True)
    ]
    return truth, passed


def suggested(random, deltas, labels, count):
    """Label the pairs that `judge label --against` shows, in two sittings."""
    order = [b"%d" % place for place in random.permutation(len(deltas)) + len(deltas)]
    labelled = {}
    for _ in range(2):
        rows = next_rows(np.sign(deltas).astype(int), labelled, order, count // 2)
        labelled |= {row: labels[row] for row in rows}
    return np.array(sorted(labelled))


def answers(random, cases, labelled, gain, judge, is_random=True):
    """Return the answer of the judge's scores, of random labels alone, and of PPI++, and its interval."""
    truth, passed = drawn_runs(random, cases, gain, judge)
    deltas, labels = passed[1] - passed[0], truth[1] - truth[0]
    rows = random.choice(cases, labelled, replace=False)
    paired = compare_paired(*passed)
    alone = compare_paired(*(side[rows] for side in truth))
    if not is_random:
        rows = suggested(random, deltas, labels, labelled)
    decided = compare_labelled(paired, deltas, LabelledPairs(rows, labels[rows], is_random))
    return paired.answer, alone.answer, decided.answer, decided.ci95


def judge_rows(runs=1_000) -> Iterator[ClaimRow]:
    """Yield false claims, coverage and power: before by the judge's scores, and by labels alone for power."""
    for cases, labelled, is_random in SETTINGS:
        for judge in (BIASED, FAIR, GUESSING):
            for gain in (0.0, 0.1):
                random, counts = np.random.default_rng(SEED), np.zeros(5)
                for _ in range(runs):
                    judged, alone, decided, (low, high) = answers(random, cases, labelled, gain, judge, is_random)
                    better = [each == "better" for each in (judged, alone, decided)]
                    counts += [*better, decided == "worse", low <= gain <= high]
                setting = f"{labelled} {'random' if is_random else 'suggested'} pairs of {cases:,}, {judge.name}"
                judged, alone, decided, worse, held = counts / runs
                if not gain:
                    name = f'false "better": {setting}'
                    yield ClaimRow(name, "≤ 2.5 %", judged, decided, 0.0, runs, at_most(0.025, runs))
                    yield ClaimRow(
                        f'false "worse": {setting}', "≤ 2.5 %", np.nan, worse, 0.0, runs, at_most(0.025, runs)
                    )
                else:
                    name = f'power for +0.1, "before" from labels alone: {setting}'
                    yield ClaimRow(name, "≥ labels alone", alone, decided, 0.0, runs, at_least(alone, runs))
                yield ClaimRow(
                    f"95 % interval, gain {gain}: {setting}", "≥ 93 %", np.nan, held, 0.0, runs, coverage(runs)
                )
