"""Build one case from one row."""
