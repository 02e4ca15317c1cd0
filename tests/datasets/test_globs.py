"""Globs for paths: wildcards within and across folders, sets and alternatives."""

import pytest

from agentv.errors import AgentvError
from agentv.support.patterns import glob_files, has_magic, matches


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


def test_a_pattern_of_many_wildcards_is_matched_in_linear_time():
    path = "/".join(["a" * 50] * 40)
    assert not matches("**/" * 25 + "b", path)
    assert not matches("*a" * 100 + "b", "a" * 250)
    assert matches("**/a*/" * 20 + "**", path)


@pytest.fixture
def looped(tmp_path, monkeypatch):
    """A folder of folders, each with links to all others and to itself."""
    monkeypatch.chdir(tmp_path)
    for name in "abcdefgh":
        (tmp_path / "top" / name).mkdir(parents=True)
        for other in "abcdefgh":
            (tmp_path / "top" / name / other).symlink_to(tmp_path / "top" / other)
    (tmp_path / "top" / "a" / "d.jsonl").write_text("{}\n")


@pytest.mark.usefixtures("looped")
@pytest.mark.parametrize("pattern", ["top/" + "**/" * 25 + "*.jsonl", "top/**/d.jsonl", "top/**/a/**/b/**/*.jsonl"])
def test_links_that_form_loops_are_followed_once(pattern):
    found = glob_files(pattern)
    assert len(found) <= 8 and all(matches(pattern, path) for path in found)
    assert "top/a/d.jsonl" in found or "a/**" in pattern


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.jsonl", ["x.jsonl"]),
        ("**/*.jsonl", ["link/y.jsonl", "one/two/z.jsonl", "one/y.jsonl", "x.jsonl"]),
        ("one/*.jsonl", ["one/y.jsonl"]),
        ("./one/**/z.jsonl", ["./one/two/z.jsonl"]),
        ("{one,link}/y.json{l,c}", ["link/y.jsonl", "one/y.jsonl"]),
        (".hidden/*.jsonl", [".hidden/h.jsonl"]),
        ("none/*.jsonl", []),
    ],
)
def test_files_are_found_by_pattern(tmp_path, monkeypatch, pattern, found):
    monkeypatch.chdir(tmp_path)
    for path in ("x.jsonl", "one/y.jsonl", "one/two/z.jsonl", ".hidden/h.jsonl", "one/.y.jsonl"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}\n")
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert [path for path in glob_files(pattern) if "link/two" not in path] == found


def test_too_many_alternatives_are_an_error():
    assert matches("{a,b}" * 9, "abababbba")
    with pytest.raises(AgentvError, match="has more than 1,000 alternatives in braces"):
        matches("{a,b}" * 40, "a" * 40)


def test_a_brace_that_is_not_closed_is_an_ordinary_character(tmp_path):
    (tmp_path / "a{b").touch()
    assert glob_files(f"{tmp_path}/a{{b") == [f"{tmp_path}/a{{b"]
