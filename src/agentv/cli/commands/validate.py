"""`agentv validate`: prints the problems in files and folders, for people, programs and pull requests."""

from __future__ import annotations

import sys

import click

from agentv.cli import output
from agentv.cli.arguments.project_options import ValidateArguments
from agentv.datasets.dataset import Options
from agentv.errors import EXIT_FINDINGS, EXIT_OK
from agentv.model.values import to_json
from agentv.report.github import workflow_command
from agentv.validation.finding import Finding, Report
from agentv.validation.project import validate as validated


def validate(args: ValidateArguments) -> None:
    """Check files and print the findings."""
    report = validated(args.paths, Options(args.allow_outside_files, args.max_line_bytes))
    if args.as_json or args.style == "json":
        sys.stdout.buffer.write(to_json(report) + b"\n")
    elif args.style == "github":
        for finding in report.findings:
            click.echo(annotation(finding))
    else:
        _print_human(report, args.quiet)
    sys.exit(EXIT_FINDINGS if report.errors or (args.strict and report.warnings) else EXIT_OK)


def annotation(finding: Finding) -> str:
    """A finding as a workflow command that GitHub shows beside the line."""
    place = {"file": finding.path, "line": finding.line, "col": finding.column, "title": "agentv"}
    return workflow_command(finding.severity, place, finding.message + (f" — {finding.hint}" if finding.hint else ""))


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
