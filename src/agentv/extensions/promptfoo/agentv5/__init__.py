"""Suites of AgentV 5: tests, assertions and hooks in the language of promptfoo."""
