"""Comparisons as text and Markdown."""
