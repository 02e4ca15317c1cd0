"""Results of other tools, read as runs: one module per format."""
