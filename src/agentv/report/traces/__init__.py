"""Runs as traces of OpenTelemetry, and notes about the spans that a run received."""
