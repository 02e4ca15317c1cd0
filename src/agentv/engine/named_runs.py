"""Find earlier runs by path or id, and their cases by how they ended."""

from __future__ import annotations

import os
from typing import Literal

from agentv.datasets.files import project_root
from agentv.errors import UsageError
from agentv.model.result import Result
from agentv.runs.folder import RESULTS_FOLDER, RunFolder
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore

Ended = Literal["failed", "borderline", "errors"]

_NONE = {"failed": "No case failed", "borderline": "No case is borderline", "errors": "No case ended in an error"}

CaseName = tuple[str, str]
"""Dataset and id: the name of a case in any run, wherever its dataset is."""


def run_path(given: str) -> str:
    """The path as given, or else the run with that id in the project."""
    if os.path.exists(given) or os.sep in given:
        return given
    kept = os.path.join(project_root("."), RESULTS_FOLDER, given)
    return kept if os.path.exists(kept) else given


def run_name(path: str) -> str:
    """What commands take as RUN for a run on disk: its name if that is enough, else its path."""
    name, shown = os.path.basename(path), os.path.relpath(path)
    found = run_path(name)
    return name if os.path.exists(found) and os.path.samefile(found, path) else shown


def existing_run(given: str) -> str:
    """The absolute path of a run. Raises UsageError when there is none."""
    path = run_path(given)
    if not os.path.exists(path):
        raise UsageError(f"No such run: {given}", hint=f"Runs are kept in {RESULTS_FOLDER}")
    return os.path.abspath(path)


def open_run(given: str) -> RunFolder:
    """The folder of a run. Raises UsageError when there is none, or no run in it."""
    existing_run(given)
    return RunFolder.open(run_path(given))


def named_run(given: str) -> tuple[str, str | None]:
    """The path of `RUN`, `RUN:target` or `RUN:prompt`, and what follows the colon. Raises UsageError."""
    path = run_path(given)
    if os.path.exists(path):
        return path, None
    run, target = given, ""
    # Names of targets have colons too, as those of models do.
    while ":" in run:
        run, _, further = run.rpartition(":")
        target = f"{further}:{target}" if target else further
        if run and target and os.path.exists(run_path(run)):
            return run_path(run), target
    raise UsageError(
        f"No such run: {given}",
        hint=f"Runs are kept in {RESULTS_FOLDER}; RUN:target picks one target, RUN:prompt one prompt",
    )


def cases_that_ended(run: str, ended: Ended) -> frozenset[CaseName]:
    """The cases with a job that ended this way. Raises UsageError when there is none."""
    found = frozenset(
        (result.dataset, result.eval_id)
        for result in RunStore.open(run_path(run)).records(ScoreRecord)
        if _ended(result, ended)
    )
    if not found:
        raise UsageError(f"{_NONE[ended]} in {run}", hint="--only takes failed, borderline or errors")
    return found


def _ended(result: Result | ScoreRecord, ended: Ended) -> bool:
    if ended == "errors":
        return result.status == "error"
    return result.verdict == ("fail" if ended == "failed" else "borderline")
