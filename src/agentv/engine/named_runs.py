"""Find earlier runs by path, id, age, tag or experiment, and their cases by outcome."""

from __future__ import annotations

import os
import re
from typing import Literal

from agentv.datasets.selection import CaseName
from agentv.errors import UsageError, plural
from agentv.model.diagnostics import did_you_mean
from agentv.runs.catalogue import RunEntry, RunJournal, project_runs
from agentv.runs.folder import RESULTS_FOLDER, RunFolder
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore
from agentv.settings.project import project_root

Ended = Literal["failed", "borderline", "errors"]

_NONE = {"failed": "No case failed", "borderline": "No case is borderline", "errors": "No case errored"}

_RELATIVE = re.compile(r"(latest|@[\w.-]+)(?:~(\d{1,9}))?")
_ID_PREFIX = re.compile(r"\d[\d-]*[0-9a-f]*")
_RUN_NAME = re.compile(r"\w[\w.-]*")
_MOST_SHOWN = 5


def run_path(given: str) -> str:
    """Return the path of a run given by path, id, prefix of an id, `latest`, `latest~N`, `@tag` or `@experiment`.

    Returns the given text if no run has this name. Raises UsageError if several have it, or if N is too large.
    """
    exact = _exact_path(given)
    return exact or _project_run(given, project_root(".")) or given


def run_name(path: str) -> str:
    """Return the shortest RUN argument for a run on disk: its id if that is enough, else its path."""
    name, shown = os.path.basename(path), os.path.relpath(path)
    found = _exact_path(name) or name
    return name if os.path.exists(found) and os.path.samefile(found, path) else shown


def lasting_name(given: str) -> str:
    """Replace a name that may come to mean another run, such as `latest`, in `RUN`, `RUN:target` or `RUN:prompt`."""
    run, colon, target = given.partition(":")
    if _exact_path(given) or _exact_path(run) or not (_RELATIVE.fullmatch(run) or _ID_PREFIX.fullmatch(run)):
        return given
    found = _project_run(run, project_root("."))
    return given if found is None else f"{run_name(found)}{colon}{target}"


def check_run_name(name: str, noun: str) -> str:
    """Return the name of a tag or an experiment. Raises UsageError if it cannot be used as `@NAME`."""
    if _RUN_NAME.fullmatch(name):
        return name
    hint = "Use letters, digits, '_', '-' and '.', and begin with a letter or digit"
    raise UsageError(f"Invalid {noun} {name!r}", hint=hint)


def _exact_path(given: str) -> str | None:
    if os.path.exists(given) or os.sep in given or not given:
        return given
    kept = os.path.join(project_root("."), RESULTS_FOLDER, given)
    return kept if os.path.exists(kept) else None


def _project_run(given: str, root: str) -> str | None:
    """Return the run of a project with this name; None if it is not such a name, or no id begins with it."""
    relative = _RELATIVE.fullmatch(given)
    if relative is None and not _ID_PREFIX.fullmatch(given):
        return None
    runs = project_runs(root, figures=False)
    if relative is None:
        return _run_with_prefix(given, runs)
    name, back = relative[1], int(relative[2] or 0)
    tagged = RunJournal(root).tags.get(name[1:])
    if name != "latest" and tagged is not None and not back:
        if not os.path.exists(tagged):
            raise UsageError(f"The run tagged '{name[1:]}' no longer exists: {tagged}", hint="Tag another run")
        return tagged
    matching = [run for run in runs if name in ("latest", f"@{run.experiment}")]
    if back < len(matching):
        return matching[back].path
    raise _too_few(given, name, len(matching), runs)


def _run_with_prefix(given: str, runs: list[RunEntry]) -> str | None:
    paths = [run.path for run in runs if run.run_id == given] or [
        run.path for run in runs if run.run_id.startswith(given)
    ]
    if len(paths) > 1:
        shown = ", ".join(map(run_name, paths[:_MOST_SHOWN])) + (", …" if len(paths) > _MOST_SHOWN else "")
        raise UsageError(f"'{given}' matches {len(paths):,} runs", shown, "Type more of the id, or the path of the run")
    return paths[0] if paths else None


def _too_few(given: str, name: str, count: int, runs: list[RunEntry]) -> UsageError:
    if name == "latest":
        detail = f"The project has {plural(count, 'run')}" if count else "The project has no runs yet"
        return UsageError(f"No such run: {given}", detail, hint="`agentv runs` lists them")
    if count:
        return UsageError(f"No such run: {given}", f"The experiment has {plural(count, 'run')}")
    known = sorted({*(tag for run in runs for tag in run.tags), *(run.experiment for run in runs if run.experiment)})
    hint = did_you_mean(name[1:], known) or "Tag a run with `agentv runs tag RUN NAME`"
    return UsageError(f"No run has the tag or experiment '{name[1:]}'", hint=hint)


def existing_run(given: str) -> str:
    """Return the absolute path of a run. Raises UsageError if it does not exist."""
    path = run_path(given)
    if not os.path.exists(path):
        raise UsageError(f"No such run: {given}", hint="`agentv runs` lists the runs of the project")
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
        hint="`agentv runs` lists the runs; RUN:target selects one target, RUN:prompt one prompt",
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
