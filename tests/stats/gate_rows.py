"""Simulated runs with gates and early stopping: how often a decision is wrong, and how often intervals are right."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from cell_limits import at_least, at_most
from trend_rows import RateRow

from agentv.engine.gates.exit_code import judge
from agentv.engine.gates.gate_options import Gates
from agentv.errors import EXIT_FINDINGS
from agentv.runs.summary import SummaryBuilder
from agentv.stats.sequential import BettingMean
from made_results import failed, scored

RUNS = 1_000
LIMIT = 0.8


class Shape(NamedTuple):
    """A run whose true mean is at the limit; a fraction of the failures or of the passes ends in errors instead."""

    name: str
    n: int
    trials: int = 1
    turns: int = 1
    lost_failures: float = 0.0
    lost_passes: float = 0.0
    scores: str = "pass or fail"


GATED = (
    *(Shape("pass or fail", n) for n in (5, 20, 100, 500)),
    Shape("five levels", 30, scores="five levels"),
    Shape("3 trials", 30, trials=3),
    Shape("conversations of 5", 100, turns=5),
    Shape("half of the failures time out", 100, lost_failures=0.5),
    Shape("tenth of the passes time out", 100, lost_passes=0.1),
)


def results(shape, draw):
    """Yield the results of a run whose true mean is 0.8."""
    groups = shape.n // shape.turns
    easy = (
        np.repeat(draw.beta(8, 2, groups), shape.turns) if shape.trials * shape.turns > 1 else np.full(shape.n, LIMIT)
    )
    for case in range(shape.n):
        for trial in range(1, shape.trials + 1):
            known = {"eval_id": str(case), "trial": trial}
            if shape.turns > 1:
                known["conversation_id"] = str(case // shape.turns)
            levels = 4 if shape.scores == "five levels" else 1
            score = float(draw.binomial(levels, easy[case])) / levels
            is_lost = draw.random() < (shape.lost_passes if score == 1 else shape.lost_failures)
            yield failed(**known) if is_lost else scored(score, **known)


def gate_rows(runs=RUNS, shapes=GATED) -> Iterator[RateRow]:
    """Yield how often a gate by interval fails a mean that is at the limit, and passes one just below it."""
    below = Gates(threshold=LIMIT + 1e-9, gate_on="interval", max_errors=1.0, errors_are_share=True)
    at = Gates(threshold=LIMIT, gate_on="interval", max_errors=1.0, errors_are_share=True)
    for shape in shapes:
        draw = np.random.default_rng(3026)
        failures = passes = 0
        for _ in range(runs):
            summary = SummaryBuilder("r", shape.trials).add_all(results(shape, draw)).build()
            failures += judge(summary, at, None, {}).exit_code == EXIT_FINDINGS
            passes += judge(summary, below, None, {}).exit_code == 0
        yield RateRow(f"{shape.name}, a good run fails", shape.n, failures / runs, runs, at_most(0.025, runs))
        yield RateRow(f"{shape.name}, a bad run passes", shape.n, passes / runs, runs, at_most(0.025, runs))


def stop_rows(runs=RUNS, sizes=(40, 400)) -> Iterator[RateRow]:
    """Yield how often early stopping decides a true claim about all cases, and how often the interval is right."""
    for n in sizes:
        for share in (0.5, 0.9):
            draw = np.random.default_rng(3026)
            cases = np.repeat((1.0, 0.0), (round(n * share), n - round(n * share)))
            wrong = right = 0
            for _ in range(runs):
                order = draw.permutation(cases).tolist()
                wrong += _stopped(order, share).decided is not None
                low, high = _stopped(order, share - 0.1).interval
                right += low - 1e-4 <= share <= high + 1e-4
            name = f"pass rate {share} of all cases"
            yield RateRow(f"{name}, wrongly decided", n, wrong / runs, runs, at_most(0.05, runs))
            yield RateRow(f"{name}, interval after stopping", n, right / runs, runs, at_least(0.95, runs))


def _stopped(scores, claim):
    bet = BettingMean(claim, population=len(scores))
    for score in scores:
        bet.add(score)
        if bet.decided:
            break
    return bet


if __name__ == "__main__":
    for row in (*gate_rows(), *stop_rows()):
        print(row)
