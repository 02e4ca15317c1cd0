"""Check judges against people's labels and against probes."""
