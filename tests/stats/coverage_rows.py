"""Coverage of intervals in simulated runs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gate_rows import gate_rows, stop_rows
from plan_rows import plan_rows
from trend_rows import trend_rows
from verdict_rows import difference_rows, mean_rows, power_rows, verdict_rows

from agentv.stats.intervals import MeanAccumulator, clopper_pearson, wilson
from agentv.stats.judge_calibration import cohen_kappa
from agentv.stats.means import clustered_mean, paired_difference
from agentv.stats.paired_comparison import compare_paired, mcnemar_exact, mcnemar_mid_p, sign_flip_test
from agentv.stats.sequential import BettingMean

RUNS = 10_000
LOOKS = 200
PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"


class Row(NamedTuple):
    """One simulation: `holds` draws a run and returns whether the interval contains the true value."""

    name: str
    kind: str
    setting: str
    holds: Callable

    @property
    def limits(self):
        return {"approximate": (0.93, 1.0), "exact": (0.945, 1.0), "anytime": (0.945, 1.0)}[self.kind]

    def coverage(self, runs=RUNS):
        draw = np.random.default_rng(2026)
        return sum(bool(self.holds(draw)) for _ in range(runs)) / runs


def inside(interval, truth):
    return interval is not None and interval[0] <= truth <= interval[1]


@cache
def known(function, *arguments):
    return function(*arguments)


def share_of(hits, n):
    return wilson(hits / n, n)


def shares(function, kind) -> Iterator[Row]:
    for share in (0.1, 0.3, 0.5):
        for n in (100, 1_000):

            def holds(draw, share=share, n=n):
                return inside(known(function, int(draw.binomial(n, share)), n), share)

            name = {"share_of": "`wilson`"}.get(function.__name__, f"`{function.__name__}`")
            yield Row(name, kind, f"{n:,} cases, pass rate {share}", holds)


def talks(draw, groups=50, size=4, share=0.6):
    """Scores of conversations, each with its own pass rate around `share`."""
    chances = draw.beta(4 * share, 4 * (1 - share), groups)
    return (draw.random((size, groups)) < chances).T.ravel().astype(float), np.repeat(np.arange(groups), size)


def accumulated(scores, clusters):
    mean = MeanAccumulator()
    for score, cluster in zip(scores.tolist(), clusters.tolist(), strict=True):
        mean.add(score, cluster)
    return mean.ci95


def paired_shares(draw, n=100, share=0.6, gain=0.1):
    """Two correlated sides: half the cases are the same draw."""
    common, own = draw.random(n), draw.random((2, n))
    same = draw.random(n) < 0.5
    return [
        (np.where(same, common, each) < chance).astype(float)
        for each, chance in zip(own, (share, share + gain), strict=True)
    ]


def kappa_holds(draw):
    truth = draw.integers(0, 2, 200)
    first, second = (np.where(draw.random(200) < 0.1, 1 - truth, truth) for _ in range(2))
    found = cohen_kappa([[int(((first == i) & (second == j)).sum()) for j in (0, 1)] for i in (0, 1)])
    return inside((found.low, found.high), 0.64)


def watched(scores, claim, **options):
    """Whether a true claim is never rejected, checked after each score."""
    bet = BettingMean(claim, **options)
    for score in scores.tolist():
        bet.add(score)
    return bet.decided is None


def watched_talks(draw):
    scores, clusters = talks(draw)
    bet = BettingMean(0.6, largest=4)
    for total in np.bincount(clusters, scores).tolist():
        bet.add(total, 4)
    return bet.decided is None


FIXED = np.random.default_rng(5).beta(2, 1, LOOKS).round(2)


def rows() -> Iterator[Row]:
    yield from shares(share_of, "approximate")
    uniform = "100 cases, any score"
    yield Row(
        "`MeanAccumulator`",
        "approximate",
        "50 conversations of 4, pass or fail",
        lambda draw: inside(accumulated(*talks(draw)), 0.6),
    )
    yield Row(
        "`clustered_mean`",
        "approximate",
        uniform,
        lambda draw: inside(clustered_mean(draw.beta(4, 2, 100)).ci95, 2 / 3),
    )
    yield Row(
        "`clustered_mean`",
        "approximate",
        "50 conversations of 4",
        lambda draw: inside(clustered_mean(*talks(draw)).ci95, 0.6),
    )
    yield Row(
        "`paired_difference`",
        "approximate",
        uniform,
        lambda draw: inside(paired_difference(draw.beta(4, 2, 100), draw.beta(4, 2, 100)).estimate.ci95, 0),
    )
    for gain in (0.0, 0.1, 0.3):
        yield Row(
            "`compare_paired`",
            "approximate",
            f"100 cases pass or fail, difference {gain}",
            lambda draw, gain=gain: inside(compare_paired(*paired_shares(draw, gain=gain)).ci95, gain),
        )
    yield Row("`cohen_kappa`", "approximate", "200 items, kappa 0.64", kappa_holds)
    yield from shares(clopper_pearson, "exact")
    yield Row(
        "`mcnemar_exact`",
        "exact",
        "100 cases, no difference: p > 0.05",
        lambda draw: mcnemar_exact(*discordant(draw)) > 0.05,
    )
    yield Row(
        "`mcnemar_mid_p`",
        "approximate",
        "100 cases, no difference: p > 0.05",
        lambda draw: mcnemar_mid_p(*discordant(draw)) > 0.05,
    )
    yield Row(
        "`sign_flip_test`",
        "exact",
        "100 cases, no difference, 999 flips: p > 0.05",
        lambda draw: sign_flip_test(draw.beta(4, 2, 100) - draw.beta(4, 2, 100), resamples=999).p_value > 0.05,
    )
    for share in (0.1, 0.5, 0.9):
        yield Row(
            "`BettingMean`",
            "anytime",
            f"pass rate {share}, checked after each of {LOOKS} cases",
            lambda draw, share=share: watched((draw.random(LOOKS) < share).astype(float), share),
        )
    yield Row(
        "`BettingMean`",
        "anytime",
        f"any score, checked after each of {LOOKS} cases",
        lambda draw: watched(draw.beta(4, 2, LOOKS), 2 / 3),
    )
    yield Row(
        "`BettingMean`",
        "anytime",
        f"one set of {LOOKS} cases in random order",
        lambda draw: watched(draw.permutation(FIXED), float(FIXED.mean())),
    )
    yield Row("`BettingMean`", "anytime", "50 conversations of 4, checked after each", watched_talks)


def discordant(draw):
    first, second = paired_shares(draw, gain=0.0)
    return int((second > first).sum()), int((second < first).sum())


def page(found) -> str:
    """Return the table of functions."""
    return "\n".join(
        [
            "| function | kind | setting | coverage |",
            "|---|---|---|--:|",
            *(f"| {row.name} | {row.kind} | {row.setting} | {share:.2%} |".replace("%", " %") for row, share in found),
        ]
    )


def grid(rows) -> str:
    """Return rates as a table with a row per shape and a column per number of cases."""
    rows = list(rows)
    sizes = sorted({row.n for row in rows})
    shapes = dict.fromkeys(row.shape for row in rows)
    rates = {(row.shape, row.n): row.rate for row in rows}
    lines = [f"| | {' | '.join(f'n = {n:,}' for n in sizes)} |", "|---|" + "--:|" * len(sizes)]
    for shape in shapes:
        cells = (f"{100 * rates[shape, n]:.1f} %" if (shape, n) in rates else "" for n in sizes)
        lines.append(f"| {shape} | {' | '.join(cells)} |")
    return "\n".join(lines)


def listed(rows) -> str:
    """Return rates as a list."""
    lines = ["| series or suite | cases | rate | simulations |", "|---|--:|--:|--:|"]
    lines += [f"| {row.shape} | {row.n:,} | {100 * row.rate:.1f} % | {row.simulations:,} |" for row in rows]
    return "\n".join(lines)


def powers(rows) -> str:
    lines = ["| | cases | power of `compare` | power if the variance is known |", "|---|--:|--:|--:|"]
    lines += [f"| {row.shape} | {row.n:,} | {100 * row.rate:.1f} % | {100 * known:.1f} % |" for row, known in rows]
    return "\n".join(lines)


SECTIONS = {
    "False verdicts": (
        'How often the verdict of `agentv compare --json` is "better" or "worse" if nothing changed: at most 5 %.',
        lambda: grid(verdict_rows()),
    ),
    "Power": (
        'How often a real gain is called "better", compared with a test that knows the variance. With fewer than 50 '
        "cases, or few conversations of unequal size, the distance is larger.",
        lambda: powers(power_rows()),
    ),
    "Intervals of means": (
        "How often the printed 95 % interval of a mean contains the true mean: at least 93 %.",
        lambda: grid(mean_rows()),
    ),
    "Intervals of differences": (
        "The same for the difference between two runs without a true difference.",
        lambda: grid(difference_rows()),
    ),
    "Trend": (
        "How often `agentv runs trend` reports a change: in at most 5 % of flat series, and in most that fall.",
        lambda: listed(trend_rows()),
    ),
    "Planned power": (
        "The power with the number of cases from `agentv plan`, which promises 80 %: 78 to 92 %. The number of cases "
        "is the mean of twenty pilots.",
        lambda: listed(plan_rows()),
    ),
    "Gates and early stopping": (
        "How often `--gate-on interval` and `--stop-when` decide wrongly, or an interval is right.",
        lambda: listed((*gate_rows(), *stop_rows())),
    ),
    "Functions": (
        f"Approximate methods aim at 95 %, exact and anytime-valid ones guarantee it. {RUNS:,} simulations each.",
        lambda: page([(row, row.coverage()) for row in rows()]),
    ),
}


def section(title) -> str:
    """Run the simulations of a section."""
    text, table = SECTIONS[title]
    return f"## {title}\n\n{text}\n\n{table()}"


def whole_page() -> str:
    """Run every simulation and return the page."""
    parts = [
        "# Coverage",
        "",
        "Simulated runs whose truth is known. `python tests/claim_pages.py coverage` repeats them with the same seeds "
        "and writes this page;",
        "`pytest -m slow tests/stats` checks it. False verdicts (300 simulations a cell, 100 with 1,000 cases) may "
        "exceed their nominal rate",
        "by two standard errors; intervals (1,000 or more) have to cover 93 %. See [Claims](claims.md) and the "
        "[reference](reference/stats.md).",
    ]
    with ProcessPoolExecutor(2) as pool:
        found = dict(zip(SECTIONS, pool.map(section, SECTIONS), strict=True))
    return "\n".join(parts) + "\n\n" + "\n\n".join(found.values()) + "\n"


def write():
    """Run every simulation and write the page."""
    PAGE.write_text(whole_page(), encoding="utf-8")
