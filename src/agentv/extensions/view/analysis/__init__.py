"""Figures that the served page computes from several runs: comparisons and trends."""
