"""Results of other tools, imported as runs."""
