"""Runs of the same target, cases and measure as one baseline with several trials of each case."""
