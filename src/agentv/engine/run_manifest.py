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
        draw=None if plan.draw is None else plan.draw.draw,
        git_commit=git_commit(project.root),
        git_branch=git_branch(project.root),
        counts=Counts(cases=checked.cases, jobs=checked.total),
    )
    if plan.rescored is None:
        return manifest
    answers = plan.rescored.stored
    then = answers.manifest
    if then is not None and plan.cases.sources and not manifest.paths:
        manifest = msgspec.structs.replace(manifest, paths=then.paths)
    if then is not None and plan.rescored.early_stopped:
        manifest = msgspec.structs.replace(manifest, seed=then.seed, stopped_early=then.stopped_early)
    manifest = msgspec.structs.replace(manifest, draw=None if then is None else then.draw)
    link = RunLink(run_id=answers.run_id, path=answers.path, digest=answers.digest)
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
    if plan.draw is not None and begun.draw != plan.draw.draw:
        changes.append("the runs of --baseline changed")
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
    git = _git_folder(root)
    if git is None:
        return None
    head = _git_file(git, "HEAD")
    commit = _git_file(git, head.removeprefix("ref: ")) if head.startswith("ref: ") else head
    return commit if re.fullmatch("[0-9a-f]{40,64}", commit) else _commit_from_git(root)


def git_branch(root: str) -> str | None:
    """Return the current Git branch; None outside a repository. If none is checked out, that of the GitHub job."""
    git = _git_folder(root)
    branch = _git_file(git, "HEAD").partition("ref: refs/heads/")[2] if git is not None else ""
    job = os.environ.get("GITHUB_HEAD_REF") or os.environ.get("GITHUB_REF_NAME")
    return branch or (job if git is not None else None) or None


def _git_folder(root: str) -> Path | None:
    folders = upward(root, Path(root).absolute().anchor)
    git = next((path for folder in folders if (path := Path(folder, ".git")).exists()), None)
    if git is not None and git.is_file():  # a worktree or a submodule
        return git.parent / _git_file(git.parent, git.name).removeprefix("gitdir:").strip()
    return git


def _git_file(folder: Path, name: str) -> str:
    """Return the text of one of Git's files; empty if it cannot be read."""
    try:
        return (folder / name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _commit_from_git(root: str) -> str | None:
    """Run git, for branches that are packed or shared with another worktree."""
    try:
        command = ["git", "-C", root, "rev-parse", "--verify", "-q", "HEAD"]
        process = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None if process.returncode == 0 else None
