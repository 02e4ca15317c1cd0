"""Patterns that are compiled at their first use behave like compiled ones."""

import copy
import re
import subprocess
import sys

from agentv.lazy_regex import lazy_compilation, lazy_regex


def test_a_lazy_pattern_has_the_methods_and_attributes_of_a_compiled_one():
    lazy = lazy_regex("(?P<digit>[0-9])", re.IGNORECASE)
    assert lazy.sub("x", "a1") == "ax"
    assert (lazy.pattern, lazy.flags, lazy.groupindex) == ("(?P<digit>[0-9])", 34, {"digit": 1})
    assert copy.deepcopy(lazy).fullmatch("7")


def test_a_pattern_can_be_used_while_a_package_is_imported():
    with lazy_compilation():
        assert re.compile("a").match("a")
    assert isinstance(re.compile("a"), re.Pattern)


PROGRAM = """
import re, agentv.support.yaml.yaml_file, yaml
assert isinstance(re.compile("a"), re.Pattern)
assert type(yaml.SafeLoader.timestamp_regexp) is not re.Pattern
print(yaml.safe_load("[2020-01-02, 0x1F, 1e3, ~, yes, text]"), yaml.safe_dump(["1", "\\x07"]))
try:
    yaml.safe_load("\\x07")
except yaml.YAMLError as error:
    print(type(error).__name__)
"""


def test_pyyaml_reads_and_writes_the_same_with_lazy_patterns():
    plain = PROGRAM.replace("agentv.support.yaml.yaml_file, ", "").replace("is not re.Pattern", "is re.Pattern")
    lazy, usual = (
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True) for text in (PROGRAM, plain)
    )
    assert lazy.returncode == 0, lazy.stderr
    assert lazy.stdout == usual.stdout
    assert "ReaderError" in lazy.stdout
