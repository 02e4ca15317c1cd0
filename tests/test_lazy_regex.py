"""Patterns that are compiled at their first use behave like compiled ones."""

import copy
import re

from agentv.lazy_regex import lazy_regex


def test_a_lazy_pattern_has_the_methods_and_attributes_of_a_compiled_one():
    lazy = lazy_regex("(?P<digit>[0-9])", re.IGNORECASE)
    assert lazy.sub("x", "a1") == "ax"
    assert (lazy.pattern, lazy.flags, lazy.groupindex) == ("(?P<digit>[0-9])", 34, {"digit": 1})
    assert copy.deepcopy(lazy).fullmatch("7")
