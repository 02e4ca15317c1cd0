"""The providers of promptfoo: their targets, and what they answer."""
