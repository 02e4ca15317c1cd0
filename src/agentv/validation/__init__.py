"""Validation: everything wrong in any number of files, in one pass. Loads nothing into a run and calls nothing."""
