"""Targets, one module per provider: a class's fields are its configuration."""
