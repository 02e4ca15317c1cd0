"""The files of a starter project, as they are written by `agentv init`."""
