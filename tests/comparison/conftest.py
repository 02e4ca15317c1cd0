"""Fixtures for tests of comparisons."""
