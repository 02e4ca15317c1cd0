"""Modules that take seconds to import: every test process collects every file, but few run these tests."""

import pytest


class Late:
    """A module that is imported when it is first used; without it, the test is skipped."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        if name.startswith("_"):  # pytest looks for its own attributes in everything that it collects
            raise AttributeError(name)
        return getattr(pytest.importorskip(self.module), name)
