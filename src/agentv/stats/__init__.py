"""Statistics of scores: pure functions and accumulators over numbers, without I/O.

`distributions`, `intervals`, `sequential`, `power` and `variance` are plain Python, because runs use them. The other
modules work on arrays and import numpy. Every name is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

NAMES = {
    "intervals": ("wilson", "clopper_pearson", "MeanAccumulator", "pass_at_k", "pass_hat_k"),
    "means": ("clustered_mean", "paired_difference", "t_test"),
    "paired_comparison": ("compare_paired", "mcnemar_exact", "mcnemar_mid_p", "share_difference", "sign_flip_test"),
    "power": (
        "Noise",
        "detectable_difference",
        "cases_needed",
        "cases_for_margin",
        "cases_for_gate",
        "variance_between_runs",
        "variance_of_difference",
        "non_inferiority",
        "holm",
    ),
    "judge_calibration": ("cohen_kappa", "kappa", "Stratum", "Labelled"),
    "ranking": ("rank",),
    "sequential": ("BettingMean",),
    "variance": ("GroupedScores", "VarianceComponents"),
    "level_changes": ("change_points", "RunValues"),
}
"""The public names, by module."""

__all__ = [name for names in NAMES.values() for name in names]


def __getattr__(name: str) -> Any:
    home = next((module for module, names in NAMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'agentv.stats' has no attribute {name!r}")
    return getattr(import_module(f"agentv.stats.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
