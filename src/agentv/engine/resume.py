"""Merge the options of an earlier run with the current ones, to resume it or to carry over its records."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from agentv.datasets.case.header import specs_of
from agentv.engine.answers.carried_answers import carried
from agentv.engine.cases.case_survey import spec_uses
from agentv.engine.named_runs import open_run, run_path
from agentv.engine.run_options import CALL_LIMITS, EvalOptions, Options, RescoreOptions
from agentv.errors import UsageError
from agentv.runs.catalogue import last_unfinished
from agentv.runs.folder import RunFolder, resume_obstacle
from agentv.runs.store import RunStore
from agentv.settings.project import project_root
from agentv.trust.consent import require_trust_in_run
from agentv.trust.inventory import Inventory, Use
from agentv.trust.roots import is_trusted

WHERE_JOBS_RUN = ("executor", "processes", "ray_address")
"""Options that may differ when a run is resumed, because they do not affect scores."""


def resumed(args: Options, out: str | None, folder: str) -> tuple[Options, str]:
    """Return the options and folder of the run to resume: the one in `out` or named by a path, else the last one.

    Options that are passed again must be unchanged, except `CALL_LIMITS` and the executor. If `out` has no run yet, a
    new run starts with the given options.
    """
    rescores = isinstance(args, RescoreOptions)
    runs = [] if out is not None or rescores else [path for path in args.paths if _run_named_by(path) is not None]
    if len(runs) == 1:
        paths = tuple(path for path in args.paths if path not in runs)
        args, out = msgspec.structs.replace(args, paths=paths), _run_named_by(runs[0])
    if out is None and not rescores:
        _check_names(args.paths)
    if out is None:
        last_run = last_unfinished(project_root(folder), rescored=rescores)
        if last_run is None:
            name = "a run folder with --out" if rescores else "a run: agentv eval --resume RUN"
            hint = f"Start a run without --resume, or name {name}"
            raise UsageError("No unfinished run to resume", hint=hint)
        out = str(last_run.path)
    elif (args.paths or rescores) and not RunFolder(out).manifest_path.is_file():
        return args, out
    elif not os.path.exists(out):
        raise UsageError(f"No run to resume: {out} does not exist", hint="Name datasets to start a run there")
    manifest = RunStore.open(RunFolder.open(out).path).folder.read_manifest()
    if (manifest.rescored_from is not None) != rescores:
        began = "eval" if rescores else "rescore"
        raise UsageError(f"The run in {out} was started with `agentv {began}`", hint=f"agentv {began} --resume --out …")
    why = resume_obstacle(manifest)
    if why:
        hint = "Start a new run; --changed-since carries over the records that are still valid"
        raise UsageError(f"Cannot resume the run in {out}", why, hint)
    options = msgspec.convert(manifest.options, type(args))
    if args.executor is not None:
        where = {name: getattr(args, name) for name in WHERE_JOBS_RUN}
        options = msgspec.structs.replace(options, **where)
    limits = {name: value for name, value in args.given().items() if name in CALL_LIMITS}
    options = msgspec.structs.replace(options, **limits)
    _check_stored(options, args, out)
    different = options.contradicted_by(args)
    if different:
        hint = "Omit paths and options to resume with those of the run, or start a new run"
        raise UsageError(f"The run in {out} was started with different values for: {', '.join(different)}", hint=hint)
    return options, out


def _check_names(paths: Sequence[str]) -> None:
    """Raise UsageError for a name that is neither a run nor a file or pattern of datasets."""
    for path in paths:
        if not os.path.exists(path) and not any(mark in path for mark in "*?["):
            raise UsageError(f"No run to resume: there is no run '{path}'", hint="`agentv runs` lists the runs")


def _run_named_by(name: str) -> str | None:
    """Return the run folder of a path, an id or another name of a run; None if it is not a run."""
    run = run_path(name)
    return run if RunFolder(run).manifest_path.is_file() else None


def folder_of(paths: Sequence[str]) -> str:
    """Return the folder of the first path, whose project stores the run; else the working directory."""
    if not paths:
        return "."
    return paths[0] if os.path.isdir(paths[0]) else os.path.dirname(paths[0]) or "."


def options_of_earlier(args: EvalOptions) -> EvalOptions:
    """Return the options of the run to carry over, updated with the given ones, for a run without datasets."""
    choice = carried(args)
    run = args.only_from if choice is None else choice[0]
    if run is None:
        raise UsageError("No datasets given", hint="Pass at least one dataset file or folder")
    earlier = msgspec.convert(RunStore.open(open_run(run).path).folder.read_manifest().options, EvalOptions)
    _check_stored(earlier, args, run)
    both = msgspec.structs.replace(earlier, retry_errors=None, changed_since=None, only=None, only_from=None)
    return msgspec.structs.replace(both, **args.given())


def _check_stored(options: EvalOptions, args: EvalOptions, run: str) -> None:
    """Refuse options of a run folder that run commands, use files outside the project or call another machine.

    They are accepted if the user passes them again, or trusts the run.
    """
    uses = []
    for name in ("record", "dump_prompts", "dump_traces", "ray_address"):
        value = getattr(options, name)
        is_path = name != "ray_address"
        if value and value != getattr(args, name) and not (is_path and is_trusted(value)):
            uses.append(Use("file" if is_path else "host", value, run, f"--{name.replace('_', '-')}"))
    if options.allow_outside_files and not args.allow_outside_files:
        uses.append(Use("file", "files outside the project", run, "--allow-outside-files"))
    if options.variants != args.variants:
        uses += (
            Use("command", f"{variant.base} {variant.settings}", run, variant.name) for variant in options.variants
        )
    entries = getattr(options, "evaluators", None)
    if entries and entries != getattr(args, "evaluators", None):
        uses += (use for spec in specs_of(entries)[0] for use in spec_uses(spec, run))
    require_trust_in_run(run, Inventory(uses))
