"""The options of a run that goes on, or that takes up what an earlier one left: those of then, and what is said now."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from agentv.datasets.files import project_root
from agentv.engine.answers.carried import carried
from agentv.engine.named_runs import open_run
from agentv.engine.run_options import EvalOptions, Options, RescoreOptions, options_from_data
from agentv.errors import UsageError
from agentv.runs.folder import RunFolder, last_unfinished, resume_obstacle

WHERE_JOBS_RUN = ("executor", "processes", "ray_address")
"""Options that a resumed run may be given anew: they change no result."""


def resumed(given: Options, out: str | None, folder: str) -> tuple[Options, str]:
    """The options and the folder of the run that `--resume` goes on with: the one in `out`, else the last unfinished.

    Options of the run that are given again must be the same. A folder that is not there yet begins with those given.
    """
    rescores = isinstance(given, RescoreOptions)
    if out is None:
        found = last_unfinished(project_root(folder), rescored=rescores)
        if found is None:
            hint = "Start one without --resume, or name the folder of a run with --out"
            raise UsageError("There is no unfinished run to go on with", hint=hint)
        out = str(found.path)
    elif (given.paths or rescores) and not RunFolder(out).manifest_path.is_file():
        return given, out
    elif not os.path.exists(out):
        raise UsageError(f"There is no run to go on with: {out}", hint="Name datasets to start one there")
    manifest = RunFolder.open(out).read_manifest()
    if (manifest.rescored_from is not None) != rescores:
        began = "eval" if rescores else "rescore"
        raise UsageError(f"The run in {out} was started with `agentv {began}`", hint=f"agentv {began} --resume --out …")
    why = resume_obstacle(manifest)
    if why:
        hint = "Start a new run; --changed-since takes over what still holds"
        raise UsageError(f"The run in {out} cannot go on", why, hint)
    options = options_from_data(manifest.options, type(given))
    if given.executor is not None:
        where = {name: getattr(given, name) for name in WHERE_JOBS_RUN}
        options = msgspec.structs.replace(options, **where)
    different = options.contradicted_by(given)
    if different:
        names = ", ".join(different)
        hint = "Leave paths and options out to go on with those of the run, or start a new run"
        raise UsageError(f"The run in {out} was started with other values of: {names}", hint=hint)
    return options, out


def folder_of(paths: Sequence[str]) -> str:
    """The folder whose project keeps the runs of datasets: that of the first path, else the working directory."""
    if not paths:
        return "."
    return paths[0] if os.path.isdir(paths[0]) else os.path.dirname(paths[0]) or "."


def options_of_earlier(given: EvalOptions) -> EvalOptions:
    """The options of the run that is carried over, for a new run that names no datasets, and over them those given."""
    chosen = carried(given)
    run = given.only_from if chosen is None else chosen[0]
    if run is None:
        raise UsageError("No datasets were named")
    earlier = options_from_data(open_run(run).read_manifest().options, EvalOptions)
    both = msgspec.structs.replace(earlier, retry_errors=None, changed_since=None, only=None, only_from=None)
    return msgspec.structs.replace(both, **given.given())
