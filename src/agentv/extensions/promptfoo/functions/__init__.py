"""Functions of the user's files in configurations of promptfoo."""


class CodeNotRun(ValueError):
    """A function that is not called because the command only checks files."""
