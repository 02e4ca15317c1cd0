"""`agentv validate`: everything wrong in files and folders, for people, programs and pull requests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from agentv.cli import output
from agentv.cli.options import AT_LEAST_1
from agentv.datasets.formats.lines import MAX_LINE_BYTES
from agentv.errors import EXIT_FINDINGS, EXIT_OK

if TYPE_CHECKING:
    from agentv.validation.finding import Finding, Report


@click.command(
    "validate",
    epilog="Examples:  agentv validate evals  ·  agentv validate . --strict  ·  agentv validate evals --format github",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--strict", is_flag=True, help="Warnings count as errors for the exit code.")
@click.option(
    "--format", "style", type=click.Choice(["human", "json", "github"]), default="human", show_default=True,
    help="For people, for programs, or as annotations of a pull request.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--allow-outside-files", is_flag=True, help="Let datasets read files outside their project.")
@click.option(
    "--max-line-bytes", type=AT_LEAST_1, default=MAX_LINE_BYTES, show_default=True,
    help="The longest line of JSONL that is read.",
)  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print findings only.")
def command(
    paths: tuple[str, ...],
    strict: bool,
    style: str,
    as_json: bool,
    allow_outside_files: bool,
    max_line_bytes: int,
    quiet: bool,
) -> None:
    """Check datasets, sidecars, targets and configuration.

    PATHS are files, folders or globs. Exit code 0: nothing wrong; 1: findings; 2: wrong usage.
    """
    from agentv.datasets.dataset import Options
    from agentv.validation.project import validate

    report = validate(paths, Options(allow_outside_files, max_line_bytes))
    if as_json or style == "json":
        _print_json(report)
    elif style == "github":
        for finding in report.findings:
            click.echo(annotation(finding))
    else:
        _print_human(report, quiet)
    sys.exit(EXIT_FINDINGS if report.errors or (strict and report.warnings) else EXIT_OK)


def annotation(finding: Finding) -> str:
    """A finding as a workflow command that GitHub shows beside the line."""
    from agentv.report.github import workflow_command  # late: for that format only

    place = {"file": finding.path, "line": finding.line, "col": finding.column, "title": "agentv"}
    return workflow_command(finding.severity, place, finding.message + (f" — {finding.hint}" if finding.hint else ""))


def _print_json(report: Report) -> None:
    from agentv.model.values import to_json

    sys.stdout.buffer.write(to_json(report) + b"\n")


def _print_human(report: Report, quiet: bool) -> None:
    last = None
    for finding in report.findings:
        if finding.path != last:
            click.echo(("" if last is None else "\n") + click.style(finding.path, bold=True))
            last = finding.path
        click.echo(_human(finding))
    if quiet:
        return
    for note in report.notes:
        output.note(note)
    listed = len(report.findings)
    more = f" ({listed:,} listed)" if listed < report.errors + report.warnings else ""
    summary = (
        f"{_count(report.files, 'file')} and {_count(report.cases, 'good case')} checked: "
        f"{_count(report.errors, 'error')}, {_count(report.warnings, 'warning')}{more}"
    )
    output.say(("\n" if listed else "") + summary)


def _human(finding: Finding) -> str:
    place = f"{finding.line or ''}" + (f":{finding.column}" if finding.column else "")
    severity = click.style(finding.severity, fg="red" if finding.severity == "error" else "yellow")
    text = f"  {place:>7}  {severity}  {finding.message}"
    return text + "".join(f"\n{'':11}{line}" for line in finding.hint.split("\n") if line)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
