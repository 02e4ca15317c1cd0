"""One module per format of another tool's results."""
