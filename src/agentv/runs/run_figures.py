"""Figures of a finished or unfinished run for reports: the summary, details by target, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agentv.model.manifest import RunManifest, RunSummary
from agentv.runs.summary import SummaryBuilder, TargetDetails

if TYPE_CHECKING:
    from agentv.runs.store import RunStore


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run. `evaluators` are the names of all evaluators, `jobs` the number of planned jobs.

    `lost` is the number of records that the run counted when it ended and that are no longer in its file.
    """

    summary: RunSummary
    details: dict[str, TargetDetails]
    evaluators: tuple[str, ...]
    done: int
    jobs: int
    lost: int = 0

    @property
    def spared(self) -> int:
        """The number of jobs that early stopping saved."""
        return sum(each.early_stop.not_needed for each in self.summary.targets.values() if each.early_stop)

    @property
    def unfinished(self) -> bool:
        """Whether planned jobs are missing."""
        return self.done + self.spared < self.jobs

    @property
    def standing(self) -> str:
        """What is missing from the run, in a sentence; empty if nothing is."""
        if not self.unfinished:
            return ""
        gone = f"; {self.lost:,} records that the run wrote are gone from its results" if self.lost else ""
        return f"{self.done:,} of {self.jobs:,} jobs are done{gone}"


def run_figures(run: RunStore) -> Figures:
    """Compute the figures of a run from its records, in one pass."""
    # Clustering by case is what several trials need, and changes nothing where each case has one result.
    builder = SummaryBuilder(run.run_id, jobs_per_case=2)
    evaluators: dict[str, None] = {}
    done = 0
    for result in run.records():
        builder.add(result)
        done += 1
        for found in result.evaluator_results:
            if found.name not in evaluators:
                evaluators[found.name] = None
    stored = run.summary()
    summary, details = _with_early_stop(builder.build(*planned_jobs(run.manifest, stored)), builder.details(), stored)
    counts = run.manifest.counts if run.manifest else None
    targets = stored.targets.values() if stored else ()
    return Figures(
        summary=summary,
        details=details,
        evaluators=tuple(evaluators),
        done=done,
        jobs=max(done, counts.jobs if counts else 0),
        lost=max(0, sum(each.scored + each.errors + each.unscored for each in targets) - done),
    )


def planned_jobs(manifest: RunManifest | None, stored: RunSummary | None) -> tuple[dict[str, int], dict[str, int]]:
    """Jobs and cases of each target, if known: from the summary of a run that ended, or for a single target."""
    if stored is not None:
        targets = stored.targets.items()
        return {name: target.jobs for name, target in targets}, {name: target.cases for name, target in targets}
    if manifest is None or manifest.counts is None or len(manifest.targets) != 1:
        return {}, {}
    name = manifest.targets[0].name
    return {name: manifest.counts.jobs}, {name: manifest.counts.cases}


def _with_early_stop(
    summary: RunSummary, details: dict[str, TargetDetails], stored: RunSummary | None
) -> tuple[RunSummary, dict[str, TargetDetails]]:
    """Take over the intervals that a run with `--stop-when` stored: they are valid at any stopping time."""
    targets, further = dict(summary.targets), dict(details)
    for name, before in (stored.targets if stored else {}).items():
        early, found = before.early_stop, targets.get(name)
        if early is None or found is None or found.scored != before.scored:
            continue
        targets[name] = msgspec.structs.replace(
            found,
            ci95=before.ci95,
            evaluators=before.evaluators,
            prompts=before.prompts,
            trials=before.trials,
            early_stop=early,
        )
        if name in further:
            share = early.ci95 if early.measure == "pass_rate" else None
            further[name] = msgspec.structs.replace(further[name], pass_ci95=share)
    return msgspec.structs.replace(summary, targets=targets), further
