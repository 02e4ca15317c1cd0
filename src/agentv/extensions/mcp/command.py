"""`agentv mcp`: serve the project to coding agents."""

from __future__ import annotations

import os
import shlex
import sys
from types import SimpleNamespace

from agentv.cli import output
from agentv.cli.evaluation_options import TargetsFileOption
from agentv.cli.options import AT_LEAST_1, FOLDER, declare, flag, option, with_help
from agentv.engine.run_options import EvalOptions
from agentv.errors import UsageError

INSTALL = "pip install 'agentv[mcp]'"


class McpArguments(TargetsFileOption):
    """An MCP server over stdin and stdout, with tools to list runs, read failures, compare two runs, validate datasets,
    read cases, and run cases. Needs `pip install 'agentv[mcp]'`. Reading works without options. Cases run only within a
    budget for the whole life of the server, which the agent cannot change, and start programs only with
    --allow-programs. Only files of the project are read. Targets, prices, hosts and variables that change after the
    start are refused until the server is restarted.

    \b
    Claude Code:  claude mcp add agentv -- agentv mcp --budget-usd 2
    Codex:        codex mcp add agentv -- agentv mcp --budget-usd 2
    Others:       {"mcpServers": {"agentv": {"command": "agentv", "args": ["mcp", "--budget-usd", "2"]}}}
    """

    action = "agentv.extensions.mcp.command:serve_project"
    examples = (
        "agentv mcp",
        "agentv mcp --project ~/shop --budget-usd 2",
        "agentv mcp --max-jobs 50 --allow-programs --sandbox auto",
    )

    project: str = option("--project DIR", "Serve the project of this folder.", FOLDER, default=".")
    budget_usd = with_help(EvalOptions.budget_usd, "Let all runs of this server together cost this much.")
    max_jobs: int | None = option(
        "--max-jobs N", "Let all runs of this server together start this many jobs, whatever they cost.", AT_LEAST_1
    )
    allow_programs: bool = flag(
        "--allow-programs",
        "Let runs start the programs and import the code that the project names: commands, agents, code judges. An "
        "agent that may edit these files can then run any program.",
    )
    workers = EvalOptions.workers
    sandbox = with_help(
        EvalOptions.sandbox, "Isolate the programs of runs with this engine; auto is Landlock or bubblewrap."
    )


def serve_project(args: McpArguments) -> None:
    """Serve until the client disconnects."""
    try:
        from agentv.extensions.mcp import server  # late: it takes almost a second
    except ImportError as error:
        if not (error.name or "").partition(".")[0].startswith(("mcp", "anyio")):
            raise
        raise UsageError("`agentv mcp` needs the package 'mcp'", hint=f"Install it with: {INSTALL}") from None
    from agentv.cli.display import RunDisplay
    from agentv.extensions.mcp.run_budget import ServerBudget
    from agentv.extensions.mcp.served_project import ServedProject

    if not os.path.isdir(args.project):
        raise UsageError(f"No such folder: {args.project}", hint="--project takes the folder of a project")
    targets_file = None if args.targets_file is None else os.path.abspath(args.targets_file)
    os.chdir(args.project)
    budget = ServerBudget(args.budget_usd, args.max_jobs)
    project = ServedProject(budget, allows_programs=args.allow_programs, advice=_advice)
    project.targets_file, project.workers, project.sandbox = targets_file, args.workers, args.sandbox
    project.display = lambda plan: RunDisplay(plan, SimpleNamespace(quiet=True, as_json=False))
    if sys.stdin.isatty():
        output.note(
            "Waiting for messages of an MCP client on stdin. `agentv mcp --help` shows how to connect an agent."
        )
    server.serve(project)


def _advice(path: str) -> str:
    """Return how the user can trust a path, or a run if it is empty: an agent cannot."""
    if not path:
        return "Only the user can go on, on a terminal: agentv eval --resume --out RUN --trust-run"
    command = shlex.join(["agentv", *sys.argv[1:], "--trust", path])
    return f"Only the user can trust these files, by starting the server with: {command}"


mcp_command = declare("mcp", McpArguments)
