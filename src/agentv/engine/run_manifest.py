"""Create the manifest of a new run, and check that nothing changed when a run is resumed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from agentv.engine.job.answer import now
from agentv.engine.run_defaults import first_given, given_defaults
from agentv.engine.run_options import CALL_LIMITS
from agentv.engine.run_plan import RunPlan
from agentv.engine.run_project import RESULTS
from agentv.errors import UsageError
from agentv.model.manifest import Counts, RunLink, RunManifest
from agentv.runs.folder import new_run_id
from agentv.support.patterns import upward
from agentv.version import __version__


def new_manifest(plan: RunPlan, folder: Path) -> RunManifest:
    """Return the manifest of a new run."""
    options, checked, project = plan.options, plan.checked, plan.project
    manifest = RunManifest(
        # A folder in the project's results folder is named after its run.
        run_id=folder.name if folder.parent == Path(project.root) / RESULTS else new_run_id(),
        started_at=now(),
        paths=options.paths,
        options=msgspec.to_builtins(options),
        versions={"agentv": __version__, "python": ".".join(map(str, sys.version_info[:3]))},
        datasets=checked.datasets,
        targets=tuple(map(plan.entry, checked.jobs)),
        judges=tuple(map(project.entry, dict.fromkeys((*checked.judges, *checked.embedders)))),
        fingerprints=checked.evaluators,
        defaults=given_defaults(project.defaults),
        seed=first_given(options.seed, options.draw_seed, 0),
        git_commit=git_commit(project.root),
        counts=Counts(cases=checked.cases, jobs=checked.total),
    )
    if plan.rescored is None:
        return manifest
    stored = plan.rescored.stored
    then = stored.manifest
    if then is not None and plan.cases.sources and not manifest.paths:
        manifest = msgspec.structs.replace(manifest, paths=then.paths)
    if then is not None and plan.rescored.early_stopped:
        manifest = msgspec.structs.replace(manifest, seed=then.seed, stopped_early=then.stopped_early)
    link = RunLink(run_id=stored.run_id, path=stored.path, digest=stored.digest)
    return msgspec.structs.replace(manifest, rescored_from=link)


def resumed_manifest(plan: RunPlan, begun: RunManifest) -> RunManifest:
    """Return the manifest of a resumed run, with its current limits. Raises UsageError if its inputs changed."""
    _refuse_changes(plan, begun)
    limits = {name: value for name, value in plan.options.given().items() if name in CALL_LIMITS}
    return msgspec.structs.replace(begun, options={**begun.options, **limits})


def _refuse_changes(plan: RunPlan, begun: RunManifest) -> None:
    """Raise UsageError if the datasets, targets, evaluators or defaults changed since the run started."""
    checked, project = plan.checked, plan.project
    # Until all shards are merged, the contents and evaluators of some cases are unknown.
    is_partial = bool(begun.merged_from) and begun.finished_at is None
    before = {entry.path: (entry.digest, is_partial or entry.contents) for entry in begun.datasets}
    after = {entry.path: (entry.digest, is_partial or entry.contents) for entry in checked.datasets}
    changes = [f"the dataset {path} changed" for path in before if before[path] != after.get(path)]
    if plan.called:
        changes += filter(None, map(project.change, begun.targets))
    changes += filter(None, (project.change(entry, "judge") for entry in begun.judges))
    then, today = begun.fingerprints, checked.evaluators
    # A merged run has no fingerprints of evaluators that differ between cases.
    names = {} if is_partial else then if begun.merged_from else {**then, **today}
    changes += [f"the evaluator {name} changed" for name in names if then.get(name) != today.get(name)]
    if begun.defaults != given_defaults(project.defaults):
        changes.append("`execution` of .agentv/config.yaml changed")
    if changes:
        hint = "Undo the change, or start a new run; --changed-since carries over the records that are still valid"
        raise UsageError(f"Cannot resume: {' and '.join(changes)} since the run started", hint=hint)
    link = begun.rescored_from
    if link is not None and plan.rescored is not None and link.digest != plan.rescored.stored.digest:
        raise UsageError("Cannot resume: the answers to score changed since the run started")


def git_commit(root: str) -> str | None:
    """Return the hash of the current commit; None outside a repository or before the first commit.

    Simple cases are read from Git's files, because starting git takes as long as a small run.
    """
    git = next((path for folder in upward(root, os.sep) if (path := Path(folder, ".git")).exists()), None)
    if git is None:
        return None
    try:
        if git.is_file():  # a worktree or a submodule
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        found = (git / head.removeprefix("ref: ")).read_text().strip() if head.startswith("ref: ") else head
    except (OSError, UnicodeDecodeError):
        found = ""
    return found if re.fullmatch("[0-9a-f]{40,64}", found) else _commit_from_git(root)


def _commit_from_git(root: str) -> str | None:
    """Run git, for branches that are packed or shared with another worktree."""
    try:
        command = ["git", "-C", root, "rev-parse", "--verify", "-q", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
