"""Calls to targets: opened targets and the wrappers applied to each of them."""
