"""Intervals of a target that stopped early, valid at any stopping time, from its records."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from agentv.model.manifest import Interval
from agentv.model.result import Result
from agentv.model.values import cluster_of, draw_rank, sampling_unit
from agentv.runs.record import ScoreRecord
from agentv.runs.target_summary import PartSummary, TargetSummary
from agentv.stats.sequential import BettingMean

_Unit = tuple[int, str]
"""The rank of a group of dependent results in the random order, and its name."""


class DrawnMeasures:
    """The scores, passes, evaluators and prompts of one target by unit.

    `population` is the number of units that they were drawn from, None for a sample of an unlimited population;
    `largest` is the most jobs of one unit.
    """

    def __init__(self, population: int | None, largest: int) -> None:
        self._population, self._largest = population, largest
        self._units: set[_Unit] = set()
        self._values: dict[str, dict[_Unit, list[float]]] = {}
        self._errors: Counter[_Unit] = Counter()

    def add(self, record: ScoreRecord | Result, seed: int) -> None:
        """Add a record. `seed` determines the random order."""
        name = sampling_unit(cluster_of(record), record.dataset_path, record.eval_id)
        unit = draw_rank(seed, name), name
        self._units.add(unit)
        if record.status == "error":
            self._errors[unit] += 1
            return
        values = [(f"evaluator {result.name}", result.score) for result in record.evaluator_results]
        if record.score is not None:
            values += [("score", record.score), ("pass", float(record.verdict == "pass"))]
            if record.prompt is not None:
                values.append((f"prompt {record.prompt}", record.score))
        for measure, value in values:
            if value is not None:
                self._values.setdefault(measure, {}).setdefault(unit, []).append(value)

    def applied_to(self, target: TargetSummary) -> TargetSummary:
        """Return the summary with these intervals. There are none for pass@k."""
        return msgspec.structs.replace(
            target,
            ci95=self._interval("score"),
            ci95_with_errors=self._with_errors("score"),
            pass_rate_ci95=self._interval("pass"),
            pass_rate_ci95_with_errors=self._with_errors("pass"),
            evaluators=self._parts("evaluator", target.evaluators),
            prompts=self._parts("prompt", target.prompts),
            trials=tuple(
                msgspec.structs.replace(trial, pass_at_k_ci95=None, pass_hat_k_ci95=None) for trial in target.trials
            ),
        )

    def _parts(self, what: str, parts: Mapping[str, PartSummary]) -> dict[str, PartSummary]:
        return {
            name: msgspec.structs.replace(
                part, ci95=self._interval(f"{what} {name}"), ci95_with_errors=self._with_errors(f"{what} {name}")
            )
            for name, part in parts.items()
        }

    def _with_errors(self, measure: str) -> Interval | None:
        """Return the interval with errors counted as 0 for its lower end and as 1 for its upper; None without any."""
        lower, upper = (self._interval(measure, float(value)) for value in (0, 1)) if self._errors else (None, None)
        return None if lower is None or upper is None else (lower[0], upper[1])

    def _interval(self, measure: str, errors_as: float | None = None) -> Interval | None:
        """Return the interval of a measure. Errors do not count, or count as scores of this value."""
        if (by_unit := self._values.get(measure)) is None:
            return None
        values = []
        for unit in sorted(self._units):
            added = [] if errors_as is None else [errors_as] * self._errors[unit]
            values.append([*by_unit.get(unit, ()), *added])
        # A case may have several evaluators with the same name, and then more scores than jobs.
        mean = BettingMean(largest=max(self._largest, *map(len, values)), population=self._population)
        for scores in values:
            mean.add(min(sum(scores), len(scores)), len(scores))
        return mean.interval
