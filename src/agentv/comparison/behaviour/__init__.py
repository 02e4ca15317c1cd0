"""How the behaviour of two runs differs: their tool calls, and why cases became worse."""
