"""The manifest of a run: what a new run writes down, and what must be the same when it is resumed."""

from __future__ import annotations

import platform
from pathlib import Path

import msgspec

from agentv import __version__
from agentv.engine.interrupts import git_commit
from agentv.engine.job.record import now
from agentv.engine.project import RESULTS
from agentv.engine.run_options import given_defaults
from agentv.engine.run_plan import RunPlan
from agentv.errors import UsageError
from agentv.model.manifest import Counts, RunLink, RunManifest
from agentv.runs.folder import new_run_id


def new_manifest(plan: RunPlan, folder: Path) -> RunManifest:
    """Return the manifest of a run that begins."""
    options, checked, project = plan.options, plan.checked, plan.project
    manifest = RunManifest(
        run_id=_run_id(plan, folder),
        started_at=now(),
        paths=options.paths,
        options=msgspec.to_builtins(options),
        versions={"agentv": __version__, "python": platform.python_version()},
        datasets=checked.datasets,
        targets=tuple(map(plan.entry, checked.jobs)),
        judges=tuple(map(project.entry, dict.fromkeys((*checked.judges, *checked.embedders)))),
        fingerprints=checked.evaluators,
        defaults=given_defaults(project.defaults),
        seed=options.seed,
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


def refuse_changes(plan: RunPlan, begun: RunManifest) -> None:
    """Raise UsageError when something changed since the run began: half of each would be neither."""
    checked, project = plan.checked, plan.project
    before = {entry.path: (entry.digest, entry.contents) for entry in begun.datasets}
    after = {entry.path: (entry.digest, entry.contents) for entry in checked.datasets}
    changes = [f"the dataset {path} changed" for path in before if before[path] != after.get(path)]
    if plan.called:
        changes += filter(None, map(project.change, begun.targets))
    changes += filter(None, (project.change(entry, "judge") for entry in begun.judges))
    then, today = begun.fingerprints, checked.evaluators
    # A merged run lacks the fingerprints of evaluators that differ from case to case.
    names = then if begun.merged_from else {**then, **today}
    changes += [f"the evaluator {name} changed" for name in names if then.get(name) != today.get(name)]
    if begun.defaults != given_defaults(project.defaults):
        changes.append("`execution` of .agentv/config.yaml changed")
    if changes:
        what = " and ".join(changes)
        hint = "Start a new run, or put back what was there; --changed-since keeps what still holds"
        raise UsageError(f"The run in progress cannot go on: {what} since it began", hint=hint)
    link = begun.rescored_from
    if link is not None and plan.rescored is not None and link.digest != plan.rescored.stored.digest:
        raise UsageError("The run in progress cannot go on: the answers that it scores changed since it began")


def _run_id(plan: RunPlan, folder: Path) -> str:
    """Return the id of a new run: the name of its folder, where that was made for it."""
    return folder.name if folder.parent == Path(plan.project.root) / RESULTS else new_run_id()
