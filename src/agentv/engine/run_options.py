"""What a run is asked to do: the options of `agentv eval`, as plain data that a manifest keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from agentv.datasets.case.header import config_file
from agentv.datasets.dataset import Options as Reading
from agentv.datasets.formats.lines import MAX_LINE_BYTES
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.formats.yaml_parser import locate
from agentv.datasets.loader import CaseSource, case_source
from agentv.datasets.selection import Selection
from agentv.engine.named_runs import Ended, cases_that_ended
from agentv.errors import DatasetWarning, InvalidDatasetError, UsageError
from agentv.model.evaluator import DEFAULT_TARGET
from agentv.settings.diagnostics import Problems, did_you_mean
from agentv.settings.settings_reader import ProjectConfig, RunDefaults, check_config, read_settings

Share = Annotated[float, Meta(ge=0, le=1)]
Options = TypeVar("Options", bound="EvalOptions")
Positive = Annotated[float, Meta(gt=0)]


class Gates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run must reach for exit code 0. `max_errors` is a number of jobs, or a share when `errors_are_share`."""

    threshold: Share | None = None
    min_pass_rate: Share | None = None
    max_errors: Annotated[float, Meta(ge=0)] | None = None
    errors_are_share: bool = False

    def errors_allowed(self, jobs: int, *, other_gates: bool = False) -> float:
        """How many jobs may end in errors. Where a score is asked for, none may unless that is said."""
        if self.max_errors is None:
            gated = other_gates or self.threshold is not None or self.min_pass_rate is not None
            return 0 if gated else float("inf")
        return number_of(self.max_errors, self.errors_are_share, jobs)


class EvalOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Defaults are left out of a manifest. What only concerns how a run is shown or where it is kept is not here.

    `retry_errors` and `changed_since` name an earlier run whose records are carried over as far as they hold; `only`
    and `only_from` choose the cases that ended so in one. `dump_prompts` and `dump_traces` are folders, empty for one
    in the run's own.
    """

    paths: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    targets_file: str | None = None
    judge: str | None = None
    workers: Annotated[int, Meta(ge=1)] | None = None
    trials: Annotated[int, Meta(ge=1)] | None = None
    filters: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    sample: int | float | None = None
    seed: int = 0
    shard: tuple[int, int] | None = None
    limit: int | None = None
    timeout_s: Positive | None = None
    max_retries: Annotated[int, Meta(ge=0)] | None = None
    on_error: Literal["stop", "skip"] = "stop"
    allow_outside_files: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    budget_usd: Positive | None = None
    fail_fast: bool = False
    stop_when: str | float | None = None
    gates: Gates | None = None
    retry_errors: str | None = None
    changed_since: str | None = None
    only: Ended | None = None
    only_from: str | None = None
    cache: bool = False
    record: str | None = None
    replay: str | None = None
    dump_prompts: str | None = None
    dump_traces: str | None = None
    include_trace: bool = False
    executor: str | None = None
    processes: Annotated[int, Meta(ge=1)] | None = None
    ray_address: str | None = None

    @property
    def selection(self) -> Selection:
        """Which cases are wanted. Reads the earlier run that `only` is about."""
        wanted = Selection(self.filters, self.sample, self.seed, self.shard, self.limit, self.cases)
        if self.only is None and self.only_from is None:
            return wanted
        if self.only is None or self.only_from is None:
            raise UsageError("--only and --from belong together", hint="For example: --only failed --from RUN")
        return msgspec.structs.replace(wanted, named=cases_that_ended(self.only_from, self.only))

    def open_cases(self, warn: Callable[[DatasetWarning], None], note: Callable[[str], None]) -> CaseSource:
        """The cases at `paths`, as selected."""
        reading = Reading(self.allow_outside_files, self.max_line_bytes, self.on_error)
        return case_source(self.paths, warn=warn, note=note, options=reading, selection=self.selection)

    @property
    def narrows(self) -> bool:
        """Whether fewer cases may be wanted than there are."""
        return bool(self.filters or self.cases) or (self.sample, self.shard, self.limit, self.only) != (
            None,
            None,
            None,
            None,
        )

    def given(self) -> dict[str, Any]:
        """The options that have another value than their default."""
        default = type(self)()
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value != getattr(default, name)}

    def contradicted_by(self, other: EvalOptions) -> list[str]:
        """The options that were given in `other` and have another value here."""
        return [name for name, value in other.given().items() if getattr(self, name) != value]


class RescoreOptions(EvalOptions, frozen=True, kw_only=True, omit_defaults=True):
    """The options of `agentv rescore`. `run` is the run whose answers are scored; without `paths`, the cases are those
    of its datasets, or with `stored_cases` those that its folder kept. `evaluators` are entries that replace the cases'
    own; with `every_evaluator` those run too that have not changed."""

    run: str = ""
    stored_cases: bool = False
    evaluators: tuple[Any, ...] | None = None
    every_evaluator: bool = False


def parse_max_errors(text: str, option: str = "--max-errors") -> tuple[float, bool]:
    """`3` is a number of jobs, `5%` a share of them."""
    try:
        share = text.endswith("%")
        value = float(text[:-1]) / 100 if share else float(int(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= (1 if share else math.inf):
        raise UsageError(f"{option} takes a number or a share such as 5%, got {text!r}")
    return value, share


def number_of(value: float, is_share: bool, total: int) -> float:
    """The number that `parse_max_errors` read, of so many in all."""
    # Rounded, for 29 % of 100 are 29, and as floats a little less.
    return round(value * total, 6) if is_share else value


def options_from_data(data: dict[str, Any], kind: type[Options]) -> Options:
    """The options that a manifest kept."""
    return msgspec.convert(data, kind)


Value = TypeVar("Value")


def first_given(*values: Value | None) -> Value | None:
    """The first that is not None: values go from strongest to weakest."""
    return next((value for value in values if value is not None), None)


def load_defaults(folder: str, root: str, warn: Callable[[DatasetWarning], None]) -> RunDefaults:
    """What the nearest configuration from a folder up to the root says of runs; nothing where there is none."""
    path = config_file(folder, root)
    if path is None:
        return RunDefaults()
    data = parse_yaml_file(path)
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
    """What a configuration says, as a manifest keeps it."""
    said: dict[str, Any] = msgspec.to_builtins(defaults)
    return {name: value for name, value in said.items() if value is not None}


def default_target(known: Sequence[str], defaults: RunDefaults) -> str | None:
    """Who answers where nobody is named: the configuration's target, else `default`, else the only one there is."""
    if defaults.target is not None:
        if defaults.target not in known:
            hint = did_you_mean(defaults.target, known) or f"Known targets: {', '.join(known) or 'none'}"
            detail = "'execution.target' of .agentv/config.yaml names it"
            raise UsageError(f"Unknown target '{defaults.target}'", detail, hint)
        return defaults.target
    if DEFAULT_TARGET in known:
        return DEFAULT_TARGET
    return known[0] if len(known) == 1 else None
