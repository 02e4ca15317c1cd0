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
    """The spans and log records that targets with `traces` sent, and what became of them."""

    received: int = 0
    """All that were received."""

    used: int = 0
    """Those that are part of an answer."""

    late: int = 0
    """Those that arrived after their answer was scored."""

    repeated: int = 0
    """Those that had arrived before."""

    unmatched: int = 0
    """Those without a trace of this run."""

    discarded: int = 0
    """Those of calls that failed, were stopped or had rejected spans."""

    rejected: int = 0
    """Those that did not fit into memory."""

    calls: int = 0
    """The answered calls."""

    calls_without_spans: int = 0
    """The answered calls without a span."""

    grpc_connections: int = 0
    """Connections of exporters that use gRPC, whose spans are not received."""

    unreadable_requests: int = 0
    """Requests whose spans are lost because they could not be read."""

    late_cases: tuple[str, ...] = ()
    """The first cases with late spans."""

    def added_to(self, earlier: SpanCounts | None) -> SpanCounts:
        """Return the sum of these counts and those from before the run was resumed."""
        if earlier is None:
            return self
        names = (name for name in self.__struct_fields__ if name != "late_cases")
        sums: dict[str, int] = {name: getattr(self, name) + getattr(earlier, name) for name in names}
        late_cases = tuple(dict.fromkeys((*earlier.late_cases, *self.late_cases)))
        return SpanCounts(late_cases=late_cases, **sums)


class CaseDraw(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cases that `--cases-budget` drew. Each record has the probability of its case."""

    budget: int
    """The number of cases to draw."""

    cases: int
    """The number of cases drawn."""

    population: int
    """The number of selected cases that they were drawn from."""

    with_history: int = 0
    """Cases of the population with a score in the `baseline` runs; with 0, all cases had the same probability."""

    baseline: tuple[str, ...] = ()
    """The runs whose scores decided the probabilities."""

    seed: int = 0
    """The random seed."""

    digest: str = ""
    """A hash of the cases and their probabilities."""


class RunManifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The inputs and settings of a run: enough to resume, rescore and compare it from its folder alone."""

    schema_version: int = msgspec.field(default_factory=written_version)
    """The version of this format."""

    run_id: str
    """The id of the run."""

    rescored_from: RunLink | None = None
    """The run whose answers were rescored."""

    merged_from: tuple[RunLink, ...] = ()
    """The runs that were merged into this one."""

    imported_from: ImportSource | None = None
    """The results of another tool that were imported."""

    started_at: str
    """When the run started, in UTC."""

    finished_at: str | None = None
    """When it ended; null while it runs, and after a crash."""

    stopped_early: bool = False
    """Whether `--stop-when` or `--until` was decided before all jobs were done; jobs without a record were not needed.
    """

    exit_code: int | None = None
    """The exit code of the command."""

    paths: tuple[str, ...] = ()
    """The datasets that the command named."""

    options: dict[str, Any] = {}
    """The options of the command."""

    defaults: dict[str, Any] = {}
    """Settings from the project's configuration."""

    versions: dict[str, str] = {}
    """The versions of agentv and Python."""

    datasets: tuple[DatasetEntry, ...] = ()
    """The datasets."""

    targets: tuple[TargetEntry, ...] = ()
    """The targets."""

    judges: tuple[TargetEntry, ...] = ()
    """The targets that evaluators call."""

    fingerprints: dict[str, str] = {}
    """The fingerprints of the evaluators, by name."""

    seed: int | None = None
    """The random seed of the selection."""

    draw: CaseDraw | None = None
    """The cases of `--cases-budget`."""

    git_commit: str | None = None
    """The commit of the project."""

    git_branch: str | None = None
    """Its branch."""

    counts: Counts | None = None
    """The number of cases and jobs."""

    unrecorded_cost_usd: float = 0.0
    """The cost of jobs without a record, because the run stopped before they were finished."""

    stored_cost_usd: float = 0.0
    """The part of `unrecorded_cost_usd` for stored answers. A resume scores them, and it is then part of their records.
    """

    spans: SpanCounts | None = None
    """What targets with `traces` sent."""

    digests: dict[str, str] = {}
    """Hashes of the run's other files, written when it ends or stops."""

    lost: tuple[str, ...] = ()
    """The fields that `agentv runs repair` could not restore."""

    checksum: str = ""
    """A hash of all other fields."""


class TrialsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Pass rates over several trials of each case. Both are unbiased for cases with more than `k` trials."""

    k: int
    """The number of trials."""

    n: int
    """Cases, times prompts, with at least `k` scored trials."""

    pass_at_k: float
    """The probability that at least one of `k` trials passes."""

    pass_at_k_ci95: Interval | None = None
    pass_hat_k: float
    """The probability that all `k` trials pass."""

    pass_hat_k_ci95: Interval | None = None


class VarianceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of scores by source; a source that cannot be estimated is null."""

    case: float | None = None
    """Between the true means of cases."""

    trial: float | None = None
    """Between trials of one case, the judge's variance included."""

    judge: float | None = None
    """Between calls of the judge on the same answer."""

    cases: int = 0
    """Cases, times prompts, behind `case` and `trial`."""

    trials: float = 1.0
    """Trials of each of them, a harmonic mean."""

    answers: int = 0
    """Answers behind `judge`."""

    votes: float = 1.0
    """Votes on each of them."""


class EarlyStop(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `--stop-when` or `--until` for one target. The interval of an early stop is valid at any time."""

    rule: str
    """The rule as it was given."""

    measure: Literal["mean", "pass_rate", "difference"]
    """What was monitored until it was known to be above or below `value`."""

    value: float
    """The limit; with `--until`, the half width of the interval."""

    answer: Literal["above", "below", "narrow"] | None
    """Whether the measure is above or below the limit, or its interval `narrow` enough; null if undecided."""

    n: int
    """The number of scores."""

    units: int
    """The number of independent groups of scores."""

    population: int | None = None
    """The number of groups in the run that the drawn ones are a part of: answer and interval are about all of them. If
    null, they are about the population that the cases of the run are a sample of.
    """

    estimate: float | None
    """The value of the measure."""

    ci95: Interval
    """Its interval."""

    e_value: float | None = None
    """The evidence against `value`: 20 is comparable to p = 0.05. None with `--until`."""

    not_needed: int = 0
    """The number of jobs that were saved."""

    biased: bool = False
    """Whether the mean of the target is biased away from `value`, because the run stopped when it was far from it."""
