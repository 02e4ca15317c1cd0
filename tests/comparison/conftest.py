"""Runs written by hand, for every test of comparisons."""
