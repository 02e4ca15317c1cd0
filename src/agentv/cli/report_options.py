"""The arguments of `agentv report`; each report format adds a flag."""

from __future__ import annotations

from collections.abc import Iterator

import click

from agentv.cli.options import PATH, Arguments, argument, declare, flag, option
from agentv.errors import UsageError
from agentv.registry import REPORTS
from agentv.report.formats import report_format


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
