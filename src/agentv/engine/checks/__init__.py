"""Checks of cases and files before anything runs."""
