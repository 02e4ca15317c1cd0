"""Run, watch, end and sandbox child processes."""
