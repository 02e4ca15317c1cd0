"""Tools that a model target runs itself: Python functions, commands and MCP servers."""
