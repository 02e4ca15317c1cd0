"""How far a run got that was stopped or is still running."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from agentv.comparison.scores import RunScores
from agentv.errors import EXIT_BUDGET, EXIT_INTERRUPTED
from agentv.model.manifest import RunManifest
from agentv.runs.folder_lock import is_locked

Reason = Literal["running", "interrupted", "budget", "fail-fast", "stopped"]


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """A run that lacks results: how many there are, of how many, and why."""

    done: int
    planned: int
    unit: Literal["case", "job"]
    reason: Reason


def unfinished(run: RunScores) -> Unfinished | None:
    """Return how far a run got that was stopped or is still running; None if it is complete or was decided early."""
    manifest = run.manifest
    if manifest is None or manifest.counts is None or manifest.stopped_early:
        return None
    if manifest.finished_at is not None and not manifest.counts.skipped:
        return None
    planned = manifest.counts.cases
    is_single = len(run.targets) < 2 and len(run.prompts) < 2
    cases = len(run.cases) if is_single else len(np.unique(run.cases.codes((0, 1))))
    if cases < planned:
        return Unfinished(done=cases, planned=planned, unit="case", reason=_reason(run, manifest))
    if run.picked is not None:
        return None  # the number of its jobs is not known
    jobs = Unfinished(done=run.records, planned=manifest.counts.jobs, unit="job", reason=_reason(run, manifest))
    return jobs if jobs.done < jobs.planned else None


def _reason(run: RunScores, manifest: RunManifest) -> Reason:
    if is_locked(run.run.path):
        return "running"
    reasons: dict[int | None, Reason] = {EXIT_INTERRUPTED: "interrupted", EXIT_BUDGET: "budget"}
    stopped: Reason = "fail-fast" if manifest.exit_code and manifest.options.get("fail_fast") else "stopped"
    return reasons.get(manifest.exit_code, stopped)
