"""Sessions that agents and tracers recorded: one module per format, read one at a time."""
