"""Evaluators without a model or user code."""
