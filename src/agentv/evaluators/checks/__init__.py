"""Evaluators that need no model and no user code."""
