"""`agentv mcp`: serve the project to coding agents."""

from agentv.cli.evaluation_options import TargetsFileOption
from agentv.cli.options import AT_LEAST_1, FOLDER, declare, flag, option, with_help
from agentv.engine.run_options import EvalOptions


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

    action = "agentv.extensions.mcp.action:serve_project"
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


mcp_command = declare("mcp", McpArguments)
