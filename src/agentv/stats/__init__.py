"""What scores mean: pure functions and accumulators over numbers. Knows no result and no file."""
