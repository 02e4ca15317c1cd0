"""Choose the cases whose answers in two runs help most to decide which run is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from agentv.comparison.joined_cases import JoinedCases
from agentv.comparison.scores import RunScores
from agentv.engine.named_runs import existing_run
from agentv.extensions.judge.corrected_rate import next_labels
from agentv.extensions.judge.judge_labels import Name, ProjectLabels, results_of
from agentv.extensions.judge.labelled_difference import FEWEST_IN_A_STRATUM
from agentv.extensions.judge.labels import AnswerKey, Card, Labels, answer_key, cards, draw_order
from agentv.stats.judge_calibration import Labelled, Stratum

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KINDS = {-1: "loss", 0: "tie", 1: "win"}


def pair_cards(names: tuple[str, str], labels: Labels, labeller: str, count: int, seed: int) -> list[Card]:
    """Return the answers of up to `count` cases in both runs, pair by pair, without those that have a label.

    The numbers of the judge's wins, ties and losses are chosen to narrow the interval of the difference most: labels
    go where they disagreed with the judge, or where there are few. Within them, cases are drawn at random, and so is
    the order of the two answers.
    """
    runs = [RunScores(existing_run(name), name) for name in names]
    joined = JoinedCases(*runs)
    ranks = {name: place for place, name in enumerate(_suggested_cases(joined, labels, count, seed))}
    places: dict[AnswerKey, bytes] = {}
    for run in runs:
        for result in results_of(run):
            key = answer_key(result)
            fields = (result.dataset, result.eval_id, result.target, result.prompt)
            rank = ranks.get(tuple(fields[part] for part in joined.parts))
            if key is not None and rank is not None and labels.of(key, labeller) is None:
                places[key] = rank.to_bytes(4) + draw_order(key, seed)
    answers = [(run.run.run_id, card) for run in runs for card in cards(results_of(run), len(places), places.get)]
    ordered = sorted(answers, key=lambda each: places[each[1].key])
    return [card.from_run(run_id) for run_id, card in ordered]


def _suggested_cases(joined: JoinedCases, labels: Labels, count: int, seed: int) -> list[Name]:
    """Return the names of the cases to label next, in random order."""
    first, second = joined.scores
    signs = np.sign(np.round(second - first, 9)).astype(int)
    pairs = ProjectLabels(labels).pairs(joined)
    labels_by_row = {} if pairs is None else dict(zip(pairs.rows.tolist(), pairs.labels.tolist(), strict=True))
    keys = (AnswerKey(str(name[0]), str(name[-1]), "") for name in map(joined.name, range(len(signs))))
    order = [draw_order(key, seed) for key in keys]
    return [joined.name(row) for row in next_rows(signs, labels_by_row, order, count)]


def next_rows(signs: NDArray[Any], labels: Mapping[int, float], order: Sequence[bytes], count: int) -> list[int]:
    """Return the rows of the cases to label next, given the judge's wins and losses and the labels so far.

    Every kind gets the labels without which it cannot be estimated.
    """
    kinds, strata = [np.flatnonzero(signs == kind).tolist() for kind in _KINDS], []
    for (kind, title), rows in zip(_KINDS.items(), kinds, strict=True):
        labelled = (Labelled(bool(np.sign(labels[row]) != kind), True, 0.0) for row in rows if row in labels)
        strata.append(Stratum(title, len(rows), tuple(labelled)))
    counts = next_labels(strata, count, FEWEST_IN_A_STRATUM)
    chosen = (
        sorted((row for row in rows if row not in labels), key=order.__getitem__)[:number]
        for rows, number in zip(kinds, counts, strict=True)
    )
    return sorted(chain.from_iterable(chosen), key=order.__getitem__)
