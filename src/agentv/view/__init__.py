"""The served page: `agentv view`."""
