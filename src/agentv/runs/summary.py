"""Summarise a run one result at a time, in memory that does not grow with the number of results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from agentv.model.manifest import CaseDraw, Counts
from agentv.model.result import SCHEMA_VERSION, Result
from agentv.runs.target_summary import TargetDetails, TargetFigures, TargetSummary


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a run, by target. With a `draw`, means are weighted by the inverse probability of each case."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    draw: CaseDraw | msgspec.UnsetType = msgspec.UNSET
    targets: dict[str, TargetSummary] = {}

    def counts(self, cases: int) -> Counts:
        """Return the outcomes of all jobs, over all targets, of a run with this number of cases."""
        figures = [(item.jobs, item.scored, item.unscored, item.errors, item.skipped) for item in self.targets.values()]
        jobs, ok, unscored, errors, skipped = map(sum, zip(*figures, strict=True)) if figures else (0,) * 5
        return Counts(cases=cases, jobs=jobs, ok=ok, unscored=unscored, errors=errors, skipped=skipped)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a run."""

    done: int
    earlier: int = 0
    """Results from before the run was resumed, or carried over; rates leave them out."""

    total: int | None = None
    scored: int = 0
    passed: int = 0
    errors: dict[str, int] = {}
    cost_usd: float | None = None
    concurrency: int | None = None
    waits_s: float = 0.0
    """How long an endpoint without calls waits for its next."""

    down: str | None = None
    """An endpoint that does not answer."""

    down_s: float = 0.0
    """How long it has not answered."""

    unreached: bool = False
    """Whether it never answered."""

    text: str | None = None
    """What else the run awaits."""

    failing: dict[str, int] = {}
    """Calls that wait for a retry, by reason."""

    down_targets: tuple[str, ...] = ()
    """The targets that call the endpoint in `down`."""


class SummaryBuilder:
    """Builds the summary of a run from results in any order.

    Above 1 of `jobs_per_case`, trials times prompts, the results of a case form a cluster, which takes memory for each
    case. Those of a conversation always do.
    """

    def __init__(self, run_id: str, jobs_per_case: int = 1) -> None:
        self._run_id = run_id
        self._targets: dict[str, TargetFigures] = defaultdict(lambda: TargetFigures(jobs_per_case > 1))

    def add(self, result: Result) -> None:
        self._targets[result.target].add(result)

    def add_all(self, results: Iterable[Result]) -> SummaryBuilder:
        targets = self._targets
        for result in results:
            targets[result.target].add(result)
        return self

    def build(self, planned: Mapping[str, int] | None = None, cases: Mapping[str, int] | None = None) -> RunSummary:
        """Return the content of `summary.json`, from the planned jobs and the number of cases of each target.

        Planned jobs without a result count as skipped. Without `cases`, those with results are counted.
        """
        planned, cases = planned or {}, cases or {}
        names = [*planned, *(name for name in self._targets if name not in planned)]
        totals = {name: self._targets.get(name) or TargetFigures(False) for name in names}
        return RunSummary(
            run_id=self._run_id,
            targets={
                name: target.summary(planned.get(name, target.done), cases.get(name)) for name, target in totals.items()
            },
        )

    def details(self) -> dict[str, TargetDetails]:
        """Return further details for reports, by target."""
        return {name: target.details() for name, target in self._targets.items()}

    def snapshot(self) -> Snapshot:
        """Return the progress so far. Fast, and safe to call from another thread."""
        targets = list(self._targets.values())
        errors: Counter[str] = Counter()
        for target in targets:
            errors.update(dict(target.errors.classes))
        costs = [cost for target in targets if (cost := target.usage.total_usd) is not None]
        return Snapshot(
            done=sum(target.done for target in targets),
            scored=sum(target.scores.n for target in targets),
            passed=sum(target.passed for target in targets),
            errors=dict(errors),
            cost_usd=sum(costs) if costs else None,
        )
