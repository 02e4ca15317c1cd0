"""Decide what may run: the trusted project, files from outside it, and the user's policy."""
