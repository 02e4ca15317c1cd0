"""The command line: `agentv COMMAND`. Commands are imported on use, so that help is fast."""

from __future__ import annotations

import sys

import click

from agentv.cli.output import run
from agentv.errors import UsageError
from agentv.registry import Registry
from agentv.support.processes.process_memory import claim_process
from agentv.version import __version__

_CLI = "agentv.cli"

COMMANDS = Registry(
    "agentv.commands",
    "commands",
    {
        "eval": f"{_CLI}.evaluation_options:eval_command run | "
        "Run every case, score the answers and record the results.",
        "compare": f"{_CLI}.analysis_options:compare_command | Compare runs and test whether the difference is real.",
        "report": f"{_CLI}.commands.analysis.report:report_command | "
        "Write reports of a run: HTML, JUnit, Markdown, CSV or Parquet.",
        "view": f"{_CLI}.commands.view:view_command | Show runs in the browser: live, with filters and comparisons.",
        "runs": f"{_CLI}.analysis_options:runs_command | List runs, show their trend, remove old runs.",
        "plan": f"{_CLI}.analysis_options:plan_command | "
        "Estimate the number of cases you need, or choose a smaller suite.",
        "rescore": f"{_CLI}.evaluation_options:rescore_command | "
        "Score the answers of a run again without calling targets.",
        "judge": f"{_CLI}.judge_options:judge_command | Label answers, calibrate a judge, and probe it.",
        "cases": f"{_CLI}.project_options:cases_command | Print the resolved cases of datasets as JSON Lines.",
        "validate": f"{_CLI}.project_options:validate_command | Check datasets, sidecars, targets and configuration.",
        "convert": f"{_CLI}.project_options:convert_command | Convert a dataset to another format without loss.",
        "schema": f"{_CLI}.project_options:schema_command | Print the JSON Schema of a file format.",
        "targets": f"{_CLI}.project_options:targets_command | "
        "List the targets of a project, or check them with a call.",
        "init": f"{_CLI}.project_options:init_command | Create a starter project.",
        "completion": f"{_CLI}.project_options:completion_command | Print the completion script for a shell.",
    },
)
"""Commands, each a `click.Command`."""


class LazyGroup(click.Group):
    """A command group that lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS.all_names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        name = COMMANDS.aliases().get(cmd_name, cmd_name)
        if name not in COMMANDS.all_names():
            return None
        command: click.Command = COMMANDS.find(name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from agentv.model.diagnostics import did_you_mean  # late: only needed for a mistake

            names = self.list_commands(ctx)
            hint = did_you_mean(args[0], names) or f"Commands: {', '.join(names)}"
            raise click.UsageError(f"No such command '{args[0]}'. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        kernel = COMMANDS.kernel_names()
        added = [name for name in COMMANDS.all_names() if name not in kernel]
        for title, names in (("Commands", kernel), ("Extensions", added)):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, summary_of(name)) for name in names])


def summary_of(name: str) -> str:
    """Return the line about a command in the help; a plug-in is imported for it."""
    try:
        return COMMANDS.summary(name) or COMMANDS.find(name).get_short_help_str(limit=80)
    except UsageError as error:
        return str(error)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `agentv init`, then `agentv validate evals` and `agentv eval evals`.",
)
@click.version_option(__version__, "-V", "--version", message="agentv %(version)s")
def cli() -> None:
    """Evaluate AI agents and prompts from dataset files."""


def main() -> None:
    """Run the command line and exit."""
    claim_process()
    sys.exit(run(cli))
