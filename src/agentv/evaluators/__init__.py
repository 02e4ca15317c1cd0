"""Evaluators, one module per family. The fields of a class are its settings."""
