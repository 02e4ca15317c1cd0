"""Built-in extensions: each folder is a vertical slice that adds rows to the registries. See `agentv.registry`."""
