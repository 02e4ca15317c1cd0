"""Datasets of evaluation platforms and libraries."""
