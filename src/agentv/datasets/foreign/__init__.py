"""Datasets of other tools, read as they are: each format maps records to rows and counts what it cannot keep."""
