"""`agentv report`: writes a run in the report formats asked for, for GitHub, or prints its summary.

Its arguments are declared here, because each report format adds a flag.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from agentv.cli import output
from agentv.cli.options import PATH, Arguments, argument, declare, flag, option
from agentv.engine.named_runs import run_path
from agentv.errors import UsageError
from agentv.model.values import to_json
from agentv.registry import REPORTS
from agentv.report.formats import format_of, report_format, write_report
from agentv.report.markdown import append_step_summary, notes_of
from agentv.report.terminal import Ending, print_ending
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
STDOUT = "-"

Wanted = tuple[str, str | None]
"""A format and the file it goes to; None for stdout."""


class ReportArguments(Arguments):
    """RUN is a run's folder or id, or a file of results, AgentV's too. Each of FILES is written in the format of its
    extension: .html, .xml (JUnit), .md, .csv, .parquet. A format without a file goes to stdout when it is the only one
    and text, else to a file in the run's folder. Without any, the summary is printed.
    """

    action = "agentv.cli.commands.report:report"
    examples = (
        "agentv report RUN",
        "agentv report RUN --html",
        "agentv report RUN page.html junit.xml",
        "agentv report RUN --csv > results.csv",
        "agentv report RUN --github",
    )

    run: str = argument(metavar="RUN")
    files: tuple[str, ...] = argument(nargs=-1)
    github: bool = flag("--github", "Annotations at the cases' lines on stdout, and the summary of the step.")
    out: str | None = option("--out FILE|DIR", "File to write, folder for several, or - for stdout.", PATH)
    as_json: bool = flag("--json", "Print the figures as JSON.")
    quiet: bool = flag("--quiet -q", "Do not print which files were written.")


def report(args: ReportArguments) -> None:
    """Write the reports, or print the summary."""
    opened = RunStore.open(run_path(args.run))
    wanted = list(_wanted(opened, args))
    figures = opened.figures()
    for name, file in wanted:
        _write(name, opened, figures, file, args.quiet)
    if args.github:
        _for_github(opened, figures, args.quiet)
    if args.as_json:
        _print_json(opened, figures)
    elif not wanted and not args.github:
        _print_summary(opened, figures)


def _wanted(run: RunStore, args: ReportArguments) -> Iterator[Wanted]:
    """What is to be written, and where."""
    asked = [name for name in REPORTS.all_names() if getattr(args, name)]
    folder, files = _places(args.out, args.files)
    if len(asked) == 1 and len(files) == 1:
        # An option says more than a name: `--junit --out results.txt` is JUnit.
        yield asked[0], files[0]
        return
    named = [(format_of(file), file) for file in files]
    yield from named
    rest = [name for name in asked if name not in dict(named)]
    to_stdout = args.out == STDOUT or (folder is None and not named)
    if len(rest) == 1 and to_stdout and (report_format(rest[0]).is_text or args.out == STDOUT):
        yield rest[0], None
        return
    home = folder or (str(run.path) if run.path.is_dir() else ".")
    for name in rest:
        yield name, os.path.join(home, report_format(name).file_name)


def _places(out: str | None, files: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The folder that `--out` names, if it does, and all files."""
    if out is None or out == STDOUT:
        return None, files
    if os.path.isdir(out) or out.endswith(("/", os.sep)) or not os.path.splitext(out)[1]:
        try:
            os.makedirs(out, exist_ok=True)
        except OSError as error:
            raise UsageError(f"Cannot write to {out}", error.strerror or str(error)) from error
        return out, files
    return None, (*files, out)


def _write(name: str, run: RunStore, figures: Figures, file: str | None, quiet: bool) -> None:
    if file is None:
        report_format(name).write(run, figures, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    parent = os.path.dirname(file) or "."
    if not os.path.isdir(parent):
        raise UsageError(f"Cannot write {file}", f"There is no folder {parent}")
    write_report(name, run, figures, file)
    if not quiet:
        output.say(f"Written: {file}")


def _for_github(run: RunStore, figures: Figures, quiet: bool) -> None:
    for line in notes_of(run):
        click.echo(line)
    file = os.environ.get(STEP_SUMMARY)
    if file:
        append_step_summary(run, figures, file)
    elif not quiet:
        output.note(f"{STEP_SUMMARY} is not set, so that there is no step to write a summary of")


def _print_json(run: RunStore, figures: Figures) -> None:
    data = {"run": str(run.path), "jobs": figures.jobs, "done": figures.done, "summary": figures.summary}
    sys.stdout.buffer.write(to_json({**data, "details": figures.details}) + b"\n")


def _print_summary(run: RunStore, figures: Figures) -> None:
    notes = [figures.missing_note] if figures.unfinished else []
    print_ending(Ending(summary=figures.summary, details=figures.details, notes=notes), sys.stdout, sys.stdout.isatty())
    sys.stdout.flush()
    click.echo(f"\nResults: {run.path}")


def _format_flags() -> Iterator[click.Option]:
    """A flag for each report format; one whose plug-in is broken says so in its help."""
    for name in REPORTS.all_names():
        try:
            shown = report_format(name).help
        except UsageError as error:
            shown = str(error)
        yield click.Option([f"--{name}", name], is_flag=True, help=shown)


report_command = declare("report", ReportArguments)
report_command.params[2:2] = _format_flags()
