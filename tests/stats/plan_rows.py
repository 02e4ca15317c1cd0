"""The power of comparisons with the number of cases that `agentv plan` recommends, by simulation."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from cell_limits import range_of
from trend_rows import RateRow

from agentv.comparison.sample_size import PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.model.result import Result
from agentv.runs.record import encode_record
from agentv.stats.paired_comparison import compare_paired
from agentv.stats.power import non_inferiority

SEED = 3026
COMPARISONS = 2_000
PER_PILOT = 100
PILOT = 1_500


class Setting(NamedTuple):
    """A population of cases. `draw(random, n, gain, trials)` returns the scores of n cases in two runs that differ by
    the gain, by trial and case. The pilot runs differ by `pilot_gain`. With an `end`, the plan is from one run: the
    lower end (0) or the upper end (1) of the range over the unknown correlation.
    """

    name: str
    draw: Callable
    difference: float = 0.05
    trials: int = 1
    turns: int = 1
    pilot_gain: float = 0.0
    end: int | None = None


def flips(churn):
    """Cases pass or fail as before, but for `churn` of them, and for a gain by cases that passed in no run."""

    def draw(random, n, gain, trials):
        before = random.random(n) < 0.7
        other = random.random(n) < churn / 2 / 0.3
        # The same fraction is lost and won, and `gain` is won in addition.
        lost = before & (random.random(n) < churn / 2 / 0.7)
        won = ~before & (other | (random.random(n) < gain / 0.3 / (1 - churn / 2 / 0.3)))
        after = (before & ~lost) | won
        return [np.tile(side.astype(float), (trials, 1)) for side in (before, after)]

    return draw


def luck(low, high):
    """Every case has its own pass rate, which rises by the gain; trials are independent."""

    def draw(random, n, gain, trials):
        chance = random.uniform(low, high, n)
        return [(random.random((trials, n)) < chance + each).astype(float) for each in (0.0, gain)]

    return draw


def levels(random, n, gain, trials):
    """Five levels, and every case is as much easier."""
    chance = random.beta(3, 2, n) * 0.85
    return [random.binomial(4, chance + each, (trials, n)) / 4 for each in (0.0, gain)]


def amounts(random, n, gain, trials):
    """Any score, with noise."""
    easy = random.uniform(0.3, 0.7, n)
    return [np.clip(easy + each + random.normal(0, 0.1, (trials, n)), 0, 1) for each in (0.0, gain)]


def conversations(random, n, gain, trials):
    """Five turns share a pass rate, and half of their luck in both runs."""
    groups = -(-n // 5)
    chance = np.repeat(random.uniform(0.2, 0.75, groups), 5)[:n]
    sides = []
    for each in (0.0, gain):
        common = np.repeat(random.random((trials, groups)), 5, axis=1)[:, :n]
        own = random.random((trials, n))
        sides.append((np.where(random.random((trials, n)) < 0.5, common, own) < chance + each).astype(float))
    return sides


SETTINGS = (
    Setting("pass or fail, pilot runs equal", flips(0.0)),
    Setting("pass or fail, pilot runs nearly equal", flips(0.01)),
    Setting("pass or fail, 10 % change anyway", flips(0.1)),
    Setting("pass or fail, difference 0.2", flips(0.05), 0.2),
    Setting("pass or fail, pilot has the difference", flips(0.1), 0.1, pilot_gain=0.1),
    Setting("pass or fail by luck", luck(0.3, 0.8)),
    Setting("pass or fail by luck, high pass rate", luck(0.85, 0.95)),
    Setting("pass or fail by luck, 3 trials", luck(0.3, 0.8), trials=3),
    Setting("pass or fail by luck, 10 trials", luck(0.1, 0.9), 0.1, trials=10),
    Setting("five levels", levels),
    Setting("five levels, 3 trials", levels, trials=3),
    Setting("any score", amounts),
    Setting("any score, difference 0.02", amounts, 0.02),
    Setting("conversations of 5", conversations, 0.1, turns=5),
    Setting("conversations of 5, 3 trials", conversations, 0.1, trials=3, turns=5),
    Setting("one pilot run, no luck, lower end (a review measured 100 % before)", flips(0.0), end=0),
    Setting("one pilot run, only luck, upper end (a review measured 64 % before)", luck(0.6, 0.6), end=1),
)

MARGIN = 0.05
MARGINS = (
    Setting("margin, pass or fail, 1 % change anyway", flips(0.01)),
    Setting("margin, pass or fail, 10 % change anyway", flips(0.1)),
    Setting("margin, pass or fail by luck, 3 trials", luck(0.3, 0.8), trials=3),
    Setting("margin, five levels", levels),
)


def pilot(setting, folder, random):
    """Write the pilot runs and return their scores."""
    runs = []
    for name, sides in zip("ab", setting.draw(random, PILOT, setting.pilot_gain, setting.trials), strict=True):
        path = Path(folder) / f"{name}.jsonl"
        path.write_bytes(b"".join(encode_record(result) for result in results(sides, setting.turns)))
        runs.append(RunScores(path, name))
    return runs


def results(scores, turns):
    """Yield the results of a run from its scores, by trial and case."""
    known = {"timestamp": "2026-01-02T03:04:05Z", "run_id": "r", "dataset": "d", "dataset_path": "d.jsonl"}
    for trial, row in enumerate(scores.tolist(), 1):
        for case, score in enumerate(row):
            talk = str(case // turns) if turns > 1 else None
            yield Result(
                eval_id=str(case), target="t", trial=trial, status="ok", score=score, verdict="pass",
                conversation_id=talk, **known,
            )  # fmt: skip


def planned(setting, random, **goal):
    """Return the number of cases that `agentv plan` recommends for the difference of a setting, or for another goal."""
    options = PlanOptions(trials=(setting.trials,), **(goal or {"differences": (setting.difference,)}))
    with TemporaryDirectory() as folder:
        runs = pilot(setting, folder, random)
        [need] = plan(runs if setting.end is None else runs[:1], options).needs
    assert need.trials == setting.trials
    return need.cases if setting.end is None else need.cases_range[setting.end]


@cache
def pass_or_fail_counts(wins, losses, n):
    before = np.r_[np.zeros(wins), np.ones(losses), np.ones(n - wins - losses)]
    after = np.r_[np.ones(wins), np.zeros(losses), np.ones(n - wins - losses)]
    return compare_paired(before, after)


def pass_or_fail_paired(before, after):
    """Compare scores of 0 and 1. Interval, test and verdict depend on three numbers only, so they are computed once."""
    return pass_or_fail_counts(int((after > before).sum()), int((after < before).sum()), len(before))


def compared(setting, n, gain, random):
    """Draw the sides of a comparison, with trials averaged, and their clusters."""
    before, after = (side.mean(axis=0) for side in setting.draw(random, n, gain, setting.trials))
    return before, after, np.arange(n) // setting.turns if setting.turns > 1 else None


def is_shown_better(setting, n, random):
    """Return whether a comparison shows the difference."""
    before, after, clusters = compared(setting, n, setting.difference, random)
    if setting.turns == 1 and np.isin([before, after], (0.0, 1.0)).all():
        return pass_or_fail_paired(before, after).answer == "better"
    return compare_paired(before, after, clusters).answer == "better"


def is_shown_not_worse(setting, n, random):
    """Return whether a comparison of two equally good runs shows that the second is worse by less than the margin."""
    paired = compare_paired(*compared(setting, n, 0.0, random), test=False)
    return non_inferiority(paired.estimate, MARGIN).outcome == "shown"


def plan_rows(comparisons=COMPARISONS, settings=SETTINGS, margins=MARGINS) -> Iterator[RateRow]:
    """Yield the power with the planned number of cases, which should be 80 %, over several pilots."""
    for setting in (*settings, *margins):
        random = np.random.default_rng(SEED)
        is_margin = setting in margins
        is_shown = is_shown_not_worse if is_margin else is_shown_better
        plans, successes = [], 0
        for _ in range(comparisons // PER_PILOT):
            plans.append(planned(setting, random, **({"margin": MARGIN} if is_margin else {})))
            successes += sum(is_shown(setting, plans[-1], random) for _ in range(PER_PILOT))
        yield RateRow(
            setting.name, round(np.mean(plans)), successes / comparisons, comparisons, range_of(0.78, 0.92, comparisons)
        )


if __name__ == "__main__":
    for row in plan_rows():
        print(row)
