"""Drawn cases of two suites that a small model answered."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from cell_limits import coverage

from agentv.stats.case_draw import EQUAL_PART, draw_probabilities, draw_units, expected_spread
from agentv.stats.paired_comparison import compare_paired, compare_weighted

RECORDS = Path(__file__).parent / "recorded_scores.json"
PAGE = Path(__file__).parents[2] / "docs" / "recorded-draws.md"
SEED = 3030
DRAWS = 1_000
BUDGET = 20


class RecordedRow(NamedTuple):
    """Draws from one candidate run: the true difference, coverage and error of drawn and of random cases."""

    suite: str
    prompt: str
    cases: int
    truth: float
    coverage: tuple[float, float]
    errors: tuple[float, float]
    draws: int

    @property
    def gain(self):
        """How many random cases one drawn case is worth: the ratio of the squared errors."""
        return (self.errors[1] / self.errors[0]) ** 2

    @property
    def is_within_limits(self):
        """Intervals cover the full run's difference. No weight exceeds 1 / EQUAL_PART times that of a random case."""
        return self.coverage[0] >= coverage(self.draws)[0] and self.gain >= EQUAL_PART


def recorded_rows(draws=DRAWS) -> Iterator[RecordedRow]:
    """Yield every candidate run, with all runs of the plain prompt as its history and baseline."""
    for suite, prompts in json.loads(RECORDS.read_text(encoding="utf-8"))["scores"].items():
        history = np.array(prompts["plain"], dtype=float).T
        probabilities = draw_probabilities(expected_spread(history.tolist()), np.ones(len(history)), BUDGET)
        for prompt in sorted(set(prompts) - {"plain"}):
            for scores in np.array(prompts[prompt], dtype=float):
                yield drawn_row((suite, prompt), history.mean(axis=1), scores, probabilities, draws)


def drawn_row(names, before, after, probabilities, draws):
    random, n = np.random.default_rng(SEED), len(before)
    truth, held, squares = float((after - before).mean()), np.zeros(2), np.zeros(2)
    for _ in range(draws):
        cases = draw_units(probabilities, random.permutation(n), random.random())
        sample = random.permutation(n)[:BUDGET]
        pair = (
            compare_weighted(before[cases], after[cases], 1 / probabilities[cases]),
            compare_paired(before[sample], after[sample], test=False),
        )
        held += [paired.ci95[0] <= truth <= paired.ci95[1] for paired in pair]
        squares += [(paired.mean_delta - truth) ** 2 for paired in pair]
    errors = np.sqrt(squares / draws)
    return RecordedRow(*names, n, truth, tuple((held / draws).tolist()), tuple(errors.tolist()), draws)


HEAD = """# Drawn cases of a real model

`--cases-budget {budget}` on two suites of {cases} cases that {model}
answered on {date}: words (opposites, plurals and past tenses) and facts (capitals and others), scored by
`icontains`. The plain question ran {runs} times and is the history and the baseline. The candidates are the system
prompts "{word}" and "{sentence}", with two runs each. The truth is the
difference between the full candidate run and the pooled baseline.

Each row has {draws:,} draws with seed {seed}. `error` is the root mean square error of the estimate, and `worth` the
number of random cases that one drawn case replaces: {least:.2f} to {most:.2f}, so drawing by history neither gains nor
loses much here, unlike on [saturated suites](draw-claims.md). Intervals cover more than 95 %, because they are about
all cases like these, and not only these.

`python tests/claim_pages.py recorded-draws` rewrites this page from the scores in `tests/stats/recorded_scores.json`.

| suite, prompt | full run | drawn: coverage | error | random: coverage | error | worth |
|---|--:|--:|--:|--:|--:|--:|
"""


def page(rows) -> str:
    """Return the rows as a page."""
    rows, data = list(rows), json.loads(RECORDS.read_text(encoding="utf-8"))
    worth = [row.gain for row in rows]
    head = HEAD.format(
        budget=BUDGET, draws=DRAWS, seed=SEED, cases=rows[0].cases, model=data["model"], date=data["date"],
        runs=len(next(iter(data["scores"].values()))["plain"]), word=data["prompts"]["word"],
        sentence=data["prompts"]["sentence"], least=min(worth), most=max(worth),
    )  # fmt: skip
    lines = []
    lines += [
        f"| {row.suite}, {row.prompt} | {row.truth:+.3f} | {100 * row.coverage[0]:.1f} % | {row.errors[0]:.3f} "
        f"| {100 * row.coverage[1]:.1f} % | {row.errors[1]:.3f} | {row.gain:.2f} |"
        for row in rows
    ]
    return head + "".join(f"{line}\n" for line in lines)


def write():
    """Run every simulation and write the page."""
    PAGE.write_text(page(recorded_rows()), encoding="utf-8")
