"""The command line: `agentv COMMAND`. Commands are imported on use, so that help is fast."""

import gc
import os
import sys

import click

from agentv.cli.output import run
from agentv.errors import UsageError
from agentv.registry import Registry, optional_service
from agentv.support.processes.process_memory import claim_process
from agentv.version import __version__

_CLI = "agentv.cli"
_DEFAULT_COLUMNS = 80

COMMANDS = Registry(
    "agentv.commands",
    "commands",
    {
        "eval": f"{_CLI}.evaluation_options:eval_command run | "
        "Run every case, score the answers and record the results.",
        "compare": f"{_CLI}.analysis_options:compare_command | Compare runs and test whether the difference is real.",
        "report": f"{_CLI}.commands.report:report_command | "
        "Write reports of a run: HTML, JUnit, Markdown, CSV or Parquet.",
        "runs": f"{_CLI}.analysis_options:runs_command | List runs, show their trend, remove old runs.",
        "rescore": f"{_CLI}.evaluation_options:rescore_command | "
        "Score the answers of a run again without calling targets.",
        "cases": f"{_CLI}.project_options:cases_command | Print the resolved cases of datasets as JSON Lines.",
        "validate": f"{_CLI}.project_options:validate_command | Check datasets, sidecars, targets and configuration.",
        "schema": f"{_CLI}.project_options:schema_command | Print the JSON Schema of a file format.",
        "targets": f"{_CLI}.project_options:targets_command | "
        "List the targets of a project, or check them with a call.",
        "completion": f"{_CLI}.project_options:completion_command | Print the completion script for a shell.",
    },
)
"""Commands, each a `click.Command`. A name of two words is a command of a group: `runs merge`."""


class LazyGroup(click.Group):
    """A command group that lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for name in COMMANDS.all_names() if " " not in name]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name
        if name not in COMMANDS.kernel_names():
            name = COMMANDS.aliases().get(name, name)
            if name not in self.list_commands(ctx):
                return None
        command: click.Command = COMMANDS.find(name)
        if name not in COMMANDS.kernel_names():
            finish_imports()  # a plug-in may not call it
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown_command(self, ctx, args[0], *args[:2])
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        ctx.terminal_width = click.formatting.FORCED_WIDTH or max(50, min(80, _terminal_columns()) - 2)
        return super().get_help(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        kernel = COMMANDS.kernel_names()
        added = sorted(name for name in self.list_commands(ctx) if name not in kernel)
        for title, names in (("Commands", kernel), ("More commands", added)):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, summary_of(name)) for name in names])


def _terminal_columns() -> int:
    """Return the width of the terminal, like `shutil`, whose import takes a twentieth of the time of `--help`."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or _DEFAULT_COLUMNS
    except OSError:
        return _DEFAULT_COLUMNS


def unknown_command(group: click.Group, ctx: click.Context, name: str, *call: str | None) -> click.UsageError:
    """Return the error for a name that is not a command of a group, with the command to use instead."""
    from agentv.model.diagnostics import did_you_mean  # late: only needed for a mistake

    names = group.list_commands(ctx)
    successor = optional_service("command-successor")
    hint = (successor and successor(*call)) or did_you_mean(name, names) or f"Commands: {', '.join(names)}"
    return click.UsageError(f"No such command '{name}'. {hint}", ctx)


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


def finish_imports() -> None:
    """Resume garbage collections, without the objects of imported modules."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def main() -> None:
    """Run the command line and exit."""
    claim_process()
    gc.disable()  # until the modules of the command are imported: collections take a fifth of the time of a small run
    code = run(cli)
    finish_imports()
    sys.exit(code)
