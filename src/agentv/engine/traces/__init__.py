"""Receive spans from the systems under test, and make them the messages and tool calls of their answers."""
