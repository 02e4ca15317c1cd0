"""Recorded answers: write, replay and cache them."""
