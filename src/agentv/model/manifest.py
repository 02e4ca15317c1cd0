"""A run as its folder describes it: the manifest (`run.json`) and the figures per target (`summary.json`)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentv.model.result import SCHEMA_VERSION, written_version

Interval = tuple[float, float]


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One dataset of a run. `digest` is a hash of the bytes of its files, sidecar and shards included.

    `contents` is a hash of the selected cases that name files, with what is in those files.
    """

    path: str
    name: str
    digest: str
    contents: str = ""
    cases: int
    skipped_lines: tuple[int, ...] = ()


def merged_contents(*contents: str) -> str:
    """The `contents` of several selections of one dataset, in any order, as that of all of them."""
    numbers = [int(each, 16) for each in contents if each]
    return f"{sum(numbers) % 2**128:032x}" if numbers else ""


class TargetEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One target of a run, its secrets left out. `files` has hashes of the files that its settings name."""

    name: str
    provider: str
    fingerprint: str
    settings: dict[str, Any] = {}
    files: dict[str, str] = {}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a run has, and how many of them ended in which way."""

    cases: int = 0
    jobs: int = 0
    ok: int = 0
    unscored: int = 0
    errors: int = 0
    skipped: int = 0


class RunLink(msgspec.Struct, frozen=True, kw_only=True):
    """Another run: its id, where it was, and a hash of its records."""

    run_id: str
    path: str
    digest: str


class RunManifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was run and with what, so that a run can be resumed, re-scored and compared from its folder alone.

    A run that `stopped_early` knew enough before all its jobs were done; jobs without a record were not needed.
    `paths` and `options` are those of the command, `defaults` those of the project's configuration; `judges` are the
    targets that evaluators ask; `fingerprints` are those of evaluators, by name. `rescored_from` is the run whose
    answers were scored again; `merged_from` are the runs that this one is the union of.
    """

    schema_version: int = msgspec.field(default_factory=written_version)
    run_id: str
    rescored_from: RunLink | None = None
    merged_from: tuple[RunLink, ...] = ()
    started_at: str
    finished_at: str | None = None
    stopped_early: bool = False
    exit_code: int | None = None
    paths: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    versions: dict[str, str] = {}
    datasets: tuple[DatasetEntry, ...] = ()
    targets: tuple[TargetEntry, ...] = ()
    judges: tuple[TargetEntry, ...] = ()
    fingerprints: dict[str, str] = {}
    seed: int | None = None
    git_commit: str | None = None
    counts: Counts | None = None


class PartSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of one evaluator, or under one prompt: how many, their mean, and its 95 % interval."""

    n: int
    mean: float | None = None
    ci95: Interval | None = None


class TrialsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The chances of a case that is tried `k` times, over the `n` cases, times prompts, with so many scored trials.

    `pass_at_k` is the chance that one of them passes, `pass_hat_k` that all do; both without bias where there are more.
    """

    k: int
    n: int
    pass_at_k: float
    pass_at_k_ci95: Interval | None = None
    pass_hat_k: float
    pass_hat_k_ci95: Interval | None = None


class EarlyStop(msgspec.Struct, frozen=True, kw_only=True):
    """What a run with `--stop-when` found out about one target. Its intervals hold at whatever moment it stopped.

    `measure` was looked at until it was known to be above or below `value`, which is the `answer`; null: not known.
    `estimate` and `ci95` are of the measure, over `n` scores in `units` that belong together. Evidence against the
    value is the `e_value`, of which 20 is as good as p = 0.05. `not_needed` are the jobs that were spared.
    """

    rule: str
    measure: Literal["mean", "pass_rate", "difference"]
    value: float
    answer: Literal["above", "below"] | None
    n: int
    units: int
    estimate: float | None
    ci95: Interval
    e_value: float
    not_needed: int = 0


class TargetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one target: of its `cases`, each asked once or more, which makes `jobs`.

    All else is counted in jobs: `scored`, `errors`, `unscored` and `skipped`, which were never started, add up to them.
    Means and the pass rate are over those that are scored. `prompts` are there where cases are asked with several.
    """

    cases: int
    jobs: int
    scored: int
    errors: int
    unscored: int
    skipped: int
    mean: float | None = None
    ci95: Interval | None = None
    pass_rate: float | None = None
    cost_usd: float | None = None
    judge_cost_usd: float | None = None
    duration_ms: float | None = None
    evaluators: dict[str, PartSummary] = {}
    prompts: dict[str, PartSummary] = {}
    trials: tuple[TrialsSummary, ...] = ()
    early_stop: EarlyStop | None = None


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run, by target."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    targets: dict[str, TargetSummary] = {}

    def counts(self, cases: int) -> Counts:
        """How the jobs of a run with that many cases ended, over all targets."""
        targets = self.targets.values()
        return Counts(
            cases=cases,
            jobs=sum(target.jobs for target in targets),
            ok=sum(target.scored for target in targets),
            unscored=sum(target.unscored for target in targets),
            errors=sum(target.errors for target in targets),
            skipped=sum(target.skipped for target in targets),
        )
