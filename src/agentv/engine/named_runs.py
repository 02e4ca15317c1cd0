"""Earlier runs as options name them: by path or by id, and which of their cases ended in a certain way."""

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
"""Dataset and id: what a case is called in any run, whatever path its dataset had there."""


def run_path(given: str) -> str:
    """A run's folder or file as it is named, else the run of that id that the project keeps."""
    if os.path.exists(given) or os.sep in given:
        return given
    kept = os.path.join(project_root("."), RESULTS_FOLDER, given)
    return kept if os.path.exists(kept) else given


def run_name(path: str) -> str:
    """What a run on disk is called so that every command finds it: by its name where that does, else by its path."""
    name, shown = os.path.basename(path), os.path.relpath(path)
    found = run_path(name)
    return name if os.path.exists(found) and os.path.samefile(found, path) else shown


def existing_run(given: str) -> str:
    """The same, from anywhere. Raises UsageError with the run as it was named when there is none."""
    path = run_path(given)
    if not os.path.exists(path):
        raise UsageError(f"No such run: {given}", hint=f"Runs are kept in {RESULTS_FOLDER}")
    return os.path.abspath(path)


def open_run(given: str) -> RunFolder:
    """The folder of a run that is named. Raises UsageError when there is none, or when it holds no run."""
    existing_run(given)
    return RunFolder.open(run_path(given))


def named_run(given: str) -> tuple[str, str | None]:
    """The run that `RUN`, `RUN:target` or `RUN:prompt` names, and what is behind the colon. Raises UsageError."""
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
    """The cases of which a job ended so. Raises UsageError when there is none."""
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
