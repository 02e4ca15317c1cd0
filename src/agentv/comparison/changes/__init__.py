"""What changed between two runs, whether they measured the same, and how to make them comparable."""
