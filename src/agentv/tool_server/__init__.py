"""Serve the runs and datasets of a project to coding agents, as the tools of an MCP server."""
