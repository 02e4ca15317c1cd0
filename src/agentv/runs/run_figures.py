"""Figures of a run for reports, and the differences between a run and its rescored copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from agentv.model.manifest import RunManifest
from agentv.model.result import Result, Verdict
from agentv.runs.summary import RunSummary, Snapshot, SummaryBuilder
from agentv.runs.target_summary import TargetDetails

if TYPE_CHECKING:
    from agentv.runs.failure_groups import FailureGroups
    from agentv.runs.store import RunStore


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run. `evaluators` are the names of all evaluators, `jobs` the number of planned jobs.

    `lost` is the number of records that are missing from the file although the run counted them. `failures` are the
    results that did not pass, in groups.
    """

    summary: RunSummary
    details: dict[str, TargetDetails]
    evaluators: tuple[str, ...]
    done: int
    jobs: int
    lost: int = 0
    failures: FailureGroups | None = None

    @property
    def jobs_saved(self) -> int:
        """The number of jobs saved by early stopping."""
        return sum(target.early_stop.not_needed for target in self.summary.targets.values() if target.early_stop)

    @property
    def unfinished(self) -> bool:
        """Whether planned jobs have no record."""
        return self.done + self.jobs_saved < self.jobs

    @property
    def missing_note(self) -> str:
        """A description of the missing jobs; empty if there are none."""
        if not self.unfinished:
            return ""
        records = "1 record is" if self.lost == 1 else f"{self.lost:,} records are"
        lost = f"; {records} missing from its file" if self.lost else ""
        return f"{self.done:,} of {self.jobs:,} jobs are done{lost}"


class FigureBuilder:
    """Builds the figures of a run one result at a time.

    Clustering `by_case` takes memory for each case. It is needed if a case has several results.
    """

    def __init__(self, run: RunStore, *, by_case: bool | None = None) -> None:
        from agentv.runs.failure_groups import FailureGrouper  # late: a run imports this module, and groups nothing

        self.run = run
        self._by_case = _has_several_jobs_per_case(run.manifest) if by_case is None else by_case
        self._summary = SummaryBuilder(run.run_id, jobs_per_case=2 if self._by_case else 1)
        self._failures = FailureGrouper()
        self._evaluators: dict[str, None] = {}

    def add(self, result: Result) -> bool:
        """Add a result. Return False if the figures have to be built by case: a trial, a prompt, or no dataset."""
        if not self._by_case and (result.trial > 1 or result.prompt is not None or not result.dataset_path):
            return False
        self._summary.add(result)
        self._failures.add(result)
        for entry in result.evaluator_results:
            self._evaluators.setdefault(entry.name)
        return True

    def snapshot(self) -> Snapshot:
        """Return the progress so far."""
        return self._summary.snapshot()

    def build(self) -> Figures:
        """Return the figures of the results so far."""
        manifest, stored_summary = self.run.manifest, self.run.summary()
        summary = self._summary.build(*planned_jobs(manifest, stored_summary))
        if manifest is not None and manifest.draw is not None:
            summary = msgspec.structs.replace(summary, draw=manifest.draw)
        count = _results_in(summary)
        counts = manifest.counts if manifest else None
        return Figures(
            summary=_with_early_stop(summary, stored_summary),
            details=self._summary.details(),
            evaluators=tuple(self._evaluators),
            done=count,
            jobs=max(count, counts.jobs if counts else 0),
            lost=max(0, (_results_in(stored_summary) if stored_summary else 0) - count),
            failures=self._failures.build(),
        )


def run_figures(run: RunStore) -> Figures:
    """Compute the figures of a run from its records, in one pass."""
    builder = FigureBuilder(run)
    if not all(map(builder.add, run.records())):
        builder = FigureBuilder(run, by_case=True)
        for result in run.records():
            builder.add(result)
    return builder.build()


def stored_figures(run: RunStore) -> Figures | None:
    """Return the figures of a finished run without reading its records: without details and failures."""
    summary, manifest = run.summary(), run.manifest
    if summary is None or manifest is None or manifest.finished_at is None:
        return None
    count = _results_in(summary)
    jobs = max(count, manifest.counts.jobs if manifest.counts else 0)
    return Figures(summary=summary, details={}, evaluators=(), done=count, jobs=jobs)


def _results_in(summary: RunSummary) -> int:
    return sum(target.scored + target.errors + target.unscored for target in summary.targets.values())


def _has_several_jobs_per_case(manifest: RunManifest | None) -> bool:
    """Return whether cases have several trials or prompts, as far as the manifest tells."""
    if manifest is None or manifest.counts is None:
        return False
    return manifest.counts.jobs > manifest.counts.cases * len(manifest.targets)


def planned_jobs(manifest: RunManifest | None, summary: RunSummary | None) -> tuple[dict[str, int], dict[str, int]]:
    """Return the jobs and cases of each target, if known: from the stored summary, or for a single target."""
    if summary is not None:
        targets = summary.targets.items()
        return {name: target.jobs for name, target in targets}, {name: target.cases for name, target in targets}
    if manifest is None or manifest.counts is None or len(manifest.targets) != 1:
        return {}, {}
    name = manifest.targets[0].name
    return {name: manifest.counts.jobs}, {name: manifest.counts.cases}


def _with_early_stop(summary: RunSummary, stored_summary: RunSummary | None) -> RunSummary:
    """Use the summary that a run with `--stop-when` stored: its intervals are valid at any stopping time."""
    targets = dict(summary.targets)
    for name, before in (stored_summary.targets if stored_summary else {}).items():
        target = targets.get(name)
        if before.early_stop is not None and target is not None and target.scored == before.scored:
            targets[name] = before
    return msgspec.structs.replace(summary, targets=targets)


MOST_FLIPS = 20


class MeanChange(msgspec.Struct, kw_only=True):
    """A mean before and after, over the `n` jobs that were scored both times. Until `finish`, they are sums."""

    n: int = 0
    before: float | None = None
    after: float | None = None

    def add(self, before: float, after: float) -> None:
        """Add the scores of a job."""
        self.n += 1
        self.before, self.after = (self.before or 0.0) + before, (self.after or 0.0) + after

    def finish(self) -> None:
        """Turn the sums into means."""
        if self.before is not None and self.after is not None:
            self.before, self.after = self.before / self.n, self.after / self.n


class Flip(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job whose verdict changed."""

    eval_id: str
    dataset: str
    target: str
    trial: int
    prompt: str | None = None
    before: Verdict
    after: Verdict
    score_before: float
    score_after: float


class Delta(msgspec.Struct, kw_only=True):
    """The differences for one target. `mended` counts jobs that no longer end in an error, `broken` new errors."""

    jobs: int = 0
    scores: MeanChange = msgspec.field(default_factory=MeanChange)
    passed: tuple[int, int] = (0, 0)
    evaluators: dict[str, MeanChange] = {}
    errors: tuple[int, int] = (0, 0)
    mended: int = 0
    broken: int = 0
    carried: int = 0
    flips: dict[str, int] = {}
    flipped: list[Flip] = []

    def add(self, before: Result, after: Result) -> None:
        """Add the records of a job."""
        failed, fails = before.status == "error", after.status == "error"
        self.jobs += 1
        self.carried += after.carried_from is not None
        self.errors = self.errors[0] + failed, self.errors[1] + fails
        self.mended += failed and not fails
        self.broken += fails and not failed
        if before.score is not None and after.score is not None:
            self.scores.add(before.score, after.score)
            self.passed = self.passed[0] + (before.verdict == "pass"), self.passed[1] + (after.verdict == "pass")
            if before.verdict and after.verdict and before.verdict != after.verdict:
                kind = f"{before.verdict} → {after.verdict}"
                self.flips[kind] = self.flips.get(kind, 0) + 1
                if len(self.flipped) < MOST_FLIPS:
                    flip = Flip(
                        eval_id=after.eval_id, dataset=after.dataset, target=after.target, trial=after.trial,
                        prompt=after.prompt, before=before.verdict, after=after.verdict,
                        score_before=before.score, score_after=after.score,
                    )  # fmt: skip
                    self.flipped.append(flip)
        scores = {result.name: result.score for result in before.evaluator_results}
        for result in after.evaluator_results:
            earlier = scores.get(result.name)
            if earlier is not None and result.score is not None:
                self.evaluators.setdefault(result.name, MeanChange()).add(earlier, result.score)


def deltas(pairs: Iterable[tuple[Result, Result]]) -> dict[str, Delta]:
    """Return the differences by target, from pairs of records before and after."""
    by_target: dict[str, Delta] = {}
    for before, after in pairs:
        by_target.setdefault(after.target, Delta()).add(before, after)
    for delta in by_target.values():
        for change in (delta.scores, *delta.evaluators.values()):
            change.finish()
        delta.flips = dict(Counter(delta.flips).most_common())
    return by_target
