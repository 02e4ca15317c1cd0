"""The command line: `agentv COMMAND`. Commands are imported when they are used, so that help is quick."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from agentv import __version__
from agentv.cli.output import run

COMMANDS = {
    "eval": "Answer, score and record every case.",
    "compare": "Compare runs, and say whether the change is real.",
    "report": "Show a run: as a page, for CI, for spreadsheets and data tools.",
    "runs": "List runs, show their trend, remove old ones.",
    "plan": "Say how many cases and trials a difference needs.",
    "rescore": "Score the answers of a run again, calling no target.",
    "judge": "Label answers, hold a judge against the labels, try to fool it.",
    "generate": "Write rubrics for cases, and cases out of rows.",
    "cases": "Print the cases of datasets, resolved, as JSON Lines.",
    "validate": "Check datasets, sidecars, targets and configuration.",
    "convert": "Write a dataset in another format, without loss.",
    "schema": "Print the JSON Schema of a file format.",
    "targets": "List the targets of a project; `check` calls them.",
    "init": "Set up a starter project that works.",
    "completion": "Print the completion script of a shell.",
}

_HOMES = {
    "evaluation_options": ("eval", "rescore", "judge"),
    "analysis_options": ("compare", "plan", "runs"),
    "commands.report": ("report",),
    "project_options": ("cases", "validate", "convert", "generate", "schema", "targets", "init", "completion"),
}
"""The modules of this package that declare the commands."""

ALIASES = {"run": "eval"}
"""Other names of commands; help does not list them."""


class LazyGroup(click.Group):
    """Knows its commands by name and one line of help; a command's module is imported only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        home = next(home for home, names in _HOMES.items() if name in names)
        command: click.Command = getattr(import_module(f"agentv.cli.{home}"), f"{name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in (*COMMANDS, *ALIASES) and not args[0].startswith("-"):
            from agentv.settings.diagnostics import did_you_mean  # late: only a mistake needs it

            hint = did_you_mean(args[0], COMMANDS) or f"Commands: {', '.join(COMMANDS)}"
            raise click.UsageError(f"No such command '{args[0]}'. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `agentv init`, then `agentv validate evals` and `agentv eval evals`.",
)
@click.version_option(__version__, "-V", "--version", message="agentv %(version)s")
def cli() -> None:
    """Evaluate AI agents and prompts from dataset files."""


def main() -> None:
    """Run the command line: errors that a user can fix are printed without a traceback."""
    sys.exit(run(cli))
