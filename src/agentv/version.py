"""The version of agentv."""

__version__ = "0.1.0"
