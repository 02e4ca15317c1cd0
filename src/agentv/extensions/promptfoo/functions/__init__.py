"""Functions of the user's files in configurations of promptfoo."""
