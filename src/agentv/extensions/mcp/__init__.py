"""Serve the runs and datasets of a project to coding agents, as the tools of an MCP server."""

ROWS = {
    "agentv.commands": {
        "mcp": "agentv.extensions.mcp.command:mcp_command | Serve runs and datasets to coding agents as MCP tools.",
    },
}
