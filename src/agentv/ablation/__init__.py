"""Measure what a skill, a prompt, an MCP server or a file changes: the arms of the comparison, and the findings."""
