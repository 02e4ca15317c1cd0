"""Marks for tests of what Windows does not have."""

import sys

import pytest


def only_on_posix(reason):
    """Skip a test on Windows, for the reason that the page on platforms names."""
    return pytest.mark.skipif(sys.platform == "win32", reason=f"not on Windows: {reason}")
