"""Read and write YAML 1.2."""
