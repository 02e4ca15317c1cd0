"""Find earlier runs by path or id, and their cases by outcome."""

from __future__ import annotations

import os
from typing import Literal

from agentv.datasets.files import project_root
from agentv.errors import UsageError
from agentv.runs.folder import RESULTS_FOLDER, RunFolder
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore

Ended = Literal["failed", "borderline", "errors"]

_NONE = {"failed": "No case failed", "borderline": "No case is borderline", "errors": "No case errored"}

CaseName = tuple[str, str]
"""Dataset name and case id: identifies a case across runs, wherever the dataset is stored."""


def run_path(given: str) -> str:
    """Return the path of a run given by path, or by its id in the project."""
    if os.path.exists(given) or os.sep in given:
        return given
    kept = os.path.join(project_root("."), RESULTS_FOLDER, given)
    return kept if os.path.exists(kept) else given


def run_name(path: str) -> str:
    """Return the shortest RUN argument for a run on disk: its id if that is enough, else its path."""
    name, shown = os.path.basename(path), os.path.relpath(path)
    found = run_path(name)
    return name if os.path.exists(found) and os.path.samefile(found, path) else shown


def existing_run(given: str) -> str:
    """Return the absolute path of a run. Raises UsageError if it does not exist."""
    path = run_path(given)
    if not os.path.exists(path):
        raise UsageError(f"No such run: {given}", hint=f"Runs are in {RESULTS_FOLDER}")
    return os.path.abspath(path)


def open_run(given: str) -> RunFolder:
    """Open the folder of a run. Raises UsageError if it does not exist or contains no run."""
    existing_run(given)
    return RunFolder.open(run_path(given))


def named_run(given: str) -> tuple[str, str | None]:
    """Split `RUN`, `RUN:target` or `RUN:prompt` into the run's path and the suffix. Raises UsageError."""
    path = run_path(given)
    if os.path.exists(path):
        return path, None
    run, target = given, ""
    # Target names can contain colons, as model names do.
    while ":" in run:
        run, _, further = run.rpartition(":")
        target = f"{further}:{target}" if target else further
        if run and target and os.path.exists(run_path(run)):
            return run_path(run), target
    raise UsageError(
        f"No such run: {given}",
        hint=f"Runs are in {RESULTS_FOLDER}; RUN:target selects one target, RUN:prompt one prompt",
    )


def cases_that_ended(run: str, ended: Ended) -> frozenset[CaseName]:
    """Return the cases that have a job with this outcome. Raises UsageError if there are none."""
    verdicts = {"failed": "fail", "borderline": "borderline"}
    found = frozenset(
        (record.dataset, record.eval_id)
        for record in RunStore.open(run_path(run)).records(ScoreRecord)
        if (record.status == "error" if ended == "errors" else record.verdict == verdicts[ended])
    )
    if not found:
        raise UsageError(f"{_NONE[ended]} in {run}", hint="--only takes failed, borderline or errors")
    return found
