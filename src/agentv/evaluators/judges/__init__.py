"""Evaluators that call a judge model."""
