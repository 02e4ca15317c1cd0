"""The manifest of a run (`run.json`) and its summary (`summary.json`)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentv.model.result import written_version

Interval = tuple[float, float]


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One dataset of a run. `digest` is a hash of its files, including sidecar and shards.

    `contents` is a hash of the selected cases that name files, and of the content of those files. `weight` is that of
    the dataset in a comparison.
    """

    path: str
    name: str
    digest: str
    contents: str = ""
    cases: int
    skipped_lines: tuple[int, ...] = ()
    weight: float = 1.0


def merged_contents(*contents: str) -> str:
    """Combine the `contents` hashes of several selections of one dataset; the order does not matter."""
    numbers = [int(content, 16) for content in contents if content]
    return f"{sum(numbers) % 2**128:032x}" if numbers else ""


class TargetEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One target of a run, without secrets. `files` holds hashes of the files named in its settings."""

    name: str
    provider: str
    fingerprint: str
    settings: dict[str, Any] = {}
    files: dict[str, str] = {}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of cases and jobs of a run, and of jobs by outcome."""

    cases: int = 0
    jobs: int = 0
    ok: int = 0
    unscored: int = 0
    errors: int = 0
    skipped: int = 0

    @property
    def records(self) -> int:
        """The number of jobs with a record."""
        return self.ok + self.unscored + self.errors


class RunLink(msgspec.Struct, frozen=True, kw_only=True):
    """A reference to another run: its id, its path, and a hash of its records."""

    run_id: str
    path: str
    digest: str


class ImportSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an imported run comes from: the format, the path, a hash of its files, and what was not kept."""

    format: str
    path: str
    digest: str
    notes: tuple[str, ...] = ()


class SpanCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The spans and log records that targets with `traces` sent: all that were `received`, and what became of them.

    `used` are part of an answer, `late` arrived after their answer was scored, `repeated` had arrived before,
    `unmatched` have no trace of this run, `rejected` were more than fits into memory, and `discarded` belong to
    calls that failed, were stopped or had rejected spans. `calls` are the answered calls, of which
    `calls_without_spans` had none. `late_cases` are the first cases with late spans. `grpc_connections` are those of
    exporters that use gRPC, whose spans are not received, and `unreadable_requests` had spans that are lost.
    """

    received: int = 0
    used: int = 0
    late: int = 0
    repeated: int = 0
    unmatched: int = 0
    discarded: int = 0
    rejected: int = 0
    calls: int = 0
    calls_without_spans: int = 0
    grpc_connections: int = 0
    unreadable_requests: int = 0
    late_cases: tuple[str, ...] = ()

    def added_to(self, earlier: SpanCounts | None) -> SpanCounts:
        """Return the sum of these counts and those from before the run was resumed."""
        if earlier is None:
            return self
        names = (name for name in self.__struct_fields__ if name != "late_cases")
        sums: dict[str, int] = {name: getattr(self, name) + getattr(earlier, name) for name in names}
        late_cases = tuple(dict.fromkeys((*earlier.late_cases, *self.late_cases)))
        return SpanCounts(late_cases=late_cases, **sums)


class CaseDraw(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `cases` that `--cases-budget` drew from the `population` of selected cases; each record has its probability.

    `with_history` is the number of cases of the population with a score in the `baseline` runs; with 0, all cases had
    the same probability. `digest` is a hash of the cases and their probabilities.
    """

    budget: int
    cases: int
    population: int
    with_history: int = 0
    baseline: tuple[str, ...] = ()
    seed: int = 0
    digest: str = ""


class RunManifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The inputs and settings of a run: enough to resume, rescore and compare it from its folder alone.

    A run is `stopped_early` if `--stop-when` or `--until` was decided before all jobs were done; jobs without a record
    were not needed. `paths` and `options` come from the command, `defaults` from the project's configuration. `judges`
    are the targets that evaluators call; `fingerprints` are those of evaluators, by name. `rescored_from` is the run
    whose answers were rescored; `merged_from` are the runs that were merged into this one; `imported_from` are the
    results of another tool. `unrecorded_cost_usd` is the cost of jobs that have no record, because the run stopped
    before they were finished. `stored_cost_usd` is the part of it for stored answers, which a resume scores: it is then
    part of their records. `draw` describes the cases of `--cases-budget`. `spans` counts what targets with `traces`
    sent.

    `digests` are hashes of the run's other files, written when it ends or stops. `lost` are the fields that `agentv
    runs repair` could not restore. `checksum` is a hash of all other fields.
    """

    schema_version: int = msgspec.field(default_factory=written_version)
    run_id: str
    rescored_from: RunLink | None = None
    merged_from: tuple[RunLink, ...] = ()
    imported_from: ImportSource | None = None
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
    draw: CaseDraw | None = None
    git_commit: str | None = None
    git_branch: str | None = None
    counts: Counts | None = None
    unrecorded_cost_usd: float = 0.0
    stored_cost_usd: float = 0.0
    spans: SpanCounts | None = None
    digests: dict[str, str] = {}
    lost: tuple[str, ...] = ()
    checksum: str = ""


class TrialsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Pass rates over `k` trials, averaged over the `n` cases (times prompts) with at least `k` scored trials.

    `pass_at_k` is the probability that at least one of k trials passes, `pass_hat_k` that all of them do. Both are
    unbiased for cases with more than `k` trials.
    """

    k: int
    n: int
    pass_at_k: float
    pass_at_k_ci95: Interval | None = None
    pass_hat_k: float
    pass_hat_k_ci95: Interval | None = None


class VarianceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of scores by source; a source that cannot be estimated is null.

    `case` is the variance between the true means of cases, `trial` that between trials of one case, including the
    judge's. They come from `cases` cases (times prompts) with `trials` trials each, a harmonic mean. `judge` is the
    variance of a score between calls of the judge on the same answer, from `answers` answers with `votes` votes each.
    """

    case: float | None = None
    trial: float | None = None
    judge: float | None = None
    cases: int = 0
    trials: float = 1.0
    answers: int = 0
    votes: float = 1.0


class EarlyStop(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `--stop-when` or `--until` for one target. After an early stop its interval is valid at any time.

    `measure` was monitored until it was known to be above or below `value`, which is the `answer` (null: undecided).
    With `--until`, the answer is `narrow`: `ci95` is at most ± `value`, and there is no `e_value`.
    `estimate` and `ci95` describe the measure, over `n` scores in `units` independent groups. `e_value` is the evidence
    against `value`; 20 is comparable to p = 0.05. `not_needed` is the number of jobs that were saved. If there were
    any, the mean of the target is `biased` away from `value`, because the run stopped when it was far from it.

    `population` is the number of groups in the run that the drawn ones are a part of: the answer and the interval are
    about all of them. If it is null, they are about the population that the cases of the run are a sample of.
    """

    rule: str
    measure: Literal["mean", "pass_rate", "difference"]
    value: float
    answer: Literal["above", "below", "narrow"] | None
    n: int
    units: int
    population: int | None = None
    estimate: float | None
    ci95: Interval
    e_value: float | None = None
    not_needed: int = 0
    biased: bool = False
