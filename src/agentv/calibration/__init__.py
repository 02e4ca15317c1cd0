"""Check judges against human labels and against probes."""
