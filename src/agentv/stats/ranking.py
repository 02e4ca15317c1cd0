"""Rank several sides by Bradley-Terry strength, with bootstrap intervals over the cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentv.stats.distributions import Interval, finite_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

RESAMPLES = 500

_STEPS = 100
_PRIOR = 0.5


class Ranked(NamedTuple):
    """A side in a ranking, by its column. `share` is its probability of winning against an average side."""

    side: int
    value: float
    ci95: Interval | None
    share: float


def rank(
    scores: ArrayLike, clusters: ArrayLike | None = None, *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Ranked]:
    """Return the sides in order of strength. `scores` has a row per case and a column per side.

    Each case is a game between each pair of sides: the higher score wins, and a tie is half a win for both. Strengths
    are log odds against an average side: P(i beats j) = 1 / (1 + exp(θ_j - θ_i)), by maximum likelihood, Σθ = 0. The
    intervals are percentiles of a bootstrap over whole clusters; half a tie with an average side keeps them finite.
    There is no interval if all cases have the same outcome, because resampling then changes nothing.

    Bradley & Terry (1952), Biometrika 39:324; Hunter (2004), Annals of Statistics 32:384.
    """
    rows = finite_array(scores)
    if rows.ndim != 2 or not len(rows):
        raise ValueError("Scores must have one row per case, and at least one case")
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
    whole, *others = _fit(drawn.reshape(-1, sides, sides))
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


def _fit(tables: NDArray[Any]) -> NDArray[Any]:
    """Fit the strengths for each table of wins by Newton's method."""
    own = np.eye(tables.shape[-1])
    tables = tables * (1 - own)
    lost = tables.swapaxes(1, 2)
    values = np.zeros(tables.shape[:2])
    for _ in range(_STEPS):
        chances = 1 / (1 + np.exp(values[:, None, :] - values[:, :, None]))
        against = chances.swapaxes(1, 2)  # not 1 - chances, which loses precision when a side nearly always wins
        alone = 1 / (1 + np.exp(-values))
        slope = (tables * against - lost * chances).sum(axis=2) + _PRIOR * (0.5 - alone)
        weight = (tables + lost) * chances * against
        diagonal = weight.sum(axis=2) + _PRIOR * alone * (1 - alone)
        step = np.linalg.solve(diagonal[:, :, None] * own - weight, slope[:, :, None])[:, :, 0]
        values = values + np.clip(step, -2, 2)
        if np.max(np.abs(step)) < 1e-12:
            break
    centred: NDArray[Any] = values - values.mean(axis=1, keepdims=True)
    return centred
