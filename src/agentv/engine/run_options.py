"""The options of `agentv eval` and `agentv rescore`, as plain data stored in the manifest."""

# Without `from __future__ import annotations`: types are read here, and parsing them would take longer.

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec
from msgspec import Meta

from agentv.datasets.dataset import Options as Reading
from agentv.datasets.loader import CaseSource, case_source
from agentv.datasets.selection import Selection, parse_rows, parse_sample, parse_shard, parse_split, read_case_list
from agentv.engine.gates.gate_options import Gates
from agentv.engine.named_runs import Ended, cases_that_ended, check_run_name, lasting_baseline, lasting_name
from agentv.errors import DatasetWarning, UsageError
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import MOST_TRIALS
from agentv.model.sandbox_settings import Engine
from agentv.settings.command_option import OptionStruct, declared_options, option_field
from agentv.support.lines import MAX_LINE_BYTES
from agentv.targets.targets_file import Variant

Options = TypeVar("Options", bound="EvalOptions")
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]

TRANSCRIPT = "transcript"
_LIMIT = lazy_regex(r"(?:.*=)?\s*[\d.]+\s*")
"""A rule of `--stop-when` that does not name a run."""
"""The name of the target that recorded sessions answer for, unless another is given."""


class EvalOptions(OptionStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that affect the results of a run. Defaults are omitted from the manifest.

    `seed` is that of `sample` and `cases_budget`, 0 if it is None, and of the random order of `stop_when` and `until`.
    If it is None, that order has a `draw_seed` of its own, which is drawn when the run is prepared, so that a resumed
    run has the same order.

    `retry_errors` and `changed_since` name an earlier run whose valid records are carried over; `only` selects the
    cases with that outcome in the run `only_from`, `cases_from` those listed in a file. `dump_prompts` and
    `dump_traces` are folders; empty means one inside the run folder. `experiment` is a name that groups runs.
    `variants` are further targets, made from those of the file.
    `trace_port` is where spans of targets with `traces` are received; 0 for any free port.
    `transcript` has recorded sessions that answer for the target. `evaluators` replace those of the cases.
    """

    paths: tuple[str, ...] = ()
    targets: tuple[str, ...] = option_field(
        "--target -t NAME", "Target to evaluate. Repeat to evaluate several.", "Targets", default=()
    )
    targets_file: str | None = option_field("--targets FILE", "Read targets from this file.", "Targets", "path")
    judge: str | None = option_field(
        "--judge NAME", "Use this target as the judge instead of the configured ones.", "Scoring"
    )
    workers: Count | None = option_field(
        "--workers N", "Maximum concurrent calls (default: adaptive).", "Limits", affects_scores=False
    )
    trials: Annotated[int, Meta(ge=1, le=MOST_TRIALS)] | None = option_field(
        "--trials N", "Number of times to run each case.", "Targets"
    )
    filters: tuple[str, ...] = ()
    cases: tuple[str, ...] = option_field(
        "--case ID", "Select the case with this id. Repeatable.", "Selection", default=()
    )
    cases_from: str | None = option_field(
        "--cases-from FILE",
        "Select the cases listed in FILE, for example by agentv plan --subset.",
        "Selection",
        "path",
    )
    sample: int | float | None = option_field(
        "--sample N|N%", "Select a random sample: a count (200) or a percentage (10%).", "Selection", parse_sample
    )
    cases_budget: Count | None = option_field(
        "--cases-budget N",
        "Draw N cases: those whose scores vary in the runs of --baseline are drawn more often, and weighted less. "
        "Without --baseline, a random sample.",
        "Selection",
    )
    seed: int | None = option_field(
        "--seed N",
        "Random seed for --sample and --cases-budget (default: 0), and for the order of --stop-when and --until "
        "(default: a new one for each run).",
        "Selection",
    )
    draw_seed: int | None = None
    shard: tuple[int, int] | None = option_field(
        "--shard I/N", "Select the I-th of N parts of the cases, split by a hash of the id.", "Selection", parse_shard
    )
    limit: Count | None = option_field("--limit N", "Select at most N cases.", "Selection")
    rows: tuple[tuple[int, int], ...] | None = option_field(
        "--rows ROWS", "Select cases by position, counted from 0: 0,3-5,9.", "Selection", parse_rows
    )
    split: tuple[str, float] | None = option_field(
        "--split PART:PERCENT",
        "Select a random part (train:80) or all other cases (test:80).",
        "Selection",
        parse_split,
    )
    skip_eval: bool = option_field(
        "--skip-eval",
        "Record answers without scoring them; agentv rescore can score them later.",
        "Scoring",
        default=False,
    )
    timeout_s: Positive | None = option_field(
        "--timeout SECONDS", "Time limit for one attempt of a call.", "Limits", affects_scores=False
    )
    max_retries: Annotated[int, Meta(ge=0)] | None = option_field(
        "--max-retries N", "Maximum retries of a failed call.", "Limits", affects_scores=False
    )
    max_outage_s: Annotated[float, Meta(ge=0)] | None = option_field(
        "--max-outage SECONDS",
        "Longest time to wait for an endpoint that has stopped answering before its jobs are left unfinished "
        "(default: 600). 0 never waits. A server that never accepted a connection gets at most 10 s.",
        "Limits",
        affects_scores=False,
    )
    on_error: Literal["stop", "skip"] = option_field(
        "--on-error", "Stop at an invalid case, or skip it with a warning.", "Selection", default="stop"
    )
    allow_outside_files: bool = option_field(
        "--allow-outside-files",
        "Allow datasets to read files outside their project, and hidden files.",
        "Selection",
        default=False,
    )
    max_line_bytes: Count = option_field(
        "--max-line-bytes N", "Maximum length of a JSONL line.", "Selection", default=MAX_LINE_BYTES
    )
    fields: str | None = option_field(
        "--map KEY=FIELD,…",
        "Read records of any shape: KEY=FIELD,…, for example input=question,expected_output=answer,tags=topic.",
        "Selection",
    )
    strict: bool = option_field(
        "--strict", "Fail if another tool's file is not read exactly as by that tool.", "Selection", default=False
    )
    budget_usd: Positive | None = option_field(
        "--budget-usd USD",
        "Stop when all calls together have cost this much, judges and errors included. Shards on this machine share "
        "one budget.",
        "Limits",
        affects_scores=False,
    )
    deadline_s: Positive | None = option_field(
        "--deadline SECONDS",
        "Stop after this time, like Ctrl-C. Finished jobs are kept.",
        "Limits",
        affects_scores=False,
    )
    fail_fast: bool = option_field("--fail-fast", "Stop at the first failure or error.", "Limits", default=False)
    keep_going: bool = option_field(
        "--keep-going",
        "Run all jobs even if more of them have errored than --max-errors allows, or judges give no usable verdict.",
        "Scoring",
        affects_scores=False,
        default=False,
    )
    stop_when: str | float | None = option_field(
        "--stop-when X|pass-rate=X|RUN",
        "Stop as soon as the mean or pass rate is known to be above or below X, or above or below that of RUN. "
        "RUN,RUN, an experiment or @BRANCH pools runs of the same target, cases and measure.",
        "Limits",
        str,
        names_run=True,
    )
    until: str | float | None = option_field(
        "--until ±X|pass-rate=±X",
        "Stop as soon as the 95 % interval of the mean or pass rate is at most X wide on each side.",
        "Limits",
        str,
    )
    gates: Gates | None = None
    retry_errors: str | None = option_field(
        "--retry-errors RUN",
        "Start a new run that repeats the errors of RUN and carries over the rest.",
        "Resume",
        "path",
        names_run=True,
    )
    changed_since: str | None = option_field(
        "--changed-since RUN",
        "Start a new run that repeats what changed since RUN and carries over the rest.",
        "Resume",
        "path",
        names_run=True,
    )
    only: Ended | None = option_field(
        "--only", "Run only cases that failed, were borderline or errored in the run given by --from.", "Resume"
    )
    only_from: str | None = option_field(
        "--from RUN", "Earlier run that --only refers to.", "Resume", "path", names_run=True
    )
    cache: bool = option_field(
        "--cache", "Reuse cached responses; the cache is in .agentv/cache.", "Targets", default=False
    )
    batch: bool = option_field(
        "--batch",
        "Send requests through the provider's batch API: half the price, up to 24 hours.",
        "Targets",
        default=False,
    )
    record: str | None = option_field("--record FILE", "Append every response to this recording.", "Targets", "file")
    replay: str | None = option_field(
        "--replay FILE|RUN",
        "Answer every call from a recording or an earlier run; no target is called.",
        "Targets",
        "path",
        names_run=True,
    )
    transcript: str | None = option_field(
        "--transcript FILE|DIR",
        "Score recorded sessions of a coding agent, or traces, instead of calling a target. Without PATHS, each "
        "session is a case.",
        "Targets",
        "path",
    )
    dump_prompts: str | None = option_field(
        "--dump-prompts [DIR]",
        "Write the prompt of each job to a file in the run folder, or in DIR.",
        value_is_optional=True,
    )
    dump_traces: str | None = option_field(
        "--dump-traces [DIR]",
        "Write the messages of each job to a file in the run folder, or in DIR.",
        value_is_optional=True,
    )
    include_trace: bool = option_field("--include-trace", "Store the full message list in every record.", default=False)
    executor: str | None = option_field(
        "--executor NAME",
        "Run jobs in this process (local, the default), on all cores (process) or on a cluster (ray).",
        "Limits",
    )
    processes: Count | None = option_field(
        "--processes N", "Number of worker processes (default: one for each core).", "Limits"
    )
    ray_address: str | None = option_field(
        "--ray-address ADDRESS", "Ray cluster to use (default: Ray on this machine).", "Limits"
    )
    experiment: str | None = option_field(
        "--experiment NAME", "Name that groups runs; @NAME is the newest of them wherever a RUN is expected."
    )
    sandbox: Engine | None = option_field(
        "--sandbox",
        "Isolate commands, agents, hooks, tools and code judges with this engine; auto is Landlock or bubblewrap.",
        "Limits",
    )
    trace_port: Annotated[int, Meta(ge=0, le=65535)] | None = option_field(
        "--trace-port N",
        "Port on which spans of targets with `traces` are received (default: AGENTV_TRACE_PORT, else 4318).",
        "Targets",
        affects_scores=False,
    )
    variants: tuple[Variant, ...] = ()
    evaluators: tuple[Any, ...] | None = None

    @property
    def selection(self) -> Selection:
        """Return the selection of cases. Reads the earlier run for `only`, and the list `cases_from`."""
        cases = None if self.cases_from is None else read_case_list(self.cases_from)
        choice = Selection(self.filters, self.sample, self.seed or 0, self.shard, self.limit, self.cases, listed=cases)
        choice = msgspec.structs.replace(choice, rows=self.rows, split=self.split)
        if self.only is None and self.only_from is None:
            return choice
        if self.only is None or self.only_from is None:
            raise UsageError("--only and --from must be used together", hint="For example: --only failed --from RUN")
        return msgspec.structs.replace(choice, named=cases_that_ended(self.only_from, self.only))

    def open_cases(self, warn: Callable[[DatasetWarning], None], note: Callable[[str], None]) -> CaseSource:
        """Open the selected cases at `paths`."""
        return case_source(self.paths, warn=warn, note=note, options=self.reading, selection=self.selection)

    @property
    def reading(self) -> Reading:
        """Return the options for reading datasets."""
        return Reading(self.allow_outside_files, self.max_line_bytes, self.on_error, self.fields or "", self.strict)

    @property
    def narrows(self) -> bool:
        """Whether these options may select only some of the cases."""
        choices = (self.cases_from, self.sample, self.shard, self.limit, self.only, self.rows, self.split)
        is_limited = self.cases_budget is not None or any(choice is not None for choice in choices)
        return bool(self.filters or self.cases) or is_limited

    def for_all_cases(self) -> Self:
        """Return the options without a selection of cases."""
        nothing: dict[str, Any] = dict.fromkeys(
            ("cases_from", "sample", "shard", "limit", "rows", "split", "cases_budget")
        )
        return msgspec.structs.replace(self, filters=(), cases=(), only=None, only_from=None, **nothing)

    def lasting(self) -> Self:
        """Return the options with a valid experiment, and with runs that are named independently of later runs."""
        if self.experiment is not None:
            check_run_name(self.experiment, "experiment")
        declared = declared_options(type(self))
        names = {name: getattr(self, name) for name, option in declared.items() if option.names_run}
        changed: dict[str, Any] = {
            name: lasting_name(value) for name, value in names.items() if isinstance(value, str) and name != "stop_when"
        }
        if isinstance(self.stop_when, str) and not _LIMIT.fullmatch(self.stop_when):
            with suppress(UsageError):  # an invalid rule is refused later
                changed["stop_when"] = lasting_baseline(self.stop_when)
        if self.cases_budget is not None and self.gates is not None:
            baseline = tuple(map(lasting_name, self.gates.baseline))
            changed["gates"] = msgspec.structs.replace(self.gates, baseline=baseline)
        if self.transcript is not None:
            changed |= self._of_transcript()
        return msgspec.structs.replace(self, **changed) if changed else self

    def _of_transcript(self) -> dict[str, Any]:
        """Return the options for recorded sessions: one target, and without datasets the sessions as cases."""
        if self.replay is not None:
            raise UsageError("--transcript and --replay cannot be combined", hint="Pass one of them")
        if len(self.targets) > 1:
            raise UsageError(
                "--transcript answers for one target, got several", hint="Pass --target once, or not at all"
            )
        paths = self.paths or (() if self._continues else (self.transcript or "",))
        if not self.paths and not self._continues:
            from agentv.targets.recordings.session_answers import require_sessions  # late: few runs score sessions

            require_sessions(os.path.expanduser(self.transcript or ""))
        return {"targets": self.targets or (TRANSCRIPT,), "paths": paths}

    @property
    def _continues(self) -> bool:
        """Whether the datasets may be those of an earlier run."""
        return (self.retry_errors, self.changed_since, self.only_from) != (None, None, None)

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        default, values = type(self)(), msgspec.structs.asdict(self)
        return {name: value for name, value in values.items() if value != getattr(default, name)}

    def contradicted_by(self, other: "EvalOptions") -> list[str]:
        """Return the names of options set in `other` that have a different value here."""
        return [name for name, value in other.given().items() if getattr(self, name) != value]


class RescoreOptions(EvalOptions, frozen=True, kw_only=True, omit_defaults=True):
    """The options of `agentv rescore`.

    `run` is the run to rescore. Without `paths`, the cases come from its datasets, or with `stored_cases` from its run
    folder. With `every_evaluator`, unchanged evaluators run as well.
    """

    run: str = ""
    stored_cases: bool = option_field(
        "--stored-cases", "Read the cases from the run folder instead of the datasets.", "Scoring", default=False
    )
    every_evaluator: bool = option_field(
        "--all", "Run every evaluator, not only those that changed.", "Scoring", default=False
    )


CALL_LIMITS = frozenset(name for name, option in declared_options(EvalOptions).items() if not option.affects_scores)
"""The options that may differ when a run is resumed."""
