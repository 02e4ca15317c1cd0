"""Judges and functions that score as promptfoo does, and the evaluators for its model-graded assertions."""
