"""Simulated draws of cases by history, intervals of --until, and choices among variants, before and now."""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from cell_limits import at_least, at_most, coverage

from agentv.comparison.run_comparison import compare_runs
from agentv.comparison.sampling.selected_variant import correct_selection
from agentv.comparison.scores import RunScores
from agentv.extensions.select.rounds import plan_rounds, surviving
from agentv.runs.record import encode_record
from agentv.stats.case_draw import draw_probabilities, draw_units, expected_spread
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.paired_comparison import compare_paired, compare_weighted
from agentv.stats.sequential import NarrowingMean
from made_results import scored

RUNS = 500
SEED = 3030
AIM = 0.92
"""The power for +0.1 on saturated suites."""
ALL = 400

DIFFICULTY = {"saturated": (0.2, 0.08), "U-shaped": (0.5, 0.5 * 3 / 7), "unimodal": (7.0, 3.0)}
"""The parameters of the beta distribution of the cases' pass rates: their mean is about 0.7."""


class ClaimRow(NamedTuple):
    """A claim: its nominal value, how often it was true before and is now, and the limits of the rate now."""

    claim: str
    nominal: str
    before: float | None
    rate: float
    runs: int
    limits: tuple[float, float]

    @property
    def is_within_limits(self):
        return self.limits[0] <= self.rate <= self.limits[1]


def gain_of(chance, gain):
    """Return pass rates that are higher by `gain` on average: each by the same amount on the scale of log odds."""
    odds = np.log(np.clip(chance, 1e-6, 1 - 1e-6) / (1 - np.clip(chance, 1e-6, 1 - 1e-6)))
    low, high = 0.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        is_less = (1 / (1 + np.exp(-odds - middle))).mean() - chance.mean() < gain
        low, high = (middle, high) if is_less else (low, middle)
    return 1 / (1 + np.exp(-odds - low)) if gain else chance


def broken(chance, share, draw):
    """Return pass rates with the same mean: some cases that always passed fail, and the others gain as much."""
    after, solid = chance.copy(), np.flatnonzero(chance > 0.97)
    after[draw.choice(solid, round(share * len(chance)), replace=False)] = 0
    weak = np.flatnonzero(chance <= 0.97)
    after[weak] = gain_of(chance[weak], (chance.mean() - after.mean()) * len(chance) / len(weak))
    return after


def fixed(chance):
    """Return pass rates that are higher by 0.1 on average, in proportion to the failures: most failed always."""
    return chance + 0.1 * (1 - chance) / (1 - chance).mean()


class Draw(NamedTuple):
    """A comparison of drawn cases with the baseline, and the same number of cases with one run of it, as before."""

    drawn: object
    before: object
    truth: float
    mean: tuple
    mean_truth: float


def drawn_run(draw, difficulty, change, budget=50, runs=10):
    chance = draw.beta(*DIFFICULTY[difficulty], ALL)
    after = change(chance)
    history = (draw.random((ALL, runs)) < chance[:, None]).astype(float)
    probabilities = draw_probabilities(expected_spread(history.tolist()), np.ones(ALL), budget)
    cases = draw_units(probabilities, draw.permutation(ALL), draw.random())
    scores = (draw.random(ALL) < after).astype(float)
    weights = 1 / probabilities[cases]
    mean = MeanAccumulator()
    for number, (score, weight) in enumerate(zip(scores[cases].tolist(), weights.tolist(), strict=True)):
        mean.add(score, number, weight)
    sample = draw.permutation(ALL)[:budget]
    return Draw(
        compare_weighted(history[cases].mean(axis=1), scores[cases], weights),
        compare_paired(history[sample, 0], scores[sample]),
        float(after.mean() - chance.mean()),
        mean.ci95,
        float(after.mean()),
    )


def rate(values):
    return float(np.mean(list(values)))


def inside(interval, truth):
    return interval[0] <= truth <= interval[1]


def power_row(claim, samples, aim=0.0) -> ClaimRow:
    """Return how often a gain is shown: as often as the aim, and not less often than with random cases."""
    before, now = (rate(getattr(sample, name).answer == "better" for sample in samples) for name in ("before", "drawn"))
    return ClaimRow(claim, "power", before, now, len(samples), at_least(max(aim, before), len(samples)))


def null_row(claim, samples) -> ClaimRow:
    """Return how often a verdict is false."""
    false = [rate(getattr(e, name).answer != "cannot tell" for e in samples) for name in ("before", "drawn")]
    return ClaimRow(f"{claim}, false verdict", "≤ 5 %", *false, len(samples), at_most(0.05, len(samples)))


def history_rows(runs=RUNS) -> Iterator[ClaimRow]:
    """Yield power, false verdicts and coverage of 50 drawn cases of 400."""
    draw = np.random.default_rng(SEED)

    def samples(difficulty, change, count=runs, **options):
        return [drawn_run(draw, difficulty, change, **options) for _ in range(count)]

    for difficulty in DIFFICULTY:
        gains = samples(difficulty, lambda chance: gain_of(chance, 0.1), 2 * runs)
        yield power_row(f"{difficulty}, +0.1 is called better", gains, AIM if difficulty == "saturated" else 0.0)
        covered = [rate(inside(getattr(e, name).ci95, e.truth) for e in gains) for name in ("before", "drawn")]
        limits = coverage(len(gains))
        yield ClaimRow(f"{difficulty}, +0.1, interval of the difference", "≥ 93 %", *covered, len(gains), limits)
        means = rate(inside(sample.mean, sample.mean_truth) for sample in gains)
        yield ClaimRow(f"{difficulty}, +0.1, interval of the mean", "≥ 93 %", None, means, len(gains), limits)
        yield null_row(f"{difficulty}, nothing changed", samples(difficulty, lambda chance: chance, 4 * runs))
    yield power_row("saturated, failing cases are fixed, +0.1 is called better", samples("saturated", fixed))
    for history in (1, 3):
        equal = samples("saturated", lambda chance: chance, 2 * runs, runs=history)
        yield null_row(f"saturated, history of {history}, nothing changed", equal)
    for share in (0.04, 0.08):
        changed = samples("saturated", lambda chance, x=share: broken(chance, x, draw), 2 * runs)
        yield null_row(f"saturated, {100 * share:.0f} % of cases break and others gain as much", changed)


def until_rows(runs=RUNS) -> Iterator[ClaimRow]:
    """Yield how often the interval at which `--until` stops contains the mean of all cases."""
    draw = np.random.default_rng(SEED)
    for share, width in ((0.9, 0.05), (0.7, 0.08)):
        hits = 0
        for _ in range(runs):
            scores = (draw.random(2_000) < share).astype(float)
            bet = NarrowingMean(width, population=2_000)
            for score in draw.permutation(scores).tolist():
                bet.add(score)
                if bet.decided is not None:
                    break
            hits += inside(bet.interval, scores.mean())
        claim = f"pass rate {share}, interval when --until {width} stops"
        yield ClaimRow(claim, "≥ 95 %", None, hits / runs, runs, at_least(0.95, runs))


def variants_of(draw, cases, count, gain):
    """Draw pass or fail of variants with correlation 0.5; a random one, not the first, is better."""
    chance = draw.beta(0.7, 0.3, cases)
    chances, best = np.repeat(chance[:, None], count, axis=1), int(draw.integers(1, count))
    chances[:, best] = np.minimum(1, chance + gain * (1 - chance) / 0.3)
    return (draw.random((cases, count)) < chances).astype(float), best


def choice(draw, count, gain, calls):
    """Choose by halving and confirm; return whether the right one is called better, and the lead."""
    schedule = plan_rounds(count, ALL, calls)
    scores, best = variants_of(draw, ALL, count, gain)
    names, end = list(range(count)), 0
    for each in schedule.rounds:
        end += each.cases
        names = list(surviving({name: dict(enumerate(scores[:end, name])) for name in names}, each.survivors))
    if names[0] == 0:
        return False, False, 0.0
    rest = slice(end, end + schedule.confirmation)
    paired = compare_paired(scores[rest, 0], scores[rest, names[0]])
    return paired.answer == "better" and names[0] == best, paired.answer == "better", paired.mean_delta


def matrix_choice(draw, count, gain, cases=200):
    """Whether the best of a matrix is called better than the baseline, with all pairs adjusted (Bonferroni)."""
    scores, best = variants_of(draw, cases, count, gain)
    paired = compare_paired(scores[:, 0], scores[:, best])
    return paired.conclude(min(1.0, paired.p_value * count * (count - 1) / 2)) == "better"


def select_rows(runs=RUNS) -> Iterator[ClaimRow]:
    """Yield how often `agentv select` chooses and confirms the right one of 20 with 1,280 calls; before with 4,000."""
    draw = np.random.default_rng(SEED)
    before = rate(matrix_choice(draw, 20, 0.1) for _ in range(runs))
    now = rate(choice(draw, 20, 0.1, 1_280)[0] for _ in range(runs))
    yield ClaimRow(
        "one of 20 variants is +0.1, chosen and called better", "power", before, now, runs, at_least(0.55, runs)
    )
    null = [choice(draw, 20, 0.0, 1_280) for _ in range(runs)]
    claim, false = "20 equal variants, the winner is called better", rate(e[1] for e in null)
    yield ClaimRow(claim, "≤ 5 %", None, false, runs, at_most(0.05, runs))
    leads = np.array([lead for *_, lead in null])
    error = 2 * float(leads.std()) / math.sqrt(runs)
    claim = "20 equal variants, bias of the reported lead"
    yield ClaimRow(claim, "0", None, float(leads.mean()), runs, (-error, error))


def curse_rows(runs=RUNS) -> Iterator[ClaimRow]:
    """Yield how often the best of equal prompts is called better than the first, before and after the correction."""
    draw = np.random.default_rng(SEED)
    for count in (10, 20):
        claims = [best_of(draw, 100, count) for _ in range(runs)]
        before, now, bias = np.mean(claims, axis=0).tolist()
        claim = f"best of {count} equal prompts, called better by `compare RUN:p0 RUN:best`"
        yield ClaimRow(claim, "≤ 5 %", before, now, runs, at_most(0.05, runs))
        yield ClaimRow(f"best of {count} equal prompts, shrunk lead", "0 to 3 %", None, bias, runs, (0.0, 0.03))


def best_of(draw, cases, count):
    """Compare the best of equal prompts with the first, in a run on disk: before, after, and the shrunk difference."""
    scores, _ = variants_of(draw, cases, count, 0.0)
    best = 1 + int(scores[:, 1:].mean(axis=0).argmax())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl")
        results = (
            scored(float(scores[case, prompt]), eval_id=str(case), prompt=f"p{prompt}", fingerprint=str(case))
            for case in range(cases)
            for prompt in range(count)
        )
        path.write_bytes(b"".join(map(encode_record, results)))
        sides = [RunScores(path, name, name) for name in ("p0", f"p{best}")]
        paired = compare_runs(*sides)
        found = correct_selection(paired, *sides)
    lead = found.paired.mean_delta if found.selected is None else found.selected["mean_delta"]
    return paired.answer == "better", found.answer == "better", lead
