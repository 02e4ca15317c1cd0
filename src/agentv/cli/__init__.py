"""The command line: `agentv COMMAND`. Commands are imported on use, so that help is fast."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from agentv import __version__
from agentv.cli.output import run
from agentv.support.processes.process_memory import claim_process

COMMANDS = {
    "eval": "Run every case, score the answers and record the results.",
    "compare": "Compare runs and test whether the difference is real.",
    "noise": "Run the same cases twice and measure the noise.",
    "swap": "Rehearse a change of model: quality, cost, time, refusals.",
    "skill": "Measure whether an Agent Skill helps your coding agents.",
    "ablate": "Measure whether a prompt, a file or an MCP server helps.",
    "bisect": "Find the commit that changed the scores.",
    "report": "Write reports of a run: HTML, JUnit, Markdown, CSV or Parquet.",
    "view": "Show runs in the browser: live, with filters and comparisons.",
    "runs": "List runs, show their trend, remove old runs.",
    "plan": "Estimate the number of cases you need, or choose a smaller suite.",
    "rescore": "Score the answers of a run again without calling targets.",
    "judge": "Label answers, calibrate a judge, and probe it.",
    "generate": "Generate rubrics, or cases from rows or recorded sessions.",
    "cases": "Print the resolved cases of datasets as JSON Lines.",
    "validate": "Check datasets, sidecars, targets and configuration.",
    "convert": "Convert a dataset to another format without loss.",
    "schema": "Print the JSON Schema of a file format.",
    "targets": "List the targets of a project, or check them with a call.",
    "mcp": "Serve runs and datasets to coding agents as MCP tools.",
    "init": "Create a starter project.",
    "completion": "Print the completion script for a shell.",
}

_HOMES = {
    "evaluation_options": ("eval", "bisect", "rescore"),
    "judge_options": ("judge",),
    "ablation_options": ("skill", "ablate"),
    "rehearsal_options": ("noise", "swap"),
    "analysis_options": ("compare", "plan", "runs"),
    "commands.analysis.report": ("report",),
    "commands.view": ("view",),
    "commands.mcp": ("mcp",),
    "project_options": ("cases", "validate", "convert", "generate", "schema", "targets", "init", "completion"),
}
"""The modules that declare the commands."""

ALIASES = {"run": "eval"}
"""Alternative names of commands, not listed in help."""


class LazyGroup(click.Group):
    """A command group that lists commands without importing them."""

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
            from agentv.settings.diagnostics import did_you_mean  # late: only needed for a mistake

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
    """Run the command line and exit."""
    claim_process()
    sys.exit(run(cli))
