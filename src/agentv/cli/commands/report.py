"""`agentv report`: write reports of a run, annotate GitHub pull requests, or print the summary.

The arguments are declared here, because each report format adds a flag.
"""

import os
import sys
from collections.abc import Iterator

import click

from agentv.cli import output
from agentv.cli.options import PATH, Arguments, argument, declare, flag, option
from agentv.engine.named_runs import existing_run, run_path
from agentv.errors import UsageError, file_errors
from agentv.registry import REPORTS
from agentv.report.comparisons.frontier_text import frontier_lines
from agentv.report.formats import format_of, report_format, write_report
from agentv.report.markdown import append_step_summary, notes_of
from agentv.report.services import open_export
from agentv.report.summary_text import failure_headline, failure_lines, headlines
from agentv.report.terminal import Ending, print_ending, print_lines
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
STDOUT = "-"

Destination = tuple[str, str | None]
"""A format and the file to write; None for stdout."""


class ReportArguments(Arguments):
    """RUN is a run folder, a run id, or results of another tool. Each of FILES is written in the format of its
    extension: .html, .xml (JUnit), .md, .csv, .parquet. A single text format without a file is written to stdout, other
    formats to files in the run folder. Without files and formats, the summary is printed.
    """

    action = "agentv.cli.commands.report:report"
    examples = (
        "agentv report RUN",
        "agentv report RUN --html",
        "agentv report RUN page.html junit.xml",
        "agentv report RUN --csv > results.csv",
        "agentv report RUN --github",
        "agentv report RUN --otel http://localhost:4318",
    )

    run: str = argument(metavar="RUN")
    files: tuple[str, ...] = argument(nargs=-1)
    github: bool = flag("--github", "Print GitHub annotations for failed cases, and write the step summary.")
    out: str | None = option("--out FILE|DIR", "File to write, folder for several files, or - for stdout.", PATH)
    otel: str | None = option(
        "--otel ENDPOINT",
        "Export the run as OpenTelemetry traces to this OTLP endpoint (http://localhost:4318) or file (traces.json).",
    )
    as_json: bool = flag("--json", "Print the summary as JSON.")
    quiet: bool = flag("--quiet -q", "Hide messages about written files.")


def report(args: ReportArguments) -> None:
    """Write the reports, or print the summary."""
    existing_run(args.run)
    opened = RunStore.open(run_path(args.run))
    destinations = list(_destinations(opened, args))
    figures = opened.figures()
    for name, file in destinations:
        _write(name, opened, figures, file, args.quiet)
    if args.github:
        _for_github(opened, figures, args.quiet)
    if args.otel is not None:
        note = open_export(args.otel).add_stored(opened)
        if not args.quiet:
            output.message(note)
    if args.as_json:
        _print_json(opened, figures)
    elif not destinations and not args.github and args.otel is None:
        _print_summary(opened, figures)


def _destinations(run: RunStore, args: ReportArguments) -> Iterator[Destination]:
    """Yield the reports to write."""
    requested = [name for name in REPORTS.all_names() if getattr(args, name)]
    folder, files = _places(args.out, args.files)
    if len(requested) == 1 and len(files) == 1:
        # An option overrides the extension: `--junit --out results.txt` is JUnit.
        yield requested[0], files[0]
        return
    pairs = [(format_of(file), file) for file in files]
    yield from pairs
    rest = [name for name in requested if name not in dict(pairs)]
    to_stdout = args.out == STDOUT or (folder is None and not pairs)
    if len(rest) == 1 and to_stdout and (report_format(rest[0]).is_text or args.out == STDOUT):
        yield rest[0], None
        return
    home = folder or (str(run.path) if run.path.is_dir() else ".")
    for name in rest:
        yield name, os.path.join(home, report_format(name).file_name)


def _places(out: str | None, files: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the folder given by `--out`, if any, and all files to write."""
    if out is None or out == STDOUT:
        return None, files
    if os.path.isdir(out) or out.endswith(("/", os.sep)) or not os.path.splitext(out)[1]:
        with file_errors(f"Cannot write to {out}"):
            os.makedirs(out, exist_ok=True)
        return out, files
    return None, (*files, out)


def _write(name: str, run: RunStore, figures: Figures, file: str | None, quiet: bool) -> None:
    if file is None:
        report_format(name).write(run, figures, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    parent = os.path.dirname(file) or "."
    if not os.path.isdir(parent):
        raise UsageError(f"Cannot write {file}", f"Folder {parent} does not exist")
    write_report(name, run, figures, file)
    if not quiet:
        output.message(f"Wrote {file}")


def _for_github(run: RunStore, figures: Figures, quiet: bool) -> None:
    for line in notes_of(run):
        output.echo_workflow_command(line)
    if file := os.environ.get(STEP_SUMMARY):
        append_step_summary(run, figures, file)
    elif not quiet:
        output.note(f"{STEP_SUMMARY} is not set; skipping the step summary")


def _print_json(run: RunStore, figures: Figures) -> None:
    data = {
        "run": str(run.path),
        "headlines": headlines(figures.summary),
        "jobs": figures.jobs,
        "done": figures.done,
        "summary": figures.summary,
        "details": figures.details,
        "failures": figures.failures,
    }
    output.echo_json(data)


def _print_summary(run: RunStore, figures: Figures) -> None:
    notes = [*run.notes, *([figures.missing_note] if figures.unfinished else [])]
    failures = figures.failures
    groups = (
        [f"Failure groups: {failure_headline(failures)}", *failure_lines(failures)]
        if failures and failures.failures
        else []
    )
    ending = Ending(summary=figures.summary, details=figures.details, notes=notes, failures=groups)
    print_ending(ending, sys.stdout, sys.stdout.isatty())
    print_lines(frontier_lines(run, figures), sys.stdout, sys.stdout.isatty())
    sys.stdout.flush()
    output.echo(f"\nResults: {run.path}")


def _format_flags() -> Iterator[click.Option]:
    """Yield a flag for each report format; the help of a broken plug-in is its error."""
    for name in REPORTS.all_names():
        try:
            help_text = report_format(name).help
        except UsageError as error:
            help_text = str(error)
        yield click.Option([f"--{name}", name], is_flag=True, help=help_text)


report_command = declare("report", ReportArguments)
report_command.params[2:2] = _format_flags()
