"""Globs for paths: wildcards within and across folders, sets and alternatives."""

import pytest

from agentv.support.patterns import has_magic, matches


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("*.md", ["a.md", ".md"], ["a/b.md", "a.mdx", "amd"]),
        ("docs/*.md", ["docs/a.md"], ["docs/a/b.md", "a.md"]),
        ("**/*.md", ["a.md", "a/b.md", "a/b/c.md"], ["a.txt", "a/b.mdx"]),
        ("docs/**", ["docs/a", "docs/a/b.md"], ["docs", "doc/a", "x/docs/a"]),
        ("**", ["a", "a/b"], []),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "a/b/c"]),
        ("?.md", ["a.md", "é.md"], ["ab.md", "/.md", ".md"]),
        ("[ab].md", ["a.md", "b.md"], ["c.md", "ab.md"]),
        ("[!ab].md", ["c.md", "!.md"], ["a.md", "b.md", "/.md"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
        ("[a!]x", ["ax", "!x"], ["bx"]),
        ("[[]x", ["[x"], ["]x", "x"]),
        ("{a,b/c}.md", ["a.md", "b/c.md"], ["b.md", "c.md"]),
        ("{a,{b,c}}.md", ["a.md", "b.md", "c.md"], ["d.md"]),
        ("*.{md,txt}", ["a.md", "b.txt"], ["a.rst"]),
        ("a.md", ["a.md"], ["axmd", "b/a.md"]),
        ("a+b(c)$.md", ["a+b(c)$.md"], ["aab(c)$.md"]),
        ("docs\\*.md", ["docs/a.md"], []),
        ("", [""], ["a"]),
    ],
)
def test_a_pattern_matches_these_paths_and_not_those(pattern, fitting, others):
    assert [path for path in fitting if not matches(pattern, path)] == []
    assert [path for path in others if matches(pattern, path)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a.md", False), ("a/b-c.jsonl", False), ("*.md", True), ("a?", True), ("[a]", True), ("{a,b}", True)],
)
def test_globs_are_distinguished_from_plain_paths(text, expected):
    assert has_magic(text) is expected
