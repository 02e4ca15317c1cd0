"""False verdicts, power and coverage in simulated comparisons, measured through `agentv compare --json`."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from cell_limits import at_least, at_most, coverage
from trend_rows import RateRow

from agentv.cli import cli
from agentv.model.result import ErrorInfo, Result
from agentv.runs.record import encode_record
from agentv.stats.distributions import Z95, t_quantile
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.paired_comparison import compare_paired

SEED = 3026
SIZES = (4, 10, 20, 50, 100, 1_000)
LEVELS = np.array([0, 0.25, 0.5, 0.75, 1])


class Population(NamedTuple):
    """Cases and two runs on them. `draw(random, n, gain)` returns the scores by trial and case, where NaN is an error.

    `turns(random, n)` returns the conversation of each case; None if cases are independent.
    """

    name: str
    draw: Callable
    turns: Callable = lambda random, n: None


def pass_or_fail(random, n, gain=0.0):
    chances = random.beta(2, 1, n) * (1 - gain)
    return [(random.random((1, n)) < chances + each).astype(float) for each in (0.0, gain)]


def five_levels(random, n, gain=0.0):
    common, sides = random.random(n), []
    for each in (0.0, gain):
        own = np.where(random.random(n) < 0.5, common, random.random(n))
        level = np.searchsorted(np.cumsum([0.05, 0.1, 0.2, 0.3]), own)
        # A gain moves some of the cases below the top one level up.
        up = random.random(n) < 4 * each / 0.65
        sides.append(LEVELS[np.minimum(4, level + (up & (level < 4)))][None, :])
    return sides


def some_break(random, n, gain=0.0):
    before = np.full(n, 0.9)
    after = np.where(random.random(n) < 0.05, 0.0, 0.9 + 0.9 * 0.05 / 0.95)
    return [before[None, :], np.minimum(1.0, after + gain)[None, :]]


def many_zeros(random, n, gain=0.0):
    def side(zeros):
        return np.where(random.random(n) < zeros, 0.0, random.uniform(0.7, 1.0, n))[None, :]

    return [side(0.2), side(0.2 - gain / 0.85)]


def few_zeros(random, n, gain=0.0):
    def side(zeros):
        return np.where(random.random(n) < zeros, 0.0, random.uniform(0.95, 1.0, n))[None, :]

    return [side(0.05), side(0.05)]


def in_conversations(random, n, gain=0.0):
    talks = conversations(random, n)
    luck = random.normal(0, 1, (2, n))
    common = [random.normal(0, 1, talks.max() + 1)[talks] for _ in range(2)]
    return [
        (0.7 * own + 0.7 * each < 0.6 + 2.5 * by).astype(float)[None, :]
        for own, each, by in zip(luck, common, (0, gain), strict=True)
    ]


def conversations(random, n):
    """Conversations of 1 to 10 turns. The sizes do not depend on the scores."""
    sizes = np.random.default_rng(n).integers(1, 11, n)
    return np.repeat(np.arange(n), sizes)[:n]


def unequal_trials(random, n, gain=0.0):
    chances = random.beta(18, 2, n) * (1 - gain)
    return [(random.random((trials, n)) < chances + by).astype(float) for trials, by in ((10, 0.0), (1, gain))]


def errors_for_failures(random, n, gain=0.0):
    before, after = pass_or_fail(random, n, gain)
    return [before, np.where((after == 0) & (random.random(after.shape) < 0.8), np.nan, after)]


POPULATIONS = (
    Population("0/1", pass_or_fail),
    Population("five levels", five_levels),
    Population("5 % break badly", some_break),
    Population("20 % zeros", many_zeros),
    Population("5 % zeros", few_zeros),
    Population("conversations of 1 to 10 turns", in_conversations, conversations),
    Population("10 trials against 1", unequal_trials),
    Population("80 % of failures end as errors", errors_for_failures),
)


def results(scores, talks):
    """Yield the results of a run."""
    known = {"timestamp": "2026-01-02T03:04:05Z", "run_id": "r", "dataset": "d", "dataset_path": "d.jsonl"}
    error = ErrorInfo(error_class="timeout", message="no answer", stage="target")
    for trial, row in enumerate(scores.tolist(), 1):
        for case, score in enumerate(row):
            talk = None if talks is None else str(talks[case])
            known |= {"eval_id": str(case), "target": "t", "trial": trial, "conversation_id": talk}
            if score == score:
                yield Result(status="ok", score=score, verdict="pass" if score >= 0.8 else "fail", **known)
            else:
                yield Result(status="error", score=None, verdict=None, error=error, **known)


def command_summary(folder, sides, talks):
    """Return the summary that `agentv compare --json` prints for two runs."""
    paths = [str(Path(folder) / f"{name}.jsonl") for name in "ab"]
    for path, scores in zip(paths, sides, strict=True):
        Path(path).write_bytes(b"".join(map(encode_record, results(scores, talks))))
    printed = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(printed, encoding="utf-8", write_through=True)) as stdout:
        with contextlib.suppress(SystemExit):
            cli.main(["compare", *paths, "--json", "--changes", "0"], standalone_mode=False)
        found = json.loads(printed.getvalue())["summary"]
        stdout.detach()
    return found


def verdict_rows(runs=300, sizes=SIZES, populations=POPULATIONS) -> Iterator[RateRow]:
    """Yield the fraction of "better" and "worse" between runs without a difference: at most 5 %."""
    with TemporaryDirectory() as folder:
        for population in populations:
            for n in sizes:
                random = np.random.default_rng(SEED)
                count = runs if n < 1_000 else max(20, runs // 3)
                talks = population.turns(random, n)
                found = [command_summary(folder, population.draw(random, n), talks)["answer"] for _ in range(count)]
                false = sum(answer != "cannot tell" for answer in found)
                yield RateRow(population.name, n, false / count, count, at_most(0.05, count))


def power_rows(runs=500, sizes=(50, 100, 200, 1_000)) -> Iterator[tuple[RateRow, float]]:
    """Yield the power against a gain, and that of a test that knows the variance of the differences.

    The limit is 10 points below that of the same test with Student's quantile, which few conversations need: 2 points
    for the larger of two variances (`ClusterSizes.variance`), which equal runs need for their 5 %, 6 because the
    permutation test has to agree, and 2 for the critical value, which is simulated too. Fewer than 20 conversations
    have no limit, because they cannot rule out that some conversations fail as a whole.
    """
    for population in POPULATIONS[:2] + POPULATIONS[3:4] + POPULATIONS[5:7]:
        random = np.random.default_rng(SEED)
        for n in sizes:
            gain = 2.8 * spread(population, random, 0.0, n) / np.sqrt(n)
            known = spread(population, random, gain, n) / np.sqrt(n)
            better = above = shown = 0
            talks = population.turns(random, n)
            if talks is not None and len(set(talks.tolist())) < 10:
                continue  # too few conversations for any test that must estimate the variance
            units = n if talks is None else len(set(talks.tolist()))
            critical = t_quantile(0.975, units - 1)
            for _ in range(runs):
                before, after = (side.mean(axis=0) for side in population.draw(random, n, gain))
                better += compare_paired(before, after, talks).answer == "better"
                delta = float((after - before).mean())
                above += delta > Z95 * known
                shown += delta > critical * known
            limits = at_least(shown / runs - 0.1, runs) if units >= 20 else (0.0, 1.0)
            yield RateRow(population.name, n, better / runs, runs, limits), above / runs


def spread(population, random, gain, n, runs=2_000):
    """Return the standard deviation of a mean difference, times the root of n."""
    means = []
    for _ in range(runs):
        before, after = (side.mean(axis=0) for side in population.draw(random, n, gain))
        means.append(float((after - before).mean()))
    return float(np.std(means) * np.sqrt(n))


def difference_rows(runs=1_000, sizes=(5, 10, 20, 50, 100, 1_000)) -> Iterator[RateRow]:
    """Yield the coverage of the interval of a difference of 0: at least 93 %."""
    for population in POPULATIONS[:-1]:
        for n in sizes:
            random = np.random.default_rng(SEED)
            talks, held = population.turns(random, n), 0
            for _ in range(runs):
                before, after = (side.mean(axis=0) for side in population.draw(random, n))
                low, high = compare_paired(before, after, talks, test=False).ci95 or (-1.0, 1.0)
                held += low <= 0 <= high
            yield RateRow(population.name, n, held / runs, runs, coverage(runs))


def trial_scores(random, n):
    chances = random.beta(3.6, 0.4, n)
    return (random.random((5, n)) < chances).astype(float)


MEANS = {
    "0/1, pass rate 0.5": (lambda random, n: (random.random((1, n)) < 0.5) * 1.0, 0.5),
    "0/1, pass rate 0.8": (lambda random, n: (random.random((1, n)) < 0.8) * 1.0, 0.8),
    "0/1, pass rate 0.95": (lambda random, n: (random.random((1, n)) < 0.95) * 1.0, 0.95),
    "0/1, pass rate 0.99": (lambda random, n: (random.random((1, n)) < 0.99) * 1.0, 0.99),
    "five levels": (lambda random, n: random.choice(LEVELS, (1, n), p=[0.1, 0.2, 0.4, 0.2, 0.1]), 0.5),
    "five levels near 1": (lambda random, n: random.choice(LEVELS, (1, n), p=[0.01, 0.01, 0.03, 0.15, 0.8]), 0.93),
    "5 % zeros, others 0.9 to 1": (
        lambda random, n: np.where(random.random((1, n)) < 0.05, 0.0, random.uniform(0.9, 1, (1, n))),
        0.95 * 0.95,
    ),
    "20 % zeros, others 0.9 to 1": (
        lambda random, n: np.where(random.random((1, n)) < 0.2, 0.0, random.uniform(0.9, 1, (1, n))),
        0.8 * 0.95,
    ),
    "skewed, most near 1": (lambda random, n: random.beta(8, 1, (1, n)), 8 / 9),
    "5 trials of each case": (trial_scores, 0.9),
    "conversations of 1 to 10 turns": (lambda random, n: in_conversations(random, n)[0], None),
}


def mean_rows(runs=2_000, sizes=(5, 10, 20, 50, 100, 1_000)) -> Iterator[RateRow]:
    """Yield the coverage of the interval of a mean: at least 93 %."""
    for name, (draw, truth) in MEANS.items():
        for n in sizes:
            random, held = np.random.default_rng(SEED), 0
            talks = conversations(random, n) if truth is None else None
            expected = float(np.mean([draw(random, 10_000).mean() for _ in range(50)])) if truth is None else truth
            for _ in range(runs):
                mean = MeanAccumulator()
                scores = draw(random, n)
                for row in scores.tolist():
                    for case, score in enumerate(row):
                        mean.add(score, int(talks[case]) if talks is not None else case if len(scores) > 1 else None)
                low, high = mean.ci95 or (0.0, 1.0)
                held += low - 1e-12 <= expected <= high + 1e-12
            yield RateRow(name, n, held / runs, runs, coverage(runs))
