"""`agentv runs import` and `agentv runs export`: keep results of other tools as runs, and write runs for others."""

from __future__ import annotations

import os
from pathlib import Path

from agentv.cli import output
from agentv.cli.analysis_options import ExportArguments, ImportArguments
from agentv.engine.named_runs import existing_run, run_name
from agentv.errors import UsageError, plural
from agentv.registry import service
from agentv.runs.catalogue import RunJournal
from agentv.runs.folder import RESULTS_FOLDER, RunFolder
from agentv.runs.foreign.run_import import import_run, import_run_id
from agentv.runs.record import format_of
from agentv.runs.redaction import Redactor
from agentv.runs.store import RunStore
from agentv.settings.project import project_root
from agentv.support.temporary_folders import remove_folder
from agentv.trust.env_file import load_environment


def import_results(args: ImportArguments) -> None:
    """Copy results of other tools into run folders."""
    if args.out is not None and len(args.files) > 1:
        raise UsageError("--out takes one file", hint="Import the files one by one, or without --out")
    for file in args.files:
        _import(Path(file), args.out)


def _import(path: Path, out: str | None) -> None:
    if not path.exists():
        raise UsageError(f"No such file: {path}")
    found = format_of(path)
    if not getattr(found, "is_imported", False):
        raise UsageError(f"{path} need not be imported", hint=f"Use it as it is, for example: agentv report {path}")
    root = project_root(".")
    run_id = import_run_id(found, path)  # type: ignore[arg-type]
    folder = RunFolder.create(out or os.path.join(root, RESULTS_FOLDER, run_id), _redactor(root).redact_line)
    try:
        done = import_run(found, path, folder, run_id=run_id)  # type: ignore[arg-type]
    except BaseException:
        remove_folder(str(folder.path))
        raise
    RunJournal(root).add_run(folder.path)
    counts = done.counts
    assert counts is not None and done.imported_from is not None
    results = counts.ok + counts.unscored + counts.errors
    what = f"{plural(counts.cases, 'case')}, {plural(results, 'result')}"
    output.echo(f"Imported {path} as {run_name(str(folder.path))}: {done.imported_from.format}, {what}")
    for note in done.imported_from.notes:
        output.note(note)


def _redactor(root: str) -> Redactor:
    return Redactor(load_environment(root, root).secrets)


def export_results(args: ExportArguments) -> None:
    """Write a run in the format of another tool."""
    with RunStore.open(existing_run(args.run)) as run:
        for written in service("every-eval-ever", "`agentv runs export`")(run, Path(args.out)):
            output.echo(f"Wrote {written.totals} and {written.samples}: {plural(written.rows, 'row')}")
            if written.unscored:
                output.note(f"{plural(written.unscored, 'unscored result')} of {written.target} not written")
