"""Results of benchmarks: whether an agent solved each of their tasks."""
