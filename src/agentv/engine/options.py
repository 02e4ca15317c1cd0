"""What a run is asked to do: the options of `agentv eval`, as plain data that a manifest keeps."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.datasets.lines import MAX_LINE_BYTES
from agentv.datasets.select import Selection, selection
from agentv.errors import UsageError


class Gates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run must reach for exit code 0. `max_errors` is a number of jobs, or a share when `errors_are_share`."""

    threshold: float | None = None
    min_pass_rate: float | None = None
    max_errors: float | None = None
    errors_are_share: bool = False

    @property
    def has_quality_gate(self) -> bool:
        """Whether a score or a pass rate is asked for; then errors are not tolerated unless that is said."""
        return self.threshold is not None or self.min_pass_rate is not None

    def errors_allowed(self, jobs: int) -> float:
        """How many jobs may end in errors."""
        if self.max_errors is None:
            return 0 if self.has_quality_gate else float("inf")
        return self.max_errors * jobs if self.errors_are_share else self.max_errors


class EvalOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Defaults are left out of a manifest. What only concerns how a run is shown or where it is kept is not here."""

    paths: tuple[str, ...]
    targets: tuple[str, ...] = ()
    targets_file: str | None = None
    judge: str | None = None
    workers: Annotated[int, Meta(ge=1)] | None = None
    trials: Annotated[int, Meta(ge=1)] | None = None
    filters: tuple[str, ...] = ()
    sample: int | float | None = None
    seed: int = 0
    shard: tuple[int, int] | None = None
    limit: int | None = None
    timeout_s: float | None = None
    max_retries: int | None = None
    on_error: str = "stop"
    allow_outside_files: bool = False
    max_line_bytes: int = MAX_LINE_BYTES
    budget_usd: float | None = None
    fail_fast: bool = False
    gates: Gates | None = None

    @property
    def selection(self) -> Selection:
        """Which cases are wanted."""
        return selection(self.filters, self.sample, self.seed, self.shard, self.limit)

    def differences(self, other: EvalOptions) -> list[str]:
        """The options that have another value in `other`."""
        return [name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name)]


def parse_max_errors(text: str) -> tuple[float, bool]:
    """`3` is a number of jobs, `5%` a share of them."""
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100, True
        return float(int(text)), False
    except ValueError:
        raise UsageError(f"--max-errors takes a number or a share such as 5%, got {text!r}") from None


def options_from_data(data: dict[str, Any]) -> EvalOptions:
    """The options that a manifest kept."""
    return msgspec.convert(data, EvalOptions)
