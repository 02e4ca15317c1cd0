"""The gates of a command: conditions for exit code 0."""

# Without `from __future__ import annotations`: types are read here, and parsing them would take longer.

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from agentv.errors import UsageError
from agentv.settings.command_option import OptionStruct, option_field

Share = Annotated[float, Meta(ge=0, le=1)]


class Gates(OptionStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Conditions for exit code 0. `max_errors` is a number of jobs, or a fraction if `errors_are_share`.

    `gate_on` decides means and pass rates by their values, or by their whole 95 % intervals. `min_score` is for the
    mean of every case over its trials. `no_gate` switches the gates of files off. `baseline` names the runs that cases
    of a prompt file with a `regression_tolerance` are compared with.
    """

    threshold: Share | None = option_field(
        "--threshold X", "Fail if the mean score of a target is below X (0 to 1).", "Scoring"
    )
    min_pass_rate: Share | None = option_field(
        "--min-pass-rate X", "Fail if the pass rate of the scored jobs is below X (0 to 1).", "Scoring"
    )
    min_score: Share | None = option_field(
        "--min-score X", "Fail if the mean score of any case over its trials is below X (0 to 1).", "Scoring"
    )
    no_gate: bool = option_field(
        "--no-gate",
        "Ignore the gates of files: thresholds of datasets, and that every test of a promptfoo configuration has to "
        "pass.",
        "Scoring",
        default=False,
    )
    baseline: tuple[str, ...] = option_field(
        "--baseline RUN",
        "Earlier run to check `regression_tolerance` of AgentMark's prompt files against. Repeat it, or name an "
        "experiment, @BRANCH or @COMMIT, to pool runs of the same target, cases and measure.",
        "Scoring",
        default=(),
    )
    gate_on: Literal["point", "interval"] = option_field(
        "--gate-on",
        "Decide --threshold, --min-pass-rate and thresholds of evaluators by the value itself (point) or by its "
        "whole 95 % interval, with errors counted against it (interval). Exit code 5 if the interval includes the "
        "limit.",
        "Scoring",
        default="point",
    )
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
