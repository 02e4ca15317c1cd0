"""Many targets in one order: Bradley-Terry strengths from who beat whom, with intervals over the cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentv.stats.distributions import not_negative, numbers
from agentv.stats.intervals import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

RESAMPLES = 500

_STEPS = 100
_PRIOR = 0.5


class Strength(NamedTuple):
    """How strong a side is, in log odds against an average one, and its standard error (large-sample)."""

    value: float
    standard_error: float


class Ranked(NamedTuple):
    """A side in a ranking, by its column. `share` is its chance to win against an average side."""

    side: int
    value: float
    ci95: Interval | None
    share: float


def bradley_terry(wins: ArrayLike, prior: float = 0.0) -> list[Strength]:
    """Strengths from a table of wins: `wins[i][j]` is how often i beat j; a tie is half a win for each.

    P(i beats j) = 1 / (1 + exp(θ_j - θ_i)), by maximum likelihood, Σθ = 0. `prior` ties with an average side are
    added to each, without which a side that never lost would be infinitely strong.

    Bradley & Terry (1952), Biometrika 39:324; Hunter (2004), Annals of Statistics 32:384.
    """
    table = numbers(wins, "Wins")
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"Wins are a square table, got one of {' × '.join(map(str, table.shape))}")
    not_negative(float(table.min(initial=0.0)), "A number of wins")
    if prior == 0 and not _decided(table):
        raise ValueError("A side that never won or never lost has no finite strength; give a prior")
    values, information = _fit(table[None], prior)
    inverse = np.linalg.inv(_with_mean(information, prior))[0]
    # What was put in for the mean is taken out again.
    inverse -= 0 if prior else 1 / (len(table) * np.trace(information[0]))
    spread = np.sqrt(np.clip(np.diag(inverse), 0, None))
    return [Strength(float(value), float(error)) for value, error in zip(values[0], spread, strict=True)]


def rank(
    scores: ArrayLike, clusters: ArrayLike | None = None, *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Ranked]:
    """Sides in order of strength, from a row of scores a case (one column a side); the interval resamples cases.

    A case is a game of each pair of sides: the higher score wins. Whole clusters are resampled. The intervals are
    percentiles; half a tie with an average side keeps them finite. Cases that all went alike, resampled, are the same
    again, and there is none.
    """
    rows = numbers(scores)
    if rows.ndim != 2 or not len(rows):
        raise ValueError("A row of scores is needed for each case, and a case or more")
    sides = rows.shape[1]
    games = np.sign(rows[:, :, None] - rows[:, None, :])
    won = ((games + 1) / 2).reshape(len(rows), -1)
    if clusters is not None:
        _, index = np.unique(np.asarray(clusters), return_inverse=True)
        won = np.array([np.bincount(index, column) for column in won.T]).T
    chance = np.random.default_rng(seed)
    drawn = won.sum(axis=0)[None, :]
    if len(won) > 1 and np.ptp(won, axis=0).any():
        weights = chance.multinomial(len(won), np.full(len(won), 1 / len(won)), size=resamples)
        drawn = np.concatenate([drawn, weights @ won])
    whole, *others = _fit(drawn.reshape(-1, sides, sides), _PRIOR)[0]
    bounds = np.quantile(others, [0.025, 0.975], axis=0) if others else None
    order = sorted(range(sides), key=lambda side: -whole[side])
    return [
        Ranked(
            side,
            float(whole[side]),
            None if bounds is None else (float(bounds[0][side]), float(bounds[1][side])),
            float(1 / (1 + np.exp(-whole[side]))),
        )
        for side in order
    ]


def _fit(tables: NDArray[Any], prior: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Newton's steps to the likeliest strengths of each table, and the information there."""
    tables = tables * (1 - np.eye(tables.shape[-1]))
    lost = tables.swapaxes(1, 2)
    values = np.zeros(tables.shape[:2])
    information = np.zeros_like(tables)
    for _ in range(_STEPS):
        chances = 1 / (1 + np.exp(values[:, None, :] - values[:, :, None]))
        against = chances.swapaxes(1, 2)  # not 1 - chances, of which nothing is left where a side nearly always wins
        alone = 1 / (1 + np.exp(-values))
        slope = (tables * against - lost * chances).sum(axis=2) + prior * (0.5 - alone)
        weight = (tables + lost) * chances * against
        diagonal = weight.sum(axis=2) + prior * alone * (1 - alone)
        information = diagonal[:, :, None] * np.eye(tables.shape[-1]) - weight
        step = np.linalg.solve(_with_mean(information, prior), slope[:, :, None])[:, :, 0]
        values = values + np.clip(step, -2, 2)
        if np.max(np.abs(step)) < 1e-12:
            break
    return values - values.mean(axis=1, keepdims=True), information


def _with_mean(information: NDArray[Any], prior: float) -> NDArray[Any]:
    """Of the mean of all strengths games say nothing; without a prior something is put in, which steps do not feel."""
    size = information.shape[-1]
    return information if prior else information + np.trace(information, axis1=1, axis2=2)[:, None, None] / size


def _decided(table: NDArray[Any]) -> bool:
    """Whether every side can be reached from every other along wins: only then there are likeliest strengths."""
    reach = (table > 0) | np.eye(len(table), dtype=bool)
    for _ in range(len(table)):
        reach = reach | ((reach.astype(int) @ reach.astype(int)) > 0)
    return bool(reach.all())
