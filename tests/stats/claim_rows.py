"""Claims about pooled baselines, errors, variants and sentences, simulated through the functions of `compare`."""

import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from cell_limits import at_least, at_most, coverage
from plan_rows import pass_or_fail_counts, pass_or_fail_paired

from agentv.comparison.error_bounds import ErrorBounds, ErroredCases, bound_errors
from agentv.comparison.part_comparison import adjusted_p_values
from agentv.extensions.noise.noise_estimate import noise_bound
from agentv.report.comparisons.verdict_text import sentence
from agentv.stats.distributions import Z95, normal_cdf, normal_quantile, t_quantile
from agentv.stats.paired_comparison import compare_paired

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
SEED = 3026
BASE = 0.7
NEW = "-"
"""There was no such claim before."""


class Claim(NamedTuple):
    """A claim: how often `holds(random)` is true, its nominal rate, and the limits for a number of simulations.

    `holds` may return two values: the claim by the rule before, and now. `before` is text if there is only one.
    """

    group: str
    setting: str
    nominal: str
    before: str | None
    holds: Callable
    limits: Callable
    simulations: int = 1_000

    def rates(self, simulations=None):
        """Return how often the claim was true before, None if that is not simulated, and how often it is now."""
        random = np.random.default_rng(SEED)
        values = np.array([self.holds(random) for _ in range(simulations or self.simulations)], dtype=float)
        return (None, float(values.mean())) if values.ndim == 1 else tuple(values.mean(axis=0).tolist())

    def is_within(self, rate, simulations=None):
        low, high = self.limits(simulations or self.simulations)
        return low <= rate <= high


def false_verdicts(simulations):
    return at_most(0.05, simulations)


def false_betters(simulations):
    return at_most(0.025, simulations)


def any_rate(simulations):
    return 0.0, 1.0


DIFFICULTY = {"U-shaped": (0.7, 0.3), "unimodal": (7, 3), "saturated": (18, 2)}
"""The parameters of the beta distribution of pass rates."""


def raised(chances, gain):
    """Add the gain to the pass rates on average: as much to each case as fits below 1."""
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, chances + middle).mean() - chances.mean() < gain else (low, middle)
    return np.minimum(1, chances + high)


def pooled_sides(random, difficulty, n, runs, gain=0.0, swapped=0.0):
    """Draw the results of baseline runs, by run and case, and of a candidate; `swapped` cases change at random."""
    chances = random.beta(*DIFFICULTY[difficulty], n)
    after = raised(chances, gain) if gain else chances
    after = np.where(random.random(n) < swapped, random.beta(*DIFFICULTY[difficulty], n), after)
    return (random.random((runs, n)) < chances).astype(float), (random.random(n) < after).astype(float)


def pooled_answers(random, setting, **options):
    """Return the verdict against one baseline run, which is the rule before, and against all of them."""
    baseline, candidate = pooled_sides(random, *setting, **options)
    pooled = compare_paired(baseline.mean(axis=0), candidate)
    return pass_or_fail_paired(baseline[0], candidate).answer, pooled.answer


@cache
def known_variance_power(setting, gain=0.1, draws=4_000):
    """Return the power of a test that knows the variance of the mean difference.

    Without a model of the cases, the mean difference is the best unbiased estimate of the change: the results of each
    case are binomial, and Lehmann and Scheffé's theorem applies.
    """
    random = np.random.default_rng(SEED)
    sides = (pooled_sides(random, *setting, gain=gain) for _ in range(draws))
    deltas = np.array([candidate.mean() - baseline.mean() for baseline, candidate in sides])
    return float((deltas > Z95 * deltas.std()).mean())


def estimated_variance_power(known, n):
    """Return the power of a test that has to estimate the variance from n cases, if it has power `known` with it.

    With a known variance the power is Φ(δ - z). Student's quantile t replaces z, and the estimate adds t²/2d to the
    variance of the statistic: Φ((δ - t) / √(1 + t²/2d)) with d = n - 1. Johnson & Welch (1940), Biometrika 31:362. With
    100 cases that is 1 point less. No test without a model of the cases has more, so no limit may be higher.
    """
    t = t_quantile(0.975, n - 1)
    return normal_cdf((normal_quantile(known) + Z95 - t) / math.sqrt(1 + t**2 / (2 * n - 2)))


POWER = {
    ("U-shaped", 100, 1): 0.57,
    ("U-shaped", 100, 5): 0.79,
    ("U-shaped", 100, 10): 0.83,
    ("U-shaped", 200, 1): 0.88,
    ("unimodal", 100, 1): 0.36,
    ("unimodal", 100, 5): 0.68,
    ("unimodal", 100, 10): 0.68,
    ("unimodal", 200, 1): 0.71,
}
"""The power that was the aim. A lower one is enough if no test can have more; see `estimated_variance_power`."""
NULLS = [
    (difficulty, n, runs) for difficulty in DIFFICULTY for n, runs in ((20, 5), (50, 2), (100, 5), (100, 10), (300, 5))
]


def pool_claims(power=POWER) -> Iterator[Claim]:
    """Yield the power of a candidate against pooled runs, and false verdicts."""
    for setting, aim in power.items():
        most = known_variance_power(setting)
        least = min(aim, estimated_variance_power(most, setting[1]))
        yield Claim(
            "10 points shown, pooled baseline", "{}, {} cases, {} runs".format(*setting),
            f"≥ {100 * least:.0f} % (aim {100 * aim:.0f}, known variance {100 * most:.0f})", None,
            lambda random, setting=setting: [
                answer == "better" for answer in pooled_answers(random, setting, gain=0.1)
            ],
            partial(at_least, least), 600,
        )  # fmt: skip
    for swapped, what in ((0.0, "nothing changed"), (0.3, "30 % of cases changed, the mean did not")):
        for setting in NULLS:
            yield Claim(
                f"False verdict, pooled baseline, {what}", "{}, {} cases, {} runs".format(*setting), "≤ 5 %", None,
                lambda random, setting=setting, swapped=swapped: [
                    answer != "cannot tell" for answer in pooled_answers(random, setting, swapped=swapped)
                ],
                false_verdicts,
            )  # fmt: skip


def errored_sides(random, n, gain, rate, hidden=0.0):
    """Draw scores with a correlation of 0.3 and errors at the same rate; `hidden` of B's failures end as errors."""
    size = 1 / 0.3 - 1
    chances = random.beta(BASE * size, (1 - BASE) * size, n)
    after = chances + (1 - chances) * gain / (1 - BASE)
    scores = [(random.random(n) < each).astype(float) for each in (chances, after)]
    errors = [random.random(n) < rate for _ in scores]
    errors[1] |= (scores[1] == 0) & (random.random(n) < hidden)
    return [np.where(error, np.nan, score) for error, score in zip(errors, scores, strict=True)]


def errored_answer(sides):
    """Return the verdict of `compare`, and whether errors leave it open, which is exit code 5."""
    failed = [np.isnan(side).astype(float) for side in sides]
    answer = answer_without_errors(sides)
    cases = ErroredCases(sides, failed, None)
    if not any(cases.only):
        return answer, False
    return bounded_answer(answer, bound_errors(cases, compare_paired(*failed)))


def answer_without_errors(sides):
    both = ~np.isnan(sides[0]) & ~np.isnan(sides[1])
    return pass_or_fail_paired(sides[0][both], sides[1][both]).answer


def bounded_answer(answer, bounds):
    return answer if bounds.supports(answer) else "cannot tell", bounds.leaves_open(answer)


def masked_claim(random, n, part=0.1):
    """Return whether B, which hides failures in this fraction of cases, is called better than an equal A with as many
    errors at random, and whether the tipping point is "even if all".
    """
    sides = errored_sides(random, n, 0.0, 0.0, part / (1 - BASE))
    sides[0] = np.where(random.random(n) < part, np.nan, sides[0])
    failed = [np.isnan(side).astype(float) for side in sides]
    cases, answer = ErroredCases(sides, failed, None), answer_without_errors(sides)
    if answer != "better" or not bound_errors(cases, compare_paired(*failed)).supports(answer):
        return False, False
    point = cases.tipping_point(answer)
    return True, point.most == point.errors


def answer_with_every_error(sides):
    """The rule before: every error of one run only counts against the claim, and not just their excess."""
    answer, is_known = answer_without_errors(sides), ~(np.isnan(sides[0]) & np.isnan(sides[1]))
    low, high = ([np.nan_to_num(side[is_known], nan=worst) for side in sides] for worst in (0.0, 1.0))
    against, in_favour = pass_or_fail_paired(high[0], low[1]), pass_or_fail_paired(low[0], high[1])
    bounds = ErrorBounds(only=(0, 0), excess=0, rates=against, against=against, in_favour=in_favour)
    return bounded_answer(answer, bounds)


def errored_answers(sides):
    return answer_with_every_error(sides), errored_answer(sides)


RATES = {0.0: (0.88, 0.005), 0.01: (0.84, 0.03), 0.02: (0.8, 0.05), 0.05: (0.7, 0.1)}
"""The least power and the most undecided comparisons of equal runs, by error rate."""


def error_claims(n=300) -> Iterator[Claim]:
    """Yield how errors at the same rate on both sides affect verdicts, and failures that end as errors."""
    for rate, (least, most) in RATES.items():
        setting = f"{n} cases, {100 * rate:g} % errors on both sides"
        yield Claim(
            "10 points shown, with errors", setting, f"≥ {100 * least:.0f} %", None,
            lambda random, rate=rate: [
                answer == "better" for answer, _ in errored_answers(errored_sides(random, n, 0.1, rate))
            ],
            partial(at_least, least), 600,
        )  # fmt: skip
        yield Claim(
            "Equal runs exit with 5", setting, f"≤ {100 * most:g} %", None,
            lambda random, rate=rate: [
                is_open for _, is_open in errored_answers(errored_sides(random, n, 0.0, rate))
            ],
            partial(at_most, most), 600,
        )  # fmt: skip
    for hidden in (0.05, 0.1, 0.2, 0.5, 0.8):
        for rate in (0.0, 0.02):
            extra = f", and {100 * rate:g} % of all jobs" if rate else ""
            yield Claim(
                'False "better", failures end as errors', f"{n} cases, {100 * hidden:g} % of B's failures{extra}",
                "≤ 2.5 %", None,
                lambda random, rate=rate, hidden=hidden: [
                    answer == "better"
                    for answer, _ in errored_answers(errored_sides(random, n, 0.0, rate, hidden))
                ],
                false_betters, 600,
            )  # fmt: skip
    for cases in (300, 1_000):
        setting = f"{cases:,} cases, 10 % errors on both sides"
        for place, group, nominal, limits in (
            (0, 'False "better", errors of B hide failures and those of A are random', "not bounded", any_rate),
            (1, 'The same, "even if all of its errors would have failed"', "≤ 2.5 %", false_betters),
        ):
            yield Claim(
                group, setting, nominal, NEW,
                lambda random, place=place, cases=cases: masked_claim(random, cases)[place], limits, 2_000,
            )  # fmt: skip


def variants(random, count, gain, n=200):
    """Draw a baseline and variants of which the last one is better by the gain."""
    chances = random.beta(BASE, 1 - BASE, n)
    return [(random.random(n) < each).astype(float) for each in (*[chances] * count, raised(chances, gain))]


def variant_answers(random, count, gain):
    """Return the verdicts about each variant against the baseline, with all pairs adjusted as before, and as now."""
    sides = variants(random, count - 1, gain)
    first = [pass_or_fail_paired(sides[0], side) for side in sides[1:]]
    wins = np.array(sides[1:]) @ (1 - np.array(sides[1:]).T)  # of each variant against each other
    others = [
        pass_or_fail_counts(int(wins[i, j]), int(wins[j, i]), len(sides[0]))
        for i in range(count - 1)
        for j in range(i + 1, count - 1)
    ]
    return [
        [paired.conclude(p) for paired, p in zip(first, adjusted_p_values(pairs), strict=False)]
        for pairs in ([*first, *others], first)
    ]


VARIANTS = {5: 0.56, 10: 0.45, 20: 0.38}


def variant_claims() -> Iterator[Claim]:
    """Yield the power for one better variant of several, and how often an equal one is called better or worse."""
    for count, least in VARIANTS.items():
        yield Claim(
            "Variant shown, p adjusted for the baseline only", f"one of {count} is better by 0.1, 200 cases",
            f"≥ {100 * least:.0f} %", None,
            lambda random, count=count: [answers[-1] == "better" for answers in variant_answers(random, count, 0.1)],
            partial(at_least, least), 500,
        )  # fmt: skip
        yield Claim(
            "Any false verdict about a variant", f"{count} equal variants, 200 cases", "≤ 5 %", None,
            lambda random, count=count: [
                set(answers) != {"cannot tell"} for answers in variant_answers(random, count, 1e-9)
            ],
            false_verdicts, 500,
        )  # fmt: skip


def judged_sides(random, n, gain):
    """Draw scores of a judge: each case improves by about the gain."""
    before = random.uniform(0.4, 0.8, n)
    return before, np.clip(before + gain + random.normal(0, 0.05, n), 0, 1)


def part_sides(random, parts=8, n=100):
    scores = (random.random((2, parts, n)) < random.beta(BASE, 1 - BASE, (parts, n))).astype(float)
    return [compare_paired(scores[0, part], scores[1, part]) for part in range(parts)]


def is_shown_without_0(paired):
    return paired.ci95[0] > 0 or paired.ci95[1] < 0


def noise_holds(random, n):
    """Return whether the difference of two runs is within the noise floor that two others give, before and now."""
    chances = random.beta(BASE, 1 - BASE, n)
    first, second, third, fourth = ((random.random(n) < chances).astype(float) for _ in range(4))
    floor = math.sqrt(float(np.square(first - second).sum())) / n
    largest, delta = float(np.abs(first - second).max()), abs(float(third.mean() - fourth.mean()))
    return [delta <= bound + 1e-12 for bound in (Z95 * floor, noise_bound(floor, largest, n))]


def improvement_is_printed(random, gain):
    """Return whether the verdict is "better", the only such sentence before, and whether any sentence is printed."""
    paired = compare_paired(*judged_sides(random, 20, gain))
    return paired.answer == "better", re.search("improved|is better", sentence(paired)) is not None


def narrow_claim(random, n, gain):
    """Return whether "No difference larger than X" is printed and wrong."""
    chances = np.full(n, 0.95)
    sides = [(random.random(n) < each).astype(float) for each in (chances, chances + gain)]
    before = np.where(random.random(n) < 0.9, sides[0], sides[1])
    text = sentence(compare_paired(before, sides[1]))
    return text.startswith("No difference") and abs(0.9 * gain) > float(text.split()[4].rstrip("."))


def sentence_claims() -> Iterator[Claim]:
    """Yield how often sentences are printed, and how often they are wrong."""
    for gain, title, nominal, limits in (
        (0.1, '"n of 20 cases improved" or better, cases improve by 0.1', "≥ 95 %", partial(at_least, 0.95)),
        (0.0, '"n of 20 cases improved" or better, nothing changed', "≤ 5 %", false_verdicts),
    ):
        yield Claim(
            title, "20 cases, scores of a judge", nominal, None,
            lambda random, gain=gain: improvement_is_printed(random, gain), limits,
        )  # fmt: skip
    yield Claim(
        "A row of a table excludes 0 (exploratory)", "8 tags of 100 equal cases", NEW, NEW,
        lambda random: any(map(is_shown_without_0, part_sides(random))), any_rate,
    )  # fmt: skip
    yield Claim(
        "A row of a table has an adjusted p below 0.05", "8 tags of 100 equal cases", "≤ 5 %", NEW,
        lambda random: any(p < 0.05 for p in adjusted_p_values(part_sides(random))), false_verdicts,
    )  # fmt: skip
    for n in (20, 50, 200):
        yield Claim(
            "Two more runs differ by less than the noise floor", f"{n} cases (fewer than 20: too few)", "95 %", None,
            lambda random, n=n: noise_holds(random, n), coverage, 4_000,
        )  # fmt: skip
    for n, gain in ((5_000, 0.0), (5_000, 0.005), (20_000, 0.002)):
        yield Claim(
            '"No difference larger than X" is wrong', f"{n:,} cases, true difference {0.9 * gain:g}", "≤ 5 %", NEW,
            lambda random, n=n, gain=gain: narrow_claim(random, n, gain), false_verdicts, 300,
        )  # fmt: skip


def claims() -> Iterator[Claim]:
    """Yield all claims."""
    yield from pool_claims()
    yield from error_claims()
    yield from variant_claims()
    yield from sentence_claims()


def measure(claim):
    """Return the rates of a claim, by its place among all claims, so that worker processes can find it."""
    return list(claims())[claim].rates()


HEAD = f"""# Claims

What `agentv compare` and `agentv noise` claim, in simulated runs whose truth is known. `before` is the older rule on
the same simulated runs: one baseline run, every error counted against a claim, p-values adjusted for all pairs of
variants, no sentence but "better", and a noise floor without a correction for few cases.
`python tests/claim_pages.py claims` repeats the simulations and rewrites this page; `pytest -m slow
tests/stats/test_claims.py` checks it, and repeats cells [through the command line](command-claims.md). The seed is
{SEED}. A rate may miss its nominal value by two standard errors of its simulation; intervals have to cover 93 %.
[Coverage](coverage.md) has the intervals, `trend`, `plan` and gates.

`known variance` is the power of a test that knows the variance of the mean difference. On unimodal suites, five pooled
runs cannot show 10 points in 68 %, which was the aim: even that test does not. Without a model of the cases, the mean
difference is the best unbiased estimate (Lehmann and Scheffé), so weights or a regression on the pool gain nothing. The
nominal power is the aim, or else that of a test that has to estimate the variance, 1 point below.

| claim | setting | nominal | before | now | simulations |
|---|---|--:|--:|--:|--:|
"""


def page(rows) -> str:
    """Return the claims with their rates as a page."""
    lines = []
    for claim, (before, rate) in rows:
        text = claim.before or f"{100 * before:.1f} %"
        lines.append(
            f"| {claim.group} | {claim.setting} | {claim.nominal} | {text} | {100 * rate:.1f} % "
            f"| {claim.simulations:,} |"
        )
    return HEAD + "".join(f"{line}\n" for line in lines)


def write():
    """Run every simulation and write the page."""
    everything = list(claims())
    with ProcessPoolExecutor(2) as pool:
        PAGE.write_text(page(zip(everything, pool.map(measure, range(len(everything))), strict=True)), encoding="utf-8")
