"""What a run is asked to do: the options of `agentv eval`, as plain data that a manifest keeps."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from agentv.datasets.lines import MAX_LINE_BYTES
from agentv.datasets.select import Selection, selection
from agentv.engine.runs import Ended, cases_that_ended
from agentv.errors import UsageError

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
    executor: str = "local"

    @property
    def selection(self) -> Selection:
        """Which cases are wanted. Reads the earlier run that `only` is about."""
        wanted = selection(self.filters, self.sample, self.seed, self.shard, self.limit, self.cases)
        if self.only is None and self.only_from is None:
            return wanted
        if self.only is None or self.only_from is None:
            raise UsageError("--only and --from belong together", hint="For example: --only failed --from RUN")
        return msgspec.structs.replace(wanted, named=cases_that_ended(self.only_from, self.only))

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
