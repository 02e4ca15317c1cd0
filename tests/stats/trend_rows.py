"""Simulated series of runs: how often `runs trend` reports a change in a flat one, and how soon it finds a real one."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from cell_limits import at_least, at_most

from agentv.stats.level_changes import RunValues, change_points

SERIES = 400


class RateRow(NamedTuple):
    """How often something happened in simulations, and the limits of that rate."""

    shape: str
    n: int
    rate: float
    simulations: int
    limits: tuple[float, float]

    @property
    def is_within_limits(self):
        return self.limits[0] <= self.rate <= self.limits[1]


class Shape(NamedTuple):
    """A series of runs on the same cases. `fall` is subtracted from run `at` on; `trials` repeats over the runs."""

    name: str
    n: int
    runs: int
    scores: str = "pass or fail"
    trials: tuple[int, ...] = (1,)
    replaced: float = 0.0
    errors: float = 0.0
    turns: int = 1
    fall: float = 0.0
    at: int = 0


FLAT = (
    Shape("pass or fail", 10, 30),
    Shape("pass or fail", 30, 50),
    Shape("pass or fail", 200, 12),
    Shape("pass or fail, 2 runs", 50, 2),
    Shape("rare failures", 50, 30, "rare failures"),
    Shape("five levels", 30, 20, "five levels"),
    Shape("5 % break badly", 10, 20, "5 % break badly"),
    Shape("5 % break badly", 50, 20, "5 % break badly"),
    Shape("any score", 20, 20, "any score"),
    Shape("tenth of the cases replaced in each run", 50, 20, replaced=0.1),
    Shape("1, 10 and 3 trials in turn", 40, 15, trials=(1, 10, 3)),
    Shape("rare failures, 10 trials and 1 in turn", 40, 15, "rare failures", trials=(10, 1)),
    Shape("10 % errors", 60, 15, errors=0.1),
    Shape("conversations of 5", 60, 12, turns=5),
    Shape("conversations of 5, 3 trials, 10 % errors", 60, 8, trials=(3,), errors=0.1, turns=5),
)
FALLS = (
    Shape("falls by 0.1 at run 4, found by run 7", 200, 7, fall=0.1, at=3),
    Shape("falls by 0.1 at run 11, found by run 14", 200, 14, fall=0.1, at=10),
    Shape("five levels fall by 0.1 at run 2, found by run 3", 200, 3, "five levels", fall=0.1, at=1),
)


def simulated(shape, draw):
    """Return the runs of a series, and the clusters of their cases."""
    spare = int(shape.n * (1 + shape.replaced * shape.runs * 1.5))
    easy = draw.beta(*{"rare failures": (60, 1), "5 % break badly": (1, 1)}.get(shape.scores, (4, 1)), spare)
    ids, unused, runs = np.arange(shape.n), shape.n, []
    for number in range(shape.runs):
        new = np.flatnonzero(draw.random(shape.n) < shape.replaced)[: spare - unused] if number else np.arange(0)
        ids[new] = np.arange(unused, unused + len(new))
        unused += len(new)
        fall = shape.fall if shape.fall and number >= shape.at else 0.0
        size = shape.trials[number % len(shape.trials)], shape.n
        scores = drawn_scores(shape, np.clip(easy[ids] - fall, 0, 1), size, draw)
        known = draw.random(size) >= shape.errors
        runs.append(RunValues(np.broadcast_to(ids, size)[known], scores[known], ids[~known.any(axis=0)]))
    return runs, np.arange(spare) // shape.turns if shape.turns > 1 else None


def drawn_scores(shape, chances, size, draw):
    if shape.scores == "five levels":
        return draw.binomial(4, chances, size) / 4
    if shape.scores == "5 % break badly":
        return 1 - (draw.random(size) < 0.05) * draw.beta(5, 1, size)
    if shape.scores == "any score":
        return np.clip(chances + draw.normal(0, 0.15, size), 0, 1)
    luck = draw.random(size)
    if shape.turns > 1:
        # Half of the turns of a conversation share their luck.
        common = np.repeat(draw.random((size[0], -(-size[1] // shape.turns))), shape.turns, axis=1)[:, : size[1]]
        luck = np.where(draw.random(size) < 0.5, common, luck)
    return (luck < chances).astype(float)


def trend_rows(series=SERIES, flat=FLAT, falls=FALLS) -> Iterator[RateRow]:
    """Yield the rate of series with a change: at most 5 % of flat ones, and at least 80 % of those that fall."""
    for shape in (*flat, *falls):
        draw = np.random.default_rng(3026)
        found = sum(bool(change_points(*simulated(shape, draw))) for _ in range(series))
        limits = at_least(0.8, series) if shape.fall else at_most(0.05, series)
        yield RateRow(f"{shape.name}, {shape.runs} runs", shape.n, found / series, series, limits)


if __name__ == "__main__":
    for row in trend_rows():
        print(row)
