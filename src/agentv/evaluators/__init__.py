"""Evaluators, one module per family: a class's fields are its configuration."""
