"""The options of `agentv eval` and `agentv rescore`, as plain data stored in the manifest."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec
from msgspec import Meta

from agentv.datasets.case.header import config_file
from agentv.datasets.dataset import Options as Reading
from agentv.datasets.loader import CaseSource, case_source
from agentv.datasets.selection import Selection, read_case_list
from agentv.engine.named_runs import Ended, cases_that_ended, check_run_name, lasting_name
from agentv.errors import DatasetWarning, InvalidDatasetError, UsageError
from agentv.model.diagnostics import MOST_TRIALS, Problems, did_you_mean
from agentv.model.evaluator import DEFAULT_TARGET
from agentv.model.sandbox_settings import Engine
from agentv.settings.project import ignored_marks
from agentv.settings.settings_file import parse_settings_file
from agentv.settings.settings_reader import ProjectConfig, RunDefaults, check_config, read_settings
from agentv.support.lines import MAX_LINE_BYTES
from agentv.support.yaml.yaml_parser import locate
from agentv.targets.variants import Variant
from agentv.trust.roots import distrust

Share = Annotated[float, Meta(ge=0, le=1)]
Options = TypeVar("Options", bound="EvalOptions")
Positive = Annotated[float, Meta(gt=0)]

_RUN_OPTIONS = ("retry_errors", "changed_since", "only_from", "replay", "stop_when")
"""The options that may name an earlier run."""

TRANSCRIPT = "transcript"
"""The name of the target that recorded sessions answer for, unless another is given."""

CALL_LIMITS = (
    "budget_usd",
    "deadline_s",
    "workers",
    "timeout_s",
    "max_retries",
    "max_outage_s",
    "keep_going",
    "trace_port",
)
"""The options that may differ when a run is resumed, because they do not affect scores."""


class Gates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Conditions for exit code 0. `max_errors` is a number of jobs, or a fraction if `errors_are_share`.

    `gate_on` decides means and pass rates by their values, or by their whole 95 % intervals. `min_score` is for the
    mean of every case over its trials. `no_gate` switches the gates of files off. `baseline` is the run that cases of
    a prompt file with a `regression_tolerance` are compared with.
    """

    threshold: Share | None = None
    min_pass_rate: Share | None = None
    min_score: Share | None = None
    no_gate: bool = False
    baseline: str | None = None
    gate_on: Literal["point", "interval"] = "point"
    max_errors: Annotated[float, Meta(ge=0)] | None = None
    errors_are_share: bool = False

    @property
    def is_set(self) -> bool:
        """Whether there is a minimum for scores or for the pass rate."""
        return any(least is not None for least in (self.threshold, self.min_pass_rate, self.min_score))

    def decides_nothing(self, thresholds: Mapping[str, float]) -> bool:
        """Return whether gates are to be decided by interval, but there are none; `thresholds` are of evaluators."""
        is_gated = bool(thresholds) or self.threshold is not None or self.min_pass_rate is not None
        return self.gate_on == "interval" and not is_gated

    def errors_allowed(self, jobs: int, *, other_gates: bool = False) -> float:
        """Return how many jobs may error: none by default if there is another gate."""
        if self.max_errors is None:
            return 0 if other_gates or self.is_set else float("inf")
        return number_of(self.max_errors, self.errors_are_share, jobs)


class EvalOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that affect the results of a run. Defaults are omitted from the manifest.

    `seed` is that of `sample`, 0 if it is None, and of the random order of `stop_when`. If it is None, that order has a
    `draw_seed` of its own, which is drawn when the run is prepared, so that a resumed run has the same order.

    `retry_errors` and `changed_since` name an earlier run whose valid records are carried over; `only` selects the
    cases with that outcome in the run `only_from`, `cases_from` those listed in a file. `dump_prompts` and
    `dump_traces` are folders; empty means one inside the run folder. `experiment` is a name that groups runs.
    `variants` are further targets, made from those of the file.
    `trace_port` is where spans of targets with `traces` are received; 0 for any free port.
    `transcript` has recorded sessions that answer for the target. `evaluators` replace those of the cases.
    """

    paths: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    targets_file: str | None = None
    judge: str | None = None
    workers: Annotated[int, Meta(ge=1)] | None = None
    trials: Annotated[int, Meta(ge=1, le=MOST_TRIALS)] | None = None
    filters: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    cases_from: str | None = None
    sample: int | float | None = None
    seed: int | None = None
    draw_seed: int | None = None
    shard: tuple[int, int] | None = None
    limit: int | None = None
    rows: tuple[tuple[int, int], ...] | None = None
    split: tuple[str, float] | None = None
    skip_eval: bool = False
    timeout_s: Positive | None = None
    max_retries: Annotated[int, Meta(ge=0)] | None = None
    max_outage_s: Annotated[float, Meta(ge=0)] | None = None
    on_error: Literal["stop", "skip"] = "stop"
    allow_outside_files: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    fields: str | None = None
    strict: bool = False
    budget_usd: Positive | None = None
    deadline_s: Positive | None = None
    fail_fast: bool = False
    keep_going: bool = False
    stop_when: str | float | None = None
    gates: Gates | None = None
    retry_errors: str | None = None
    changed_since: str | None = None
    only: Ended | None = None
    only_from: str | None = None
    cache: bool = False
    batch: bool = False
    record: str | None = None
    replay: str | None = None
    transcript: str | None = None
    dump_prompts: str | None = None
    dump_traces: str | None = None
    include_trace: bool = False
    executor: str | None = None
    processes: Annotated[int, Meta(ge=1)] | None = None
    ray_address: str | None = None
    experiment: str | None = None
    sandbox: Engine | None = None
    trace_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    variants: tuple[Variant, ...] = ()
    evaluators: tuple[Any, ...] | None = None

    @property
    def selection(self) -> Selection:
        """Return the selection of cases. Reads the earlier run for `only`, and the list `cases_from`."""
        listed = None if self.cases_from is None else read_case_list(self.cases_from)
        wanted = Selection(self.filters, self.sample, self.seed or 0, self.shard, self.limit, self.cases, listed=listed)
        wanted = msgspec.structs.replace(wanted, rows=self.rows, split=self.split)
        if self.only is None and self.only_from is None:
            return wanted
        if self.only is None or self.only_from is None:
            raise UsageError("--only and --from must be used together", hint="For example: --only failed --from RUN")
        return msgspec.structs.replace(wanted, named=cases_that_ended(self.only_from, self.only))

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
        return bool(self.filters or self.cases) or any(choice is not None for choice in choices)

    def for_all_cases(self) -> Self:
        """Return the options without a selection of cases."""
        nothing: dict[str, Any] = dict.fromkeys(("cases_from", "sample", "shard", "limit", "rows", "split"))
        return msgspec.structs.replace(self, filters=(), cases=(), only=None, only_from=None, **nothing)

    def lasting(self) -> Self:
        """Return the options with a valid experiment, and with runs that are named independently of later runs."""
        if self.experiment is not None:
            check_run_name(self.experiment, "experiment")
        names = {name: getattr(self, name) for name in _RUN_OPTIONS}
        changed: dict[str, Any] = {
            name: lasting_name(given)
            for name, given in names.items()
            if isinstance(given, str) and not (name == "stop_when" and given.isdigit())
        }
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
            from agentv.targets.recordings.session_answers import (
                require_sessions,
            )  # late: few runs score recorded sessions

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

    def contradicted_by(self, other: EvalOptions) -> list[str]:
        """Return the names of options set in `other` that have a different value here."""
        return [name for name, value in other.given().items() if getattr(self, name) != value]


class RescoreOptions(EvalOptions, frozen=True, kw_only=True, omit_defaults=True):
    """The options of `agentv rescore`.

    `run` is the run to rescore. Without `paths`, the cases come from its datasets, or with `stored_cases` from its run
    folder. With `every_evaluator`, unchanged evaluators run as well.
    """

    run: str = ""
    stored_cases: bool = False
    every_evaluator: bool = False


def parse_max_errors(text: str, option: str = "--max-errors") -> tuple[float, bool]:
    """Parse a number of jobs (`3`) or a percentage (`5%`); return the value and whether it is a fraction."""
    try:
        share = text.endswith("%")
        value = float(text[:-1]) / 100 if share else float(int(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= (1 if share else math.inf):
        raise UsageError(f"{option} takes a number or a percentage such as 5%, got {text!r}")
    return value, share


def number_of(value: float, is_share: bool, total: int) -> float:
    """Convert a result of `parse_max_errors` to a number of jobs."""
    # Rounded, because 29% of 100 is slightly less than 29 in floating point.
    return round(value * total, 6) if is_share else value


Value = TypeVar("Value")


def first_given(*values: Value | None) -> Value | None:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def load_defaults(folder: str, root: str, warn: Callable[[DatasetWarning], None]) -> RunDefaults:
    """Read the run defaults from the nearest configuration file between a folder and the project root."""
    path = config_file(folder, root)
    for parent, reason in ignored_marks(folder).items():
        warn(DatasetWarning(f"{parent} is not your project: {reason}. If you trust it, pass --trust {parent}"))
    if path is not None and (reason := distrust(path)):
        warn(DatasetWarning(f"{path} is not used: {reason}"))
        path = None
    if path is None:
        return RunDefaults()
    data = parse_settings_file(path)
    for problem in check_config(data):
        mark = locate(data, problem.path)
        line = mark.line if mark else 1
        if problem.severity == "warning":
            hint = f" ({problem.hint})" if problem.hint else ""
            message = f"{path}, line {line}: {problem.message}{hint}"
            warn(DatasetWarning(message, path=path, line=line, field=problem.field, hint=problem.hint))
            continue
        headline = f"Invalid configuration at line {line} in {path}"
        raise InvalidDatasetError(headline, problem.message, problem.hint, path=path, line=line)
    config = read_settings(ProjectConfig, data, (), Problems()) if data is not None else None
    return config.execution if config is not None else RunDefaults()


def given_defaults(defaults: RunDefaults) -> dict[str, Any]:
    """Return the configured run defaults as stored in the manifest."""
    values: dict[str, Any] = msgspec.to_builtins(defaults)
    return {name: value for name, value in values.items() if value is not None}


def default_target(known: Sequence[str], defaults: RunDefaults) -> str | None:
    """Return the default target: the configured one, else the one named `default`, else the only one."""
    if defaults.target is not None:
        if defaults.target not in known:
            hint = did_you_mean(defaults.target, known) or f"Known targets: {', '.join(known) or 'none'}"
            detail = "Set as 'execution.target' in .agentv/config.yaml"
            raise UsageError(f"Unknown target '{defaults.target}'", detail, hint)
        return defaults.target
    if DEFAULT_TARGET in known:
        return DEFAULT_TARGET
    return known[0] if len(known) == 1 else None
