"""Configurations of promptfoo: prompts, providers and tests in one file, read as a dataset with its own targets."""
