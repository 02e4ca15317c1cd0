"""Public benchmarks and the layouts they are published in."""
