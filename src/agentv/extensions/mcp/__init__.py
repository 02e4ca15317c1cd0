"""Serve the runs and datasets of a project to coding agents, and call the tools of other MCP servers."""

_MCP = "agentv.extensions.mcp"

ROWS = {
    "agentv.commands": {
        "mcp": f"{_MCP}.command:mcp_command | Serve runs and datasets to coding agents as MCP tools.",
    },
    "agentv.services": {
        "mcp-connection": f"{_MCP}.server_connection:McpConnection",
    },
}
