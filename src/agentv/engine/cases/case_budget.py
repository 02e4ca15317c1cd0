"""Draw the cases of a run with `--cases-budget`, by the history of their scores."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from agentv.datasets.selection import CaseName
from agentv.engine.named_runs import open_baseline
from agentv.engine.run_options import EvalOptions
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.manifest import CaseDraw
from agentv.model.result import Result
from agentv.model.values import cluster_of, draw_rank, sampling_unit
from agentv.runs.baselines.pool import PooledStore
from agentv.runs.record import ScoreRecord
from agentv.stats.case_draw import draw_probabilities, draw_units, expected_spread

if TYPE_CHECKING:
    from agentv.engine.run_plan import Cases

CaseKey = tuple[str, str]
"""The path of a dataset, and the id of a case."""

_REFUSED = {
    "sample": "--sample",
    "limit": "--limit",
    "shard": "--shard",
    "stop_when": "--stop-when",
    "until": "--until",
    "only": "--only",
}


class DrawProbabilities(msgspec.Struct, frozen=True):
    """The cases that were drawn, each with its probability."""

    probabilities: Mapping[CaseKey, float]
    draw: CaseDraw

    def keep(self, case: EvalCase) -> EvalCase | None:
        """Return a case that was drawn; None for others."""
        return case if (case.path, case.id) in self.probabilities else None

    def with_probability(self, result: Result) -> Result:
        """Return a record with the probability of its case."""
        probability = self.probabilities[result.dataset_path, result.eval_id]
        return msgspec.structs.replace(result, probability=probability)


def draw_cases(options: EvalOptions, cases: Cases) -> DrawProbabilities:
    """Draw `cases_budget` of the cases, by their scores in the baseline runs. Raises UsageError for other draws."""
    assert options.cases_budget is not None
    for name, flag in _REFUSED.items():
        if getattr(options, name) is not None:
            raise UsageError(f"--cases-budget and {flag} cannot be combined", "Both decide which cases run", "Pass one")
    history, runs = scores_by_case(() if options.gates is None else options.gates.baseline)
    names, keys, numbers, scores = dict[str, int](), list[CaseKey](), list[int](), list[list[float]]()
    for case in cases.stream():
        unit = sampling_unit(cluster_of(case), case.path, case.id)
        keys.append((case.path, case.id))
        numbers.append(names.setdefault(unit, len(names)))
        scores.append(history.get((case.dataset, case.id), []))
    if not keys:
        raise UsageError("There are no cases to draw from")
    seed = options.seed or 0
    sizes = np.bincount(numbers).astype(float)
    spread = np.bincount(numbers, expected_spread(scores))
    probabilities = draw_probabilities(spread, sizes, options.cases_budget).round(12)
    order = np.array(sorted(range(len(names)), key=[draw_rank(seed, name) for name in names].__getitem__))
    units = frozenset(draw_units(probabilities, order, draw_rank(seed, "") / 2**64).tolist())
    chances = probabilities.tolist()
    probability_of = {key: chances[unit] for key, unit in zip(keys, numbers, strict=True) if unit in units}
    draw = CaseDraw(
        budget=options.cases_budget,
        cases=len(probability_of),
        population=len(keys),
        with_history=sum(map(bool, scores)),
        baseline=runs,
        seed=seed,
        digest=hashlib.blake2b(msgspec.json.encode(list(probability_of.items())), digest_size=16).hexdigest(),
    )
    return DrawProbabilities(probability_of, draw)


def scores_by_case(baseline: Sequence[str]) -> tuple[dict[CaseName, list[float]], tuple[str, ...]]:
    """Return the scores of each case in the baseline runs, and the names of these runs."""
    scores: dict[CaseName, list[float]] = {}
    if not baseline:
        return scores, ()
    runs = open_baseline(baseline)
    for record in runs.store.records(ScoreRecord):
        if record.score is not None and runs.picked in (None, record.target, record.prompt):
            scores.setdefault((record.dataset, record.eval_id), []).append(record.score)
    return scores, runs.store.labels if isinstance(runs.store, PooledStore) else tuple(baseline)
