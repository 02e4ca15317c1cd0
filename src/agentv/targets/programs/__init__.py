"""Targets that run code: commands, Python functions, HTTP services, the mock."""
