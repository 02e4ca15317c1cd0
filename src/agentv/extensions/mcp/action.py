"""Start the MCP server of `agentv mcp`."""

import os
import shlex
import sys
from types import SimpleNamespace

from agentv.cli import output
from agentv.cli.display import RunDisplay
from agentv.errors import UsageError
from agentv.extensions.mcp.command import McpArguments
from agentv.extensions.mcp.run_budget import ServerBudget
from agentv.extensions.mcp.served_project import ServedProject

INSTALL = "pip install 'agentv[mcp]'"


def serve_project(args: McpArguments) -> None:
    """Serve until the client disconnects."""
    try:
        from agentv.extensions.mcp import server  # late: it takes almost a second
    except ImportError as error:
        if not (error.name or "").partition(".")[0].startswith(("mcp", "anyio")):
            raise
        raise UsageError("`agentv mcp` needs the package 'mcp'", hint=f"Install it with: {INSTALL}") from None

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
