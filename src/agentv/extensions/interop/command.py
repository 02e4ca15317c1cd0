"""`agentv runs import` and `agentv runs export`: keep results of other tools as runs, and write runs for others."""

import os
from pathlib import Path

from agentv.cli import output
from agentv.cli.options import PATH, Arguments, argument, declare, option
from agentv.engine.named_runs import existing_run, run_name
from agentv.errors import UsageError, plural
from agentv.extensions.interop.imports.run_import import import_run, import_run_id
from agentv.extensions.interop.results.every_eval_ever_export import export_run
from agentv.runs.catalogue import RunJournal
from agentv.runs.folder import RESULTS_FOLDER, RunFolder
from agentv.runs.record import format_of
from agentv.runs.redaction import Redactor
from agentv.runs.store import RunStore
from agentv.settings.project import project_root
from agentv.support.temporary_folders import remove_folder
from agentv.trust.env_file import load_environment


class ImportArguments(Arguments):
    """Keep results of other tools as runs of the project.

    FILE is a results file or folder of Inspect, promptfoo, DeepEval, pydantic-evals, lm-evaluation-harness, HELM,
    OpenAI Evals or Every Eval Ever. Commands such as compare take these files directly; an import stays if the file is
    deleted, and is listed by `agentv runs`.
    """

    action = "agentv.extensions.interop.command:import_results"
    examples = ("agentv runs import logs/task.eval", "agentv runs import results.json --out baseline")

    files: tuple[str, ...] = argument(nargs=-1, required=True, metavar="FILE...", type=str)
    out: str | None = option("--out DIR", "Folder of the run (default: a new one in .agentv/results).", PATH)


class ExportArguments(Arguments):
    """Write a run in the format of Every Eval Ever.

    Each target becomes a JSON file with totals and a JSON Lines file with one row per result and evaluator.
    """

    action = "agentv.extensions.interop.command:export_results"
    examples = ("agentv runs export latest --out shared", "agentv runs export logs/task.eval --out shared")

    run: str = argument(metavar="RUN", type=str)
    out: str = option("--out DIR", "Folder for the files.", PATH, required=True)


def import_results(args: ImportArguments) -> None:
    """Copy results of other tools into run folders."""
    if args.out is not None and len(args.files) > 1:
        raise UsageError("--out takes one file", hint="Import the files one by one, or without --out")
    for file in args.files:
        _import(Path(file), args.out)


def _import(path: Path, out: str | None) -> None:
    if not path.exists():
        raise UsageError(f"No such file: {path}")
    importer = format_of(path)
    if not getattr(importer, "is_imported", False):
        raise UsageError(f"{path} need not be imported", hint=f"Use it as it is, for example: agentv report {path}")
    root = project_root(".")
    run_id = import_run_id(importer, path)  # type: ignore[arg-type]
    folder = RunFolder.create(out or os.path.join(root, RESULTS_FOLDER, run_id), _redactor(root).redact_line)
    try:
        manifest = import_run(importer, path, folder, run_id=run_id)  # type: ignore[arg-type]
    except BaseException:
        remove_folder(str(folder.path))
        raise
    RunJournal(root).add_run(folder.path)
    counts = manifest.counts
    assert counts is not None and manifest.imported_from is not None
    results = counts.ok + counts.unscored + counts.errors
    what = f"{plural(counts.cases, 'case')}, {plural(results, 'result')}"
    output.echo(f"Imported {path} as {run_name(str(folder.path))}: {manifest.imported_from.format}, {what}")
    for note in manifest.imported_from.notes:
        output.note(note)


def _redactor(root: str) -> Redactor:
    return Redactor(load_environment(root, root).secrets)


def export_results(args: ExportArguments) -> None:
    """Write a run in the format of another tool."""
    with RunStore.open(existing_run(args.run)) as run:
        for export in export_run(run, Path(args.out)):
            output.echo(f"Wrote {export.totals} and {export.samples}: {plural(export.rows, 'row')}")
            if export.unscored:
                output.note(f"{plural(export.unscored, 'unscored result')} of {export.target} not written")


import_command = declare("import", ImportArguments)
export_command = declare("export", ExportArguments)
