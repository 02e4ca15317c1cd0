"""Evaluators that run the user's code."""
