"""Calls to targets: open targets, and the wrappers applied to them."""
